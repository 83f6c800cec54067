"""ArtifactStore: a folder on a host in which the TaskManagers of one user share files of jobs, each made once.

    absent ──lease(): unused──► being made by one process, others wait ──in place──► held by its users
    held ──the last user releases it, or dies and another one checks──► absent
    held ──the last user leaves it for others──► kept ──in time──► held, else ──another one checks──► absent

An entry has a folder and a lock file; the kernel's locks (`flock`) mark its maker and its users, so that the end of
a process needs no clean-up. Names are digests of the content. The common folder is deleted with the last entry.
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
"""Layout of the time in a lock file until which an entry is kept for others, in epoch milliseconds."""
_WAIT_S: Final = 900.0
"""Shortest time limit, in seconds, of the wait for an entry that another process makes."""


class ArtifactLease:
    """Right to use an entry, or to make it first if `is_made` is False. Calls block."""

    def __init__(self, folder: Path, descriptor: int, clock: Clock) -> None:
        self.folder: Final = folder
        self._clock: Final = clock
        self._lock_file: Final = folder.with_name(folder.name + _LOCK_SUFFIX)
        self._descriptor: int | None = descriptor

    @property
    def is_made(self) -> bool:
        """True if the entry is in place."""
        return self.folder.exists()

    def make(self, fill: Callable[[Path], None]) -> None:
        """Let `fill` make the entry in an empty folder, and move it into place; others may use it from now on."""
        descriptor = self._descriptor
        assert descriptor is not None, "the lease has been given up"
        prefix = f"{_MAKING}{self.folder.name}-"
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder.parent))
        try:
            fill(scratch)
            scratch.rename(self.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        # No one else holds the entry, so no one deletes it: a process that takes the lock in between finds and uses it.
        fcntl.flock(descriptor, fcntl.LOCK_SH)

    def leave(self, kept_ms: int) -> None:
        """Release the entry, but keep it in place for users that come within `kept_ms`. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # If the disk is full, it is not kept.
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, _KEPT_UNTIL_MS.pack(self._clock.now_ms() + kept_ms), 0)
            os.close(descriptor)

    def release(self) -> None:
        """Release the entry; the last user deletes it, unless it was left for others. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _delete_unused(
                self.folder, self._lock_file, descriptor, kept_at_ms=self._clock.now_ms()
            )


class ArtifactStore:
    """Entries below `parent`, on the host's own disk, that all TaskManagers of this user on the host share.

    `making_s`: time that another process may need to make an entry, if longer than usual.
    """

    def __init__(self, parent: Path | None, clock: Clock, making_s: float = 0.0) -> None:
        name = f"headrace-artifacts-{os.getuid()}"
        self._root: Final = (parent or Path(tempfile.gettempdir())) / name
        self._clock: Final = clock
        self._wait_s: Final = max(_WAIT_S, making_s)

    def folder_of(self, name: str) -> Path:
        """Return the folder of an entry, which need not exist."""
        return self._root / name

    def lease(self, name: str) -> ArtifactLease:
        """Wait until an entry is in place, or unused so that the caller must make it.

        BlobStorageError after the time limit, or if the root folder cannot be used.
        """
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
                continue  # the last user of another entry has just removed the root with it
            # Shared to use it, if it exists; otherwise exclusive to make it.
            for mode, is_there in ((fcntl.LOCK_SH, True), (fcntl.LOCK_EX, False)):
                if _locked(descriptor, mode) and _is_file(descriptor, lock_file):
                    if folder.exists() == is_there:
                        # It is in use again: the time for which it was kept no longer matters.
                        os.ftruncate(descriptor, 0)
                        return ArtifactLease(folder, descriptor, self._clock)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            threading.Event().wait(_PAUSE_S)
        raise BlobStorageError(f"another process has not made {folder} within {self._wait_s:g} s")

    def delete_unused(self) -> None:
        """Delete entries of killed processes, and entries that are not kept any longer."""
        with contextlib.suppress(OSError):
            if not self._is_private():
                return
            for lock_file in self._root.glob(f"*{_LOCK_SUFFIX}"):
                with contextlib.suppress(OSError):
                    _delete_unused(*_opened(lock_file), kept_at_ms=self._clock.now_ms())
            self._root.rmdir()

    def delete(self, names: Iterable[str], wait_s: float = 0.0) -> bool:
        """Delete entries, also kept ones, waiting up to `wait_s` for those in use; return whether all are gone."""
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
            return True  # there is no store, or none that this user may change

    def _has_root(self) -> bool:
        """Make the root folder and return whether it still exists. BlobStorageError if it cannot be made."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BlobStorageError(
                f"{self._root} cannot be created: {error.strerror}; set another directory with 'blob.storage.directory'"
            ) from error
        try:
            is_private = self._is_private()
        except FileNotFoundError:
            return False
        if not is_private:
            raise BlobStorageError(
                f"{self._root} is not a folder that only this user may access: remove it, or set another directory "
                "with 'blob.storage.directory'"
            )
        return True

    def _is_private(self) -> bool:
        """Return whether the root is a folder, not a link, that only this user may use.

        FileNotFoundError if it is missing.
        """
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
    """Return whether the open file is still the one with that name; its last user may have deleted it."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _opened(lock_file: Path) -> tuple[Path, Path, int]:
    """Return the folder of an entry, its lock file, and the open descriptor of that. OSError if it cannot be opened."""
    descriptor = os.open(lock_file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    return lock_file.with_name(lock_file.name.removesuffix(_LOCK_SUFFIX)), lock_file, descriptor


def _kept_until_ms(descriptor: int) -> int:
    content = os.pread(descriptor, _KEPT_UNTIL_MS.size, 0)
    return _KEPT_UNTIL_MS.unpack(content)[0] if len(content) == _KEPT_UNTIL_MS.size else 0


def _delete_unused(
    folder: Path, lock_file: Path, descriptor: int, kept_at_ms: int | None = None
) -> bool:
    """Delete an entry that is neither used nor kept at `kept_at_ms`; return whether it is gone."""
    try:
        if not _is_file(descriptor, lock_file):
            return True  # the file was replaced or deleted meanwhile
        if _locked(descriptor, fcntl.LOCK_EX) and _is_file(descriptor, lock_file):
            # Checked under the lock: its last user may just have left it.
            if kept_at_ms is not None and kept_at_ms < _kept_until_ms(descriptor):
                return False
            for scratch in folder.parent.glob(f"{_MAKING}{folder.name}-*"):
                # Left by a process that was killed while it made the entry.
                shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            lock_file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                # The root stays while it has other entries.
                folder.parent.rmdir()
            return True
        return False
    finally:
        os.close(descriptor)
