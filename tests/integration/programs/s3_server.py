"""An S3 server of the tests' own: moto's, in a process beside them, with one bucket, forgotten when it ends."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

BUCKET = "bucket"
_PROGRAM = f"""
import logging, sys
from moto.server import ThreadedMotoServer
from pyarrow import fs

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
address = f"127.0.0.1:{{port}}"
store = fs.S3FileSystem(
    endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True
)
store.create_dir("{BUCKET}")
print(address, flush=True)
sys.stdin.read()
server.stop()
"""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    # Else a client without a region asks a service of the machine that no test machine has.
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextlib.contextmanager
def running_server(environment: dict[str, str]) -> Iterator[str]:
    """Start one, hand out its address once the bucket is there, and end it. `environment`: with CREDENTIALS."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the S3 server did not start: see its standard error"
        yield address
        process.stdin.close()
