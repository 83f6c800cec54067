"""An S3 server of the tests' own: moto's, in a process beside them, with one bucket, forgotten when it ends.

It obeys If-None-Match and If-Match, but looks and writes in two steps, and has a thread for each connection: two
writers could both pass. So a lock around each request, once its body has arrived, makes the two steps one, as S3
promises.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass

BUCKET = "bucket"
_PROGRAM = f"""
import io, logging, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
moto = DomainDispatcherApplication(create_backend_app)
one_at_a_time = threading.Lock()

def application(environ, start_response):
    # First, so that a client that is frozen in the midst of a request keeps nobody waiting.
    length = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with one_at_a_time:
        return [b"".join(moto(environ, start_response))]

server = make_server("127.0.0.1", 0, application, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"127.0.0.1:{{server.server_port}}"
store = fs.S3FileSystem(
    endpoint_override=address, scheme="http", region="us-east-1", allow_bucket_creation=True
)
store.create_dir("{BUCKET}")
print(address, flush=True)
sys.stdin.read()
"""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    # Else a client without a region asks a service of the machine that no test machine has.
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class S3Server:
    """A server that runs."""

    address: str
    pid: int

    def folder(self, name: str) -> str:
        """Return the URI of a folder of its bucket."""
        return f"s3://{BUCKET}/{name}?endpoint_override={self.address}&scheme=http&region=us-east-1"

    @contextlib.contextmanager
    def away(self) -> Generator[None]:
        """Answer nobody meanwhile."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@contextlib.contextmanager
def running_server(environment: dict[str, str]) -> Generator[S3Server]:
    """Start one, hand it out once the bucket is there, and end it. `environment`: with CREDENTIALS."""
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
        yield S3Server(address, process.pid)
        process.stdin.close()
