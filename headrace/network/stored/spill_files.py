"""Files of stored partitions: their directories, reference counts and disk errors.

A file belongs to all users that retained it, and is deleted when the last one releases it. Its directory belongs to the
TaskManager and is deleted with it; Spark's local directories are deleted with the executor in any case.
Source: Flink FileChannelManagerImpl, PartitionedFile.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final, Protocol

import pyarrow as pa

from headrace.core.config import ConfigOption, Settings
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.network.errors import CorruptFileError, StorageError
from headrace.network.stored.file_format import FileSeal, pieces_bytes

TMP_DIRS: Final = ConfigOption(
    "io.tmp.dirs", str, "",
    "Directories, separated by commas, for blocking and hybrid results; the worker's temporary directory if empty. "
    "Results are spread over them in turn.",
)  # fmt: skip
PIECES_PER_WRITE_MAX: Final = 512

SubmitToDisk = Callable[[Callable[[], None]], None]
"""Runs a job on a thread that may wait for a disk, for example `IoExecutor.submit`."""


class FileLayer(Protocol):
    """Calls to the operating system; tests replace it to simulate full disks and bad sectors. All calls may block."""

    def create(self, path: Path) -> int:
        """Make a new file for reading and writing by this user only; return its descriptor."""
        ...

    def write(self, descriptor: int, pieces: Sequence[Any], offset: int) -> int:
        """Write pieces at `offset`; return the number of bytes written."""
        ...

    def read(self, descriptor: int, targets: Sequence[memoryview], offset: int) -> int:
        """Fill `targets` in order from `offset` on; return the number of bytes read."""
        ...

    def open(self, path: Path) -> tuple[int, int]:
        """Open a file, but no link, for reading; return its descriptor and its size."""
        ...

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename a file atomically."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        ...


class OsFileLayer:
    """FileLayer that calls the operating system."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, pieces: Sequence[Any], offset: int) -> int:
        return os.pwritev(descriptor, pieces, offset)

    def read(self, descriptor: int, targets: Sequence[memoryview], offset: int) -> int:
        return os.preadv(descriptor, targets, offset)

    def open(self, path: Path) -> tuple[int, int]:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return descriptor, os.fstat(descriptor).st_size

    def rename(self, path: Path, new_path: Path) -> None:
        path.rename(new_path)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


class SpillFile:
    """One file that grows at its end. One thread at a time writes; any thread that retained it reads."""

    def __init__(
        self, path: Path, descriptor: int, size: int, layer: FileLayer, submit_to_disk: SubmitToDisk
    ) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._layer = layer
        self._submit_to_disk = submit_to_disk
        # Guards the count: readers release it on the network thread, the task's thread and the I/O pool.
        self._lock = threading.Lock()
        self._user_count = 1

    @classmethod
    def create(cls, path: Path, layer: FileLayer, submit_to_disk: SubmitToDisk) -> "SpillFile":
        """Make a new, empty file. StorageError if that fails."""
        try:
            descriptor = layer.create(path)
        except OSError as error:
            raise StorageError(
                str(path), f"the file cannot be created: {describe(error)}"
            ) from error
        return cls(path, descriptor, 0, layer, submit_to_disk)

    @classmethod
    def open(cls, path: Path, layer: FileLayer, submit_to_disk: SubmitToDisk) -> "SpillFile":
        """Open an existing file for reading. StorageError if that fails."""
        try:
            descriptor, size = layer.open(path)
        except OSError as error:
            raise StorageError(
                str(path), f"the file cannot be opened: {describe(error)}"
            ) from error
        return cls(path, descriptor, size, layer, submit_to_disk)

    def append(self, pieces: Sequence[Any]) -> int:
        """Write pieces at the end; return their offset. StorageError, for example on a full disk."""
        start = self.size
        for first in range(0, len(pieces), PIECES_PER_WRITE_MAX):
            self._write_fully(pieces[first : first + PIECES_PER_WRITE_MAX])
        return start

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Return `length` bytes from `offset` on, in aligned memory. StorageError if they cannot be read."""
        return self.read_parts(offset, [length])[0]

    def read_parts(self, offset: int, lengths: Sequence[int]) -> list[pa.Buffer]:
        """Return adjacent ranges from `offset` on, each in memory of its own, by one read.

        StorageError if that fails.
        """
        buffers = [pa.allocate_buffer(length) for length in lengths]
        targets: list[Any] = [memoryview(buffer).cast("B") for buffer in buffers]
        length = sum(lengths)
        done = 0
        while done < length:
            try:
                count = self._layer.read(self._descriptor, targets, offset + done)
            except OSError as error:
                raise StorageError(
                    str(self.path), f"the file cannot be read: {describe(error)}"
                ) from error
            if count == 0:
                raise CorruptFileError(
                    str(self.path),
                    f"the file ends at byte {offset + done}, but {offset + length} bytes were expected",
                )
            done += count
            if done < length:
                targets = _after(targets, count)
        return buffers

    def rename(self, path: Path) -> None:
        """Rename the file atomically. StorageError if that fails."""
        try:
            self._layer.rename(self.path, path)
        except OSError as error:
            raise StorageError(
                str(self.path), f"the file cannot be renamed: {describe(error)}"
            ) from error
        self.path = path

    def close(self) -> None:
        """Close the file without deleting it; for its only user."""
        self._layer.close(self._descriptor)

    def retain(self) -> bool:
        """Add one user of the file; return False if it is already deleted."""
        with self._lock:
            if self._user_count == 0:
                return False
            self._user_count += 1
            return True

    def let_go(self) -> None:
        """Remove one user; the last one has the file deleted."""
        with self._lock:
            assert self._user_count > 0, f"{self.path} was released once too often"
            self._user_count -= 1
            is_last = self._user_count == 0
        if is_last:
            self._submit_to_disk(self._delete)

    def _write_fully(self, pieces: Sequence[Any]) -> None:
        left = list(pieces)
        total = pieces_bytes(left)
        while total:
            try:
                written = self._layer.write(self._descriptor, left, self.size)
            except OSError as error:
                raise StorageError(
                    str(self.path), f"the file cannot be written: {describe(error)}"
                ) from error
            self.size += written
            total -= written
            if total:
                left = _after(left, written)

    def _delete(self) -> None:
        self._layer.close(self._descriptor)
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


class SpillDirectories:
    """Assigns file names in the configured directories in turn; uses one folder in each, deleted with the TaskManager.

    The folders belong to this process alone, and files are never opened by name again, so that they need no seal.
    """

    seal: FileSeal | None = None
    """Seal for files that outlive their writer; None for others."""

    def __init__(
        self, parents: Sequence[Path], submit_to_disk: SubmitToDisk, layer: FileLayer
    ) -> None:
        self._parents = tuple(parents)
        self._submit_to_disk = submit_to_disk
        self._layer = layer
        # Guards the fields below: tasks are deployed on threads of their own.
        self._lock = threading.Lock()
        self._folders: list[Path] = []
        self._count = 0

    @classmethod
    def from_settings(
        cls, settings: Settings, submit_to_disk: SubmitToDisk, layer: FileLayer | None = None
    ) -> "SpillDirectories":
        """Make the directories from the option."""
        names = [name.strip() for name in settings.get_option(TMP_DIRS).split(",")]
        parents = [Path(name) for name in names if name] or [Path(gettempdir())]
        return cls(parents, submit_to_disk, layer or OsFileLayer())

    def create_file(self, suffix: str) -> SpillFile:
        """Make a new, empty file. StorageError if that fails."""
        with self._lock:
            if not self._folders:
                self._folders = [_make_folder(parent) for parent in self._parents]
            self._count += 1
            folder = self._folders[self._count % len(self._folders)]
            path = folder / f"result-{self._count}{suffix}"
        return SpillFile.create(path, self._layer, self._submit_to_disk)

    def files(self) -> list[Path]:
        """Return the files that exist now, sorted."""
        return sorted(file for folder in self._folders for file in folder.iterdir())

    def close(self) -> None:
        """Remove the folders with everything in them. Idempotent."""
        with self._lock:
            folders, self._folders = self._folders, []
        for folder in folders:
            remove_scratch_folder(folder)


def describe(error: OSError) -> str:
    """Return the reason of an error without the path, which the message names already."""
    return error.strerror or str(error)


def _make_folder(parent: Path) -> Path:
    try:
        return make_scratch_folder("headrace-results-", parent)
    except OSError as error:
        raise StorageError(
            str(parent), f"no folder can be created there: {describe(error)}"
        ) from error


def _after(pieces: Sequence[Any], done: int) -> list[Any]:
    """Return the rest of `pieces` after the first `done` bytes."""
    left: list[Any] = []
    for piece in pieces:
        view = memoryview(piece).cast("B")
        if done >= len(view):
            done -= len(view)
        else:
            left.append(view[done:])
            done = 0
    return left
