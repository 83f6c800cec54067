"""Keys of a terminal, for views that go on while somebody may press one."""

import os
import select
import termios
import threading
import tty
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO

KEYS: Final = {
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
    b"\x1b": "quit",
    b"k": "up",
    b"j": "down",
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"g": "home",
    b"G": "end",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
}
"""Names of keys by what a terminal sends for them."""
_SENT_MAX: Final = 16


class Keys(Protocol):
    """A source of key presses."""

    def wait(self, seconds: float) -> str | None:
        """Return the name of the next key; None where none that has a name was pressed in time."""
        ...


class TerminalKeys:
    """Keys of a terminal that hands on each byte at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str | None:
        """Wait for a key."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return None
        # All that one key sends is there at once.
        sent = os.read(self._descriptor, _SENT_MAX)
        return "quit" if not sent else KEYS.get(sent)


class NoKeys:
    """Standard input is no terminal: nothing is pressed, and Ctrl-C ends the view."""

    def wait(self, seconds: float) -> str | None:
        """Let the time pass."""
        threading.Event().wait(seconds)
        return None


@contextmanager
def keyboard(terminal: TextIO) -> Generator[Keys]:
    """Give the keys of a terminal, which is as before afterwards."""
    if not terminal.isatty():
        yield NoKeys()
        return
    descriptor = terminal.fileno()
    before: list[Any] = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield TerminalKeys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
