"""DirectoryLock: one shuffle service at a time in a directory, so that none deletes what another one is writing.

The system lets go of the lock when the process ends, however it ends: nothing is left to tidy up after a kill -9.
"""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from headrace.core.errors import ConfigurationError
from headrace.network.spill_files import describe
from headrace.shuffle_service.errors import DirectoryInUseError
from headrace.shuffle_service.options import DIRECTORY

LOCK_FILE: Final = "lock"
_HOLDER_BYTES_MAX: Final = 300


class DirectoryLock:
    """Held from `take` until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, directory: Path) -> "DirectoryLock":
        """Make the directory where there is none, and hold it. DirectoryInUseError; ConfigurationError."""
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = directory / LOCK_FILE
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
