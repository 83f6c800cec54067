"""ProcessLock: shows other processes of this host that this one has ended, for whatever reason.

    /dev/shm/headrace-leader-<kernel>-<32 hex digits>    empty, of this user alone; locked as long as its process lives

The kernel releases the lock when the process ends for any reason. An existing file of that name that
is not locked proves the end: its name is random and contains the start of the kernel that keeps the lock, and a
stopped process keeps its own lock. If the file is missing (another host or container, another user, no such
folder) nothing is known. A child that was forked, and runs no other program, keeps the lock of its parent.
"""

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path
from typing import Final

from headrace.core.clock import Clock
from headrace.core.process.process_start import kernel_word
from headrace.core.randomness import SeededRandom

_MEMORY: Final = Path("/dev/shm")
_PREFIX: Final = "headrace-leader-"
_FORGOTTEN_MS: Final = 3_600_000
"""Time in ms after the last `touch` of a lock file at which no process waits for its lease any more."""


class ProcessLock:
    """Lock of this process. `name` is empty if the host has no in-memory file system.

    Its owner must call `touch` periodically, and `close` at the end.
    """

    def __init__(self, random: SeededRandom, clock: Clock, folder: Path = _MEMORY) -> None:
        self._folder: Final = folder
        self._clock: Final = clock
        self._prefix: Final = f"{_PREFIX}{kernel_word()}-"
        self._name: Final = re.compile(re.escape(self._prefix) + "[0-9a-f]{32}")
        self._descriptor: int | None = None
        self.name: str = ""
        name = self._prefix + random.randbytes(16).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(folder / name, flags, 0o600)
        except OSError:
            return
        self.name = name
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            self.name = ""
            return
        self.touch()
        self._remove_forgotten()

    def touch(self) -> None:
        """Show that the process lives; lock files without a touch for an hour may be removed."""
        if self._descriptor is not None:
            now_s = self._clock.now_ms() / 1000
            with contextlib.suppress(OSError):
                os.utime(self._descriptor, (now_s, now_s))

    def has_ended(self, name: str) -> bool:
        """Return whether the process with this lock name has certainly ended; False if unknown."""
        return bool(self._name.fullmatch(name)) and _is_free(self._folder / name)

    def remove_ended(self, name: str) -> None:
        """Remove the lock file of a process that has ended."""
        if self.has_ended(name):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def close(self) -> None:
        """Remove the file and release the lock. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(descriptor)

    def _remove_forgotten(self) -> None:
        now_ms = self._clock.now_ms()
        for file in self._folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if now_ms - file.lstat().st_mtime * 1000 > _FORGOTTEN_MS:
                    self.remove_ended(file.name)


def _is_free(file: Path) -> bool:
    try:
        # Must not block: the file may belong to another user, and be of any kind.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(file, flags)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)
