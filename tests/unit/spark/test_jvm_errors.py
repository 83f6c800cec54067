"""The JVM's standard error: passed on without Java's warning of a module, and asked for the cause of a failed start."""

import subprocess
import sys

SCRIPT = """
import subprocess, sys
from headrace.spark.jvm_errors import JvmErrors
with JvmErrors() as errors:
    started = subprocess.Popen(
        ["sh", "-c", "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2; echo one >&2; read line; "
         "echo 'Exception in thread \\"main\\" a.B: no such thing' >&2; echo '  at x' >&2"], stdin=subprocess.PIPE
    )
print("ours", file=sys.stderr, flush=True)
started.communicate(b"go")
print(errors.cause())
"""


def test_lines_pass_but_for_the_warning_also_after_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=30
    )
    assert sorted(done.stderr.splitlines()) == [
        "  at x",
        'Exception in thread "main" a.B: no such thing',
        "one",
        "ours",
    ]
    assert done.stdout.strip() == "a.B: no such thing"
