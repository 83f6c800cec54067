"""Files of stored partitions: where they lie, who keeps them, and how a failing disk is reported.

A file belongs to everybody who retained it, and is deleted when the last one lets go. Its directory belongs to the
TaskManager and goes with it; Spark's local directories vanish with the executor in any case.
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
"""Runs a job on a thread that may wait for a disk: `IoExecutor.submit`."""


class FileLayer(Protocol):
    """The calls to the operating system; the seam at which tests put full disks and bad sectors. All may block."""

    def create(self, path: Path) -> int:
        """Make a new file to write and read, for this user only; return its descriptor."""
        ...

    def write(self, descriptor: int, pieces: Sequence[Any], offset: int) -> int:
        """Write pieces at `offset`; return how many bytes of them were written."""
        ...

    def read(self, descriptor: int, targets: Sequence[memoryview], offset: int) -> int:
        """Fill `targets`, one after the other, from `offset` on; return how many bytes there were."""
        ...

    def open(self, path: Path) -> tuple[int, int]:
        """Open a file to read, no link; return its descriptor and its size."""
        ...

    def rename(self, path: Path, new_path: Path) -> None:
        """Give a file another name, at once or not at all."""
        ...

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        ...


class OsFileLayer:
    """The real one."""

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
    """One file that grows at its end. Written to by one thread at a time, read by any that retained it."""

    def __init__(
        self, path: Path, descriptor: int, size: int, layer: FileLayer, submit_to_disk: SubmitToDisk
    ) -> None:
        self.path = path
        self.size = size
        self._descriptor = descriptor
        self._layer = layer
        self._submit_to_disk = submit_to_disk
        # Guards the count: readers let go on the network thread, the task's thread and the I/O pool.
        self._lock = threading.Lock()
        self._user_count = 1

    @classmethod
    def create(cls, path: Path, layer: FileLayer, submit_to_disk: SubmitToDisk) -> "SpillFile":
        """Make a new, empty file. StorageError."""
        try:
            descriptor = layer.create(path)
        except OSError as error:
            raise StorageError(str(path), f"it cannot be made: {describe(error)}") from error
        return cls(path, descriptor, 0, layer, submit_to_disk)

    @classmethod
    def open(cls, path: Path, layer: FileLayer, submit_to_disk: SubmitToDisk) -> "SpillFile":
        """Open a file that is there, to read it. StorageError."""
        try:
            descriptor, size = layer.open(path)
        except OSError as error:
            raise StorageError(str(path), f"it cannot be opened: {describe(error)}") from error
        return cls(path, descriptor, size, layer, submit_to_disk)

    def append(self, pieces: Sequence[Any]) -> int:
        """Write pieces at the end; return the offset at which they begin. StorageError, as on a full disk."""
        start = self.size
        for first in range(0, len(pieces), PIECES_PER_WRITE_MAX):
            self._write_fully(pieces[first : first + PIECES_PER_WRITE_MAX])
        return start

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Return `length` bytes from `offset` on, in aligned memory. StorageError."""
        return self.read_parts(offset, [length])[0]

    def read_parts(self, offset: int, lengths: Sequence[int]) -> list[pa.Buffer]:
        """Return neighbouring stretches from `offset` on, each in memory of its own, by one read. StorageError."""
        buffers = [pa.allocate_buffer(length) for length in lengths]
        targets: list[Any] = [memoryview(buffer).cast("B") for buffer in buffers]
        length = sum(lengths)
        done = 0
        while done < length:
            try:
                count = self._layer.read(self._descriptor, targets, offset + done)
            except OSError as error:
                raise StorageError(
                    str(self.path), f"it cannot be read: {describe(error)}"
                ) from error
            if count == 0:
                raise CorruptFileError(
                    str(self.path), f"it ends at byte {offset + done} of {offset + length}"
                )
            done += count
            if done < length:
                targets = _after(targets, count)
        return buffers

    def rename(self, path: Path) -> None:
        """Give it another name, at once or not at all. StorageError."""
        try:
            self._layer.rename(self.path, path)
        except OSError as error:
            raise StorageError(
                str(self.path), f"it cannot be renamed: {describe(error)}"
            ) from error
        self.path = path

    def close(self) -> None:
        """Close it without deleting it; for who is its only user."""
        self._layer.close(self._descriptor)

    def retain(self) -> bool:
        """Become one more user of the file; False if it is gone."""
        with self._lock:
            if self._user_count == 0:
                return False
            self._user_count += 1
            return True

    def let_go(self) -> None:
        """One user is done; the last one has the file deleted."""
        with self._lock:
            assert self._user_count > 0, f"{self.path} was let go once too often"
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
                    str(self.path), f"it cannot be written: {describe(error)}"
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
    """Gives files names in the configured directories, in turn; one folder in each, which goes with the TaskManager.

    Its folders are this process's alone, and files are never opened by name again: no seal is needed for what is there.
    """

    seal: FileSeal | None = None
    """Seal of files that outlive their writer; None for others."""

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
        """Read the option."""
        names = [name.strip() for name in settings.get_option(TMP_DIRS).split(",")]
        parents = [Path(name) for name in names if name] or [Path(gettempdir())]
        return cls(parents, submit_to_disk, layer or OsFileLayer())

    def create_file(self, suffix: str) -> SpillFile:
        """Make a new, empty file. StorageError."""
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
    """Return what went wrong without the path, which is said already."""
    return error.strerror or str(error)


def _make_folder(parent: Path) -> Path:
    try:
        return make_scratch_folder("headrace-results-", parent)
    except OSError as error:
        raise StorageError(
            str(parent), f"no folder can be made there: {describe(error)}"
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
