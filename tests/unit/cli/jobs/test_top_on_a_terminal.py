"""`headrace top` as somebody sees it: a whole process on a terminal of its own."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING
from tests.unit.rest.fake_cluster import JOB, fake_cluster

PATIENCE_S = 60
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


def ends_with(press: bytes) -> tuple[bytes, int]:
    """Start `headrace top`, press a key once it shows the job, and return what was drawn and the exit code."""
    answers: dict[str, Any] = {**ONE_RUNNING, f"GET /jobs/{JOB}": JOB_PAGE}
    with fake_cluster(answers, token="") as cluster:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        command = [sys.executable, "-m", "headrace", "top", "-m", cluster.authority]
        process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color"},
            preexec_fn=own_terminal(slave),
        )
        os.close(slave)
        drawn = read_until(master, b"q quits")
        os.write(master, press)
        drawn += read_until(master, b"")
        os.close(master)
        return drawn, process.wait(PATIENCE_S)


def own_terminal(slave: int) -> Callable[[], None]:
    def prepare() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    return prepare


def read_until(terminal: int, sign: bytes) -> bytes:
    """Read until the sign was written; an empty one stands for the end of the process."""
    drawn = b""
    while not sign or sign not in drawn:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        assert ready, drawn
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # nobody has the other side open any more
            break
        if not part:
            break
        drawn += part
    return drawn


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_a_key_ends_it_and_the_terminal_is_as_before(key: bytes) -> None:
    drawn, code = ends_with(key)
    assert code == 0
    assert ENTER_SCREEN in drawn
    after = drawn.rpartition(LEAVE_SCREEN)[2].decode()
    # What was seen last stays to be read.
    assert f"departures ({JOB}): RUNNING" in after
