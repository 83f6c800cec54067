"""Held stacks: reads dumps of `faulthandler`, which come while one thread holds the interpreter lock.

    armed again in time ──► nothing is written
    not armed for a period ──► 'Timeout (…)!' and the stacks of all threads, once a period until it is armed again

Pure: bytes in. Source: CPython's Modules/faulthandler.c.
"""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

RELEASED: Final = b"released\n"
"""Line that the process itself writes once it runs again."""
DUMP_MAX_BYTES: Final = 1 << 20
"""Bytes that are kept of a dump; the rest is dropped."""

_TIMEOUT: Final = b"Timeout ("
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.M)
_WAITING: Final = {"threading.py", "selectors.py", "queue.py"}


class HeldStacks:
    """Since when the lock is held, and the last dump. Feed `receive` with what is read from the pipe."""

    def __init__(self, period_ns: int, library_folders: Iterable[str]) -> None:
        self._period_ns: Final = period_ns
        self._library_folders: Final = tuple(library_folders)
        self._since_ns: int | None = None
        self._last_dump_ns = 0
        self._dump = b""

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes of the pipe."""
        released = data.rfind(RELEASED)
        if released >= 0:
            self._since_ns, self._dump = None, b""
            data = data[released + len(RELEASED) :]
        start = data.rfind(_TIMEOUT)
        if start >= 0:
            self._last_dump_ns = now_ns
            if self._since_ns is None:
                self._since_ns = now_ns - self._period_ns
            self._dump, data = b"", data[start:]
        self._dump = (self._dump + data)[:DUMP_MAX_BYTES]

    def held_ms(self, now_ns: int) -> int | None:
        """Return how long the lock is held; None where it is not, or no dump comes any more: the process is stopped."""
        if self._since_ns is None or now_ns - self._last_dump_ns > 3 * self._period_ns:
            return None
        return (now_ns - self._since_ns) // 1_000_000

    @property
    def function(self) -> str:
        """The user's function, its file and line, in the first thread that does not wait in Python's own library."""
        for thread in self._dump.decode(errors="replace").split("\n\n"):
            frames = list(_FRAME.finditer(thread))
            if not frames or PurePath(frames[0]["file"]).name in _WAITING:
                continue
            for frame in frames:
                file = frame["file"]
                if not file.startswith(("<", *self._library_folders)):
                    return f"{frame['function']} ({file}:{frame['line']})"
        return ""
