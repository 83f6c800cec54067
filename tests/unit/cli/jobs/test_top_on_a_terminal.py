"""`headrace top` as somebody sees it: a whole process on a terminal of its own."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.jobs.answers import JOB_PAGE, ONE_RUNNING
from tests.unit.rest.fake_cluster import JOB, fake_cluster, home_of

PATIENCE_S = 60
ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"


ANSWERS: dict[str, Any] = {**ONE_RUNNING, f"GET /jobs/{JOB}": JOB_PAGE}


def watched_until(act: Callable[[int, int], None], *options: str) -> tuple[str, int]:
    """Start `headrace top`, and act once it shows the job; return what is left on the terminal, and the exit code.

    `act` gets the terminal and the process's number.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "top", *options],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        preexec_fn=own_terminal(slave),
    )
    os.close(slave)
    drawn = read_until(master, b"q quits")
    assert ENTER_SCREEN in drawn
    act(master, process.pid)
    drawn += read_until(master, b"")
    os.close(master)
    return drawn.rpartition(LEAVE_SCREEN)[2].decode(), process.wait(PATIENCE_S)


def press(terminal: int, key: bytes) -> None:
    os.write(terminal, key)


def own_terminal(slave: int) -> Callable[[], None]:
    def prepare() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    return prepare


def read_until(terminal: int, sign: bytes) -> bytes:
    """Read until the sign was written; an empty one stands for the end of the process."""
    drawn = b""
    poll = select.poll()
    poll.register(terminal, select.POLLIN)
    while not sign or sign not in drawn:
        assert poll.poll(1000 * PATIENCE_S), drawn
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # nobody has the other side open any more
            break
        if not part:
            break
        drawn += part
    return drawn


@pytest.mark.parametrize(
    "act",
    [
        lambda terminal, _: press(terminal, b"q"),
        lambda terminal, _: press(terminal, b"\x03"),
        lambda _, process: os.kill(process, signal.SIGTERM),
    ],
    ids=["q", "Ctrl-C", "SIGTERM"],
)
def test_a_key_or_a_signal_ends_it_and_what_was_seen_last_stays_to_be_read(
    act: Callable[[int, int], None],
) -> None:
    with fake_cluster(ANSWERS, token="") as cluster:
        left, code = watched_until(act, "-m", cluster.authority)
    assert code == 0
    assert f"departures ({JOB}): RUNNING" in left


def test_it_ends_with_the_cluster_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_cluster(ANSWERS) as cluster:
        (file,) = home_of(monkeypatch, tmp_path, cluster)

        def end(_: int, process: int) -> None:
            file.unlink()
            cluster.close()

        left, code = watched_until(end, "-i", "0.2")
    assert code == 0
    assert "the cluster has ended meanwhile" in left
