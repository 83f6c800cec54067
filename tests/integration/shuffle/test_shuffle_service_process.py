"""`headrace shuffle-service` as a process: however often it is told to end, it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

_WITHIN_S = 30.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_come_one_upon_the_other_end_it_all_the_same(
    tmp_path: Path, number: signal.Signals
) -> None:
    arguments = [
        "--directory",
        str(tmp_path / "results"),
        "--secret-file",
        str(tmp_path / "secret"),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "shuffle-service", *arguments, "--port", "0",
         "--data-port", "0"],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            while not process.stdout.readline().startswith("shuffle-service.address"):
                assert process.poll() is None, "it ended before it listened"
            deadline = time.monotonic() + _WITHIN_S
            signal_count = 0
            # Most come while it handles another one: a lock that a handler takes is then held by what it interrupts.
            while process.poll() is None and signal_count < 2000:
                process.send_signal(number)
                signal_count += 1
            process.wait(max(1.0, deadline - time.monotonic()))
        finally:
            process.kill()
        assert "its committed results are kept" in process.stdout.read()
    assert process.returncode == 0
