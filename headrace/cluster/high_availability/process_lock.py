"""ProcessLock: shows other processes of this host that this one has ended, however it has ended.

    /dev/shm/headrace-leader-<32 hex digits>      empty, of this user alone; locked as long as its process lives

The kernel gives the lock back with the process, by whatever it was killed. A file of that name that is here and that
nobody has locked says so for certain: its name is random, memory is of one host alone, and a process that was stopped
keeps its lock. Where the file is not here (another host or container, another user, no such folder) nothing is known.
"""

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path
from typing import Final

from headrace.core.clock import Clock
from headrace.core.randomness import SeededRandom

_MEMORY: Final = Path("/dev/shm")
_PREFIX: Final = "headrace-leader-"
_NAME: Final = re.compile(_PREFIX + "[0-9a-f]{32}")
_FORGOTTEN_MS: Final = 3_600_000
"""Age of files of ended processes at which nobody waits for their leases any more."""


class ProcessLock:
    """The lock of this process. `name` is empty where the host has no file system in memory."""

    def __init__(self, random: SeededRandom, clock: Clock, folder: Path = _MEMORY) -> None:
        self._folder: Final = folder
        self._descriptor: int | None = None
        self.name: str = ""
        name = _PREFIX + random.randbytes(16).hex()
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(folder / name, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.name = name
            self._remove_forgotten(clock.now_ms())

    def has_ended(self, name: str) -> bool:
        """Return whether the process whose lock has this name has ended for certain; False where nobody can tell."""
        return bool(_NAME.fullmatch(name)) and _is_free(self._folder / name)

    def remove_ended(self, name: str) -> None:
        """Remove the file of a process, where that has ended."""
        if self.has_ended(name):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def close(self) -> None:
        """Remove the file and give the lock back. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                (self._folder / self.name).unlink()
            os.close(descriptor)

    def _remove_forgotten(self, now_ms: int) -> None:
        for file in self._folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if now_ms - file.lstat().st_mtime * 1000 > _FORGOTTEN_MS:
                    self.remove_ended(file.name)


def _is_free(file: Path) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
