"""DirectoryLock: one shuffle service at a time in a directory, so that none deletes what another one is writing.

The system lets go of the lock when the process ends, however it ends: nothing is left to tidy up after a kill -9.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from headrace.core.errors import ConfigurationError
from headrace.network.spill_files import describe
from headrace.shuffle_service.errors import DirectoryInUseError
from headrace.shuffle_service.options import DIRECTORY

LOCK_FILE: Final = "lock"
_HOLDER_BYTES_MAX: Final = 300
_ROOT: Final = 0
_NOBODY_KNOWN: Final = 65534
"""Whom a container sees as the owner of folders outside of it."""


class DirectoryLock:
    """Held from `take` until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, directory: Path) -> "DirectoryLock":
        """Make the directory where there is none, and hold it.

        DirectoryInUseError; ConfigurationError, also where others could put files there, or exchange the directory.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_open(directory)
            path = directory / LOCK_FILE
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            reason = f"a shuffle service cannot write there: {describe(error)}"
            raise ConfigurationError(DIRECTORY.key, str(directory), reason) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, _HOLDER_BYTES_MAX, 0).decode(errors="replace")
            os.close(descriptor)
            raise DirectoryInUseError(str(directory), holder) from error
        except OSError as error:
            os.close(descriptor)
            reason = f"it cannot be locked: {describe(error)}"
            raise ConfigurationError(DIRECTORY.key, str(directory), reason) from error
        # Where the disk is full nobody learns who holds it; held it is all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let the next one in. Idempotent. The file stays: another service may be waiting at its door already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _refuse_open(directory: Path) -> None:
    """Raise ConfigurationError where somebody else may write: what lies there is read, and sent to clusters."""
    place = directory.resolve()
    for folder in (place, *place.parents):
        found = folder.stat()
        reason = ""
        if folder == place and found.st_uid != os.geteuid():
            reason = f"it belongs to another user ({found.st_uid}): name one of your own"
        elif folder == place and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = "others than its owner may write there: chmod 700"
        elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            reason = "everybody may rename what lies there: chmod o-w, or name another directory"
        elif found.st_uid not in (os.geteuid(), _ROOT, _NOBODY_KNOWN):
            reason = f"another user ({found.st_uid}) may rename what lies there: name a directory below your own"
        if reason:
            where = "" if folder == place else f"of {folder} above it, "
            raise ConfigurationError(DIRECTORY.key, str(directory), f"{where}{reason}")
