"""ConsoleFile: the file of limited size that receives the standard output and error of a daemon.

All processes that a daemon starts share the open file, Spark's JVM among them: a full file can therefore not be
renamed. Its content is copied to `<name>.1` and truncated; writers continue at its new end.
"""

import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Final

from headrace.core.process.log_files import FolderInUse
from headrace.core.threads import start_thread

NAME: Final = "jobmanager.console.out"
"""Name of the file among the cluster's log files, which its REST endpoint lists."""
_CHECK_S: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


def open_console(folder: Path) -> int:
    """Create the file in `folder`, readable by its owner alone, and return its descriptor, open for appending."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(folder / NAME, flags, 0o600)


def last_lines(folder: Path, count: int, bytes_max: int = 1 << 16) -> list[str]:
    """Return the last lines of a console, at most `count` and at most of its last 64 KiB."""
    try:
        with open(folder / NAME, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - bytes_max))
            text = file.read(bytes_max).decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


class ConsoleFile:
    """The console of this process, already open, so that its folder is in use.

    `close` stops the thread that limits its size.
    """

    def __init__(self, folder: Path, size_max_bytes: int, check_s: float = _CHECK_S) -> None:
        self._file: Final = folder / NAME
        self._use: Final = FolderInUse(folder)
        self._size_max_bytes: Final = size_max_bytes
        self._check_s: Final = check_s
        self._is_closing: Final = threading.Event()
        self._thread: Final = start_thread("headrace-console", self._watch)

    def close(self) -> None:
        """Stop limiting its size."""
        self._is_closing.set()
        self._thread.join()
        self._use.close()

    def _watch(self) -> None:
        while not self._is_closing.wait(self._check_s):
            try:
                if self._file.stat().st_size > self._size_max_bytes:
                    self._cut()
            except OSError as error:
                _LOG.debug("the size of %s can no longer be limited: %s", self._file, error)

    def _cut(self) -> None:
        kept = self._file.with_name(f"{NAME}.1")
        kept.unlink(missing_ok=True)
        descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as out, open(self._file, "rb+") as console:
            shutil.copyfileobj(console, out)
            console.truncate(0)
