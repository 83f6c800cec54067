"""Carries what user code prints from workers on this host to the standard output of the user's own process.

Spark sends a worker's standard output to its executor's standard error. Where both ends share a host, a named pipe
brings the lines home: the driver reads it, every worker writes whole lines to it.
"""

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Final

from headrace.core.threads import start_thread

_READ_SIZE_BYTES: Final = 1 << 16


class OutputPipe:
    """The reading end, in the driver. Lines appear on `sys.stdout` as it is at that moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o600)
        # Opened for both ways: it never waits for a writer, and never ends when the last one leaves.
        self._descriptor = os.open(path, os.O_RDWR)
        self._thread = start_thread("headrace-output", self._run)

    def close(self) -> None:
        """Read what was written so far, then end."""
        if self._descriptor < 0:
            return
        os.write(self._descriptor, _END)
        self._thread.join(timeout=5)
        os.close(self._descriptor)
        self._descriptor = -1
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _run(self) -> None:
        pending = b""
        while True:
            pending += os.read(self._descriptor, _READ_SIZE_BYTES)
            is_ended = pending.endswith(_END)
            whole, newline, rest = pending.removesuffix(_END).rpartition(b"\n")
            text = (whole + newline + (rest if is_ended else b"")).decode(errors="replace")
            if text:
                sys.stdout.write(text)
                sys.stdout.flush()
            if is_ended:
                return
            pending = rest


# No text contains it: a byte that UTF-8 never uses.
_END: Final = b"\xff"


@contextlib.contextmanager
def redirect_standard_output(pipe: str) -> Generator[None, None, None]:
    """Send this process's standard output to `pipe`; nothing happens where it is empty or cannot be opened.

    Both the file descriptor and `sys.stdout` are led there, line by line, so that a line of one process is never cut
    by another's (up to the size that a pipe takes at once).
    """
    descriptor = _open_for_writing(pipe)
    if descriptor is None:
        yield
        return
    previous, stream = os.dup(1), sys.stdout
    os.dup2(descriptor, 1)
    sys.stdout = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="replace")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.stdout = stream
        os.dup2(previous, 1)
        os.close(previous)


def _open_for_writing(pipe: str) -> int | None:
    if not pipe:
        return None
    try:
        # Not waiting for a reader: where there is none, the driver is gone.
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    os.set_blocking(descriptor, True)
    return descriptor
