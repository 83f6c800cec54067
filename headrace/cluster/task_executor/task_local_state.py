"""TaskLocalState: copies on local disk of the files that a process wrote to the checkpoint storage, for recovery.

A copy is found by the digest in the handle, and checked against it: if it is missing or damaged, the file is read from
the storage. The least recently used copies are deleted if all together are too large.
Source: Flink TaskLocalStateStoreImpl, with digests in place of its own directories for each checkpoint.
"""

import contextlib
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import msgspec

from headrace.checkpoint.errors import CheckpointCorruptedError, CheckpointStorageError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.ids import ExecutionAttemptId, JobId

_LOG: Final = logging.getLogger(__name__)


class TaskLocalState:
    """Local copies in `directory`, at most `size_max` bytes of them. Any thread."""

    def __init__(self, directory: Path, size_max: int) -> None:
        self._directory: Final = directory
        self._size_max: Final = size_max
        # Guards the table: parts of several tasks are written at once.
        self._lock: Final = threading.Lock()
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._writers: dict[bytes, ExecutionAttemptId] = {}

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all copies."""
        return sum(self._sizes.values())

    def attempts_of(self, job_id: JobId) -> tuple[ExecutionAttemptId, ...]:
        """Return the newest attempt of each subtask of a job that has local copies of state."""
        with self._lock:
            attempts = sorted(one for one in self._writers.values() if one.job_id == job_id)
        return tuple({one.execution_vertex_id: one for one in attempts}.values())

    def keep(
        self, file: StateFile, writer: ExecutionAttemptId, save: Callable[[Path], object]
    ) -> None:
        """Keep a copy, which `save` writes; if the disk is full, the copy is omitted."""
        if not file.uri or file.size_bytes > self._size_max:
            return
        path = self._path(file.digest)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            save(path)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            return
        with self._lock:
            self._sizes[file.digest] = file.size_bytes
            self._sizes.move_to_end(file.digest)
            self._writers[file.digest] = writer
            while self.size_bytes > self._size_max:
                oldest, _ = self._sizes.popitem(last=False)
                del self._writers[oldest]
                self._path(oldest).unlink(missing_ok=True)

    def find(self, file: StateFile) -> Path | None:
        """Return the path of a file's local copy, or None."""
        with self._lock:
            if file.digest not in self._sizes:
                return None
            self._sizes.move_to_end(file.digest)
        return self._path(file.digest)

    def drop(self, file: StateFile) -> None:
        """Delete a copy that is damaged."""
        with self._lock:
            self._sizes.pop(file.digest, None)
            self._writers.pop(file.digest, None)
        self._path(file.digest).unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        return self._directory / digest.hex()


class CopyingWriter:
    """A SnapshotWriter that keeps a copy of each file of a task."""

    def __init__(
        self, writer: SnapshotWriter, copies: TaskLocalState, task: ExecutionAttemptId
    ) -> None:
        self._writer: Final = writer
        self._copies: Final = copies
        self._task: Final = task

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        file = self._writer.write(name, content, is_shared=is_shared)
        self._copies.keep(file, self._task, lambda path: path.write_bytes(content))
        return file

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        """Store a file and keep a local copy of it: a hard link if both are on one file system."""
        file = self._writer.write_file(name, path, is_shared=is_shared)
        self._copies.keep(file, self._task, lambda target: _link_or_copy(path, target))
        return file


class CopiesFirstReader:
    """A SnapshotReader that looks for a copy before it asks the storage, and logs where it found the first file."""

    def __init__(
        self, reader: SnapshotReader, copies: TaskLocalState, task: ExecutionAttemptId
    ) -> None:
        self._reader: Final = reader
        self._copies: Final = copies
        self._task: Final = task
        self.found_count = 0
        self._missed_count = 0

    def read(self, file: StateFile) -> memoryview:
        copy = self._copy_of(file)
        if copy is not None:
            with self._dropping_unfit(file):
                content = self._reader.read(copy)
                self._found()
                return content
        self._missed()
        return self._reader.read(file)

    def fetch(self, file: StateFile, path: str) -> None:
        copy = self._copy_of(file)
        if copy is not None:
            with self._dropping_unfit(file):
                self._reader.fetch(copy, path)
                self._found()
                return
        self._missed()
        self._reader.fetch(file, path)

    def _found(self) -> None:
        self.found_count += 1
        if self.found_count == 1:
            _LOG.info("task %s restores state from copies of this TaskManager", self._task)

    def _missed(self) -> None:
        self._missed_count += 1
        if self._missed_count == 1:
            _LOG.info("task %s restores state without copies of this TaskManager", self._task)

    def _copy_of(self, file: StateFile) -> StateFile | None:
        path = self._copies.find(file)
        return None if path is None else msgspec.structs.replace(file, uri=str(path))

    @contextlib.contextmanager
    def _dropping_unfit(self, file: StateFile) -> Generator[None]:
        """Drop the local copy of a file if reading it fails, because a copy's digest is checked like the file's."""
        try:
            yield
        except (CheckpointCorruptedError, CheckpointStorageError):
            self._copies.drop(file)


def _link_or_copy(source: str, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
