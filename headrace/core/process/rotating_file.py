"""RotatingFile: a file of limited size to which threads append; a full file is renamed and a new one begun.

It takes the place of logging's RotatingFileHandler because printed output is not a log record, and because a full disk
must neither fail nor block a thread that prints: the problem and its end are logged once each.
"""

import contextlib
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)

_FLAGS: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
)


class RotatingFile:
    """Appends to `path`; full files are kept as `path`.1 (the newest) to `path`.`kept_count`. Any thread; never raises.

    Each write is passed to the system at once, so it survives any end of the process. A forked process appends too, and
    leaves rotation to its parent.
    """

    def __init__(self, path: Path, size_max_bytes: int, kept_count: int) -> None:
        self.path: Final = path
        self._size_max_bytes: Final = size_max_bytes
        self._kept_count: Final = kept_count
        self._pid: Final = os.getpid()
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._lost_bytes = 0
        self._is_in_trouble = self._is_closed = False
        # Prints and log records come from any thread, and the size belongs to the file.
        self._lock: Final = threading.Lock()
        self.write(b"")

    def write(self, content: bytes) -> None:
        """Append `content` in one piece; content that a full or broken disk does not accept is dropped."""
        if os.getpid() != self._pid:
            self._write_as_child(content)
            return
        with self._lock:
            if self._is_closed:
                return
            trouble = self._append(content)
            is_news, self._is_in_trouble = self._is_in_trouble != bool(trouble), bool(trouble)
        # Outside of the lock: the warning may itself come to be written here.
        if is_news and trouble:
            _LOG.warning(
                "%s cannot be written (%s): lines are dropped until it can", self.path, trouble
            )
        elif is_news:
            _LOG.warning("%s can be written again", self.path)

    def close(self) -> None:
        """Close the file; later writes have no effect. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._close_descriptor()

    def _append(self, content: bytes) -> str:
        """Append; return the reason if not everything was written, else an empty string."""
        try:
            descriptor = self._descriptor_for(len(content))
            if self._lost_bytes:
                note = f"\n[{self._lost_bytes} bytes are missing here: they could not be written]\n"
                self._write_whole(descriptor, note.encode())
                self._lost_bytes = 0
            self._write_whole(descriptor, content)
        except OSError as error:
            self._lost_bytes += len(content)
            return error.strerror or str(error)
        return ""

    def _descriptor_for(self, length: int) -> int:
        if self._descriptor is None:
            self._descriptor = self._open()
        if self._size_bytes and self._size_bytes + length > self._size_max_bytes:
            self._close_descriptor()
            self._put_aside()
            self._descriptor = self._open()
        return self._descriptor

    def _open(self) -> int:
        descriptor = os.open(self.path, _FLAGS, 0o600)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(0, "it is not a regular file")
        self._size_bytes = found.st_size
        return descriptor

    def _put_aside(self) -> None:
        for number in range(self._kept_count, 0, -1):
            source = self.path if number == 1 else self._kept(number - 1)
            with contextlib.suppress(FileNotFoundError):
                source.replace(self._kept(number))
        if not self._kept_count:
            self.path.unlink(missing_ok=True)

    def _kept(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _write_whole(self, descriptor: int, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            written = os.write(descriptor, rest)
            self._size_bytes += written
            rest = rest[written:]

    def _write_as_child(self, content: bytes) -> None:
        # The lock may have been held by a thread that does not exist after the fork.
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, content)

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
