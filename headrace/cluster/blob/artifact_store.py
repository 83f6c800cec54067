"""ArtifactStore: a folder of a host in which the TaskManagers of one user keep files of jobs, each made once.

    absent ──lease(): nobody has it──► being made by one process, others wait ──in place──► held by whoever uses it
    held ──the last process lets go, or dies, and another one looks──► absent
    held ──the last process leaves it for others──► kept ──in time──► held, else ──another one looks──► absent

An entry has a folder and a lock file; the kernel's locks (`flock`) say who makes it and who uses it, so that the end of
a process needs no tidying up. Names are digests of the content. The folder of all goes with the last entry.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from headrace.core.clock import Clock
from headrace.gateways.errors import BlobStorageError

_LOCK_SUFFIX: Final = ".lock"
_MAKING: Final = ".making-"
_PAUSE_S: Final = 0.05
_KEPT_UNTIL_MS: Final = struct.Struct("!q")
"""Time in a lock file at which its entry was left for others, in epoch milliseconds."""
_WAIT_S: Final = 900.0
"""Shortest limit of the wait for an entry that another process makes."""


class ArtifactLease:
    """The right to use an entry, or first the duty to make it: `is_made` says which. Blocking calls."""

    def __init__(self, folder: Path, descriptor: int, clock: Clock) -> None:
        self.folder: Final = folder
        self._clock: Final = clock
        self._lock_file: Final = folder.with_name(folder.name + _LOCK_SUFFIX)
        self._descriptor: int | None = descriptor

    @property
    def is_made(self) -> bool:
        """Whether the entry is in place."""
        return self.folder.exists()

    def make(self, fill: Callable[[Path], None]) -> None:
        """Have `fill` make the entry in an empty folder, and put it in place; others may use it from now on."""
        descriptor = self._descriptor
        assert descriptor is not None, "the lease has been given up"
        prefix = f"{_MAKING}{self.folder.name}-"
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder.parent))
        try:
            fill(scratch)
            scratch.rename(self.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        # Nobody deletes what nobody holds but us: who takes the lock in between finds the folder, and uses it.
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def leave(self, kept_ms: int) -> None:
        """Use it no longer, and leave it in place for whoever comes within `kept_ms`. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Where the disk is full, it is kept for nobody.
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, _KEPT_UNTIL_MS.pack(self._clock.now_ms() + kept_ms), 0)
            os.close(descriptor)

    def release(self) -> None:
        """Use it no longer; whoever is the last deletes it, unless somebody left it for others. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _delete_unused(
                self.folder, self._lock_file, descriptor, kept_at_ms=self._clock.now_ms()
            )


class ArtifactStore:
    """`parent` is on the host's own disk; all TaskManagers of this user there share what is in it.

    `making_s`: how long another process may need to make an entry, where that is longer than is usual.
    """

    def __init__(self, parent: Path | None, clock: Clock, making_s: float = 0.0) -> None:
        name = f"headrace-artifacts-{os.getuid()}"
        self._root: Final = (parent or Path(tempfile.gettempdir())) / name
        self._clock: Final = clock
        self._wait_s: Final = max(_WAIT_S, making_s)

    def folder_of(self, name: str) -> Path:
        """Return the folder that an entry has, or would have."""
        return self._root / name

    def lease(self, name: str) -> ArtifactLease:
        """Wait until an entry is in place, or nobody has it: then it is the caller's to make. BlobStorageError."""
        folder = self.folder_of(name)
        lock_file = folder.with_name(name + _LOCK_SUFFIX)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        deadline_ms = self._clock.monotonic_ms() + self._wait_s * 1000
        while self._clock.monotonic_ms() < deadline_ms:
            if not self._has_root():
                continue
            try:
                descriptor = os.open(lock_file, flags, 0o600)
            except FileNotFoundError:
                continue  # whoever used the last entry has just removed the root with it
            # To use it, if it is there; else to make it.
            for mode, is_there in ((fcntl.LOCK_SH, True), (fcntl.LOCK_EX, False)):
                if _locked(descriptor, mode) and _is_file(descriptor, lock_file):
                    if folder.exists() == is_there:
                        # It is in use again: whoever left it for the next one has been answered.
                        os.ftruncate(descriptor, 0)
                        return ArtifactLease(folder, descriptor, self._clock)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            threading.Event().wait(_PAUSE_S)
        raise BlobStorageError(
            f"{folder} was not made by another process within {self._wait_s:g} s"
        )

    def delete_unused(self) -> None:
        """Delete what processes have left that were killed, and what is not kept any longer."""
        with contextlib.suppress(OSError):
            if not self._is_private():
                return
            for lock_file in self._root.glob(f"*{_LOCK_SUFFIX}"):
                with contextlib.suppress(OSError):
                    _delete_unused(*_opened(lock_file), kept_at_ms=self._clock.now_ms())
            self._root.rmdir()

    def delete(self, names: Iterable[str], wait_s: float = 0.0) -> bool:
        """Delete entries, also kept ones, those in use as soon as they are not; return whether none is left."""
        deadline_ms = self._clock.monotonic_ms() + wait_s * 1000
        left = [self.folder_of(name) for name in names]
        while True:
            left = [folder for folder in left if not self._is_deleted(folder)]
            if not left or self._clock.monotonic_ms() >= deadline_ms:
                return not left
            threading.Event().wait(_PAUSE_S)

    def _is_deleted(self, folder: Path) -> bool:
        try:
            return not self._is_private() or _delete_unused(
                *_opened(folder.with_name(folder.name + _LOCK_SUFFIX))
            )
        except OSError:
            return True  # there is none, or none that this user may touch

    def _has_root(self) -> bool:
        """Make the root, and return whether it is still there. BlobStorageError."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BlobStorageError(
                f"{self._root} cannot be made: {error.strerror}; name another place with 'blob.storage.directory'"
            ) from error
        try:
            is_private = self._is_private()
        except FileNotFoundError:
            return False
        if not is_private:
            raise BlobStorageError(
                f"{self._root} is not a folder of this user's alone: remove it, or name another place with "
                "'blob.storage.directory'"
            )
        return True

    def _is_private(self) -> bool:
        """Return whether the root is a folder, no link to one, that only this user may use. FileNotFoundError."""
        found = self._root.lstat()
        is_folder = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        return is_folder and found.st_uid == os.getuid()


def _locked(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(descriptor: int, file: Path) -> bool:
    """Return whether the open file is still the one of that name: its last user may have deleted it."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _opened(lock_file: Path) -> tuple[Path, Path, int]:
    """Return the folder of an entry, its lock file, and that opened. OSError."""
    descriptor = os.open(lock_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    return lock_file.with_name(lock_file.name.removesuffix(_LOCK_SUFFIX)), lock_file, descriptor


def _kept_until_ms(descriptor: int) -> int:
    content = os.pread(descriptor, _KEPT_UNTIL_MS.size, 0)
    return _KEPT_UNTIL_MS.unpack(content)[0] if len(content) == _KEPT_UNTIL_MS.size else 0


def _delete_unused(
    folder: Path, lock_file: Path, descriptor: int, kept_at_ms: int | None = None
) -> bool:
    """Delete an entry that nobody uses, nor keeps at that time, and return whether it is not there any more."""
    try:
        if not _is_file(descriptor, lock_file):
            return True  # it is another one by now, if it is there
        if _locked(descriptor, fcntl.LOCK_EX) and _is_file(descriptor, lock_file):
            # Asked under the lock: its last user may just have left it.
            if kept_at_ms is not None and kept_at_ms < _kept_until_ms(descriptor):
                return False
            for scratch in folder.parent.glob(f"{_MAKING}{folder.name}-*"):
                # Of a process that was killed while it made the entry.
                shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            lock_file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                # It stays as long as there are other entries in it.
                folder.parent.rmdir()
            return True
        return False
    finally:
        os.close(descriptor)
