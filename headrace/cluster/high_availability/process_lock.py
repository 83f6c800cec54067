"""ProcessLock: shows other processes of this host that this one has ended, however it has ended.

    /dev/shm/headrace-leader-<kernel>-<32 hex digits>    empty, of this user alone; locked as long as its process lives

The kernel gives the lock back with the process, by whatever it was killed. A file of that name that is here and that
nobody has locked says so for certain: its name is random, it names the start of the kernel that keeps the lock, and a
process that was stopped keeps its own. Where the file is not here (another host or container, another user, no such
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
"""Time after its process touched a file last at which nobody waits for the lease any more."""


class ProcessLock:
    """The lock of this process. `name` is empty where the host has no file system in memory.

    Whoever has it calls `touch` now and then, and `close`.
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
        """Show that its process lives: files that nobody has touched for an hour may be removed."""
        if self._descriptor is not None:
            now_s = self._clock.now_ms() / 1000
            with contextlib.suppress(OSError):
                os.utime(self._descriptor, (now_s, now_s))

    def has_ended(self, name: str) -> bool:
        """Return whether the process whose lock has this name has ended for certain; False where nobody can tell."""
        return bool(self._name.fullmatch(name)) and _is_free(self._folder / name)

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

    def _remove_forgotten(self) -> None:
        now_ms = self._clock.now_ms()
        for file in self._folder.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if now_ms - file.lstat().st_mtime * 1000 > _FORGOTTEN_MS:
                    self.remove_ended(file.name)


def _is_free(file: Path) -> bool:
    try:
        # Not to be blocked: it may be another user's, and anything.
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
