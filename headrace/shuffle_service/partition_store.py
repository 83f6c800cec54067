"""PartitionStore: the files of a shuffle service: results that are being pushed, and committed ones.

    <directory>/<job>/<data set>-<number>-<vertex>-<subtask>-<attempt>.data and .index

The index gets its name last, atomically (see network.stored): a result without an index was never committed and is
deleted when the service starts. File names identify the results, so that no other record is needed. Files are sealed
with the clusters' secret and their names: a file that somebody else wrote, or moved, is rejected. A DirectoryLock keeps
other services out of the directory.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    ResultPartitionId,
)
from headrace.network.errors import NetworkError, StorageError
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.file_format import BatchCompressor, FileSeal
from headrace.network.stored.io_pool import InlineIo, IoExecutor
from headrace.network.stored.partitioned_file import INDEX_SUFFIX, PartitionedFile
from headrace.network.stored.sort_merge_partition import SortMergePartition
from headrace.network.stored.spill_files import (
    FileLayer,
    OsFileLayer,
    SpillDirectories,
    SpillFile,
    SubmitToDisk,
    describe,
)
from headrace.network.stored.stored_partition import PartitionStorage
from headrace.network.stored.stored_view import ReadMemory
from headrace.shuffle_service.errors import DirectoryInUseError
from headrace.shuffle_service.options import DIRECTORY

_LOG = logging.getLogger(__name__)

PAGE_BYTES: Final = 32 << 10
LOCK_FILE: Final = "lock"
_HOLDER_BYTES_MAX: Final = 300
_ROOT: Final = 0
_NOBODY_KNOWN: Final = 65534
"""User id that a container sees as the owner of folders outside of it."""


@dataclass(frozen=True)
class RecoveredFile:
    """A committed result found at the start of the service."""

    partition_id: ResultPartitionId
    file: PartitionedFile


class PartitionStore:
    """The result files of a shuffle service. Any thread; methods that touch files may block."""

    def __init__(
        self,
        directory: Path,
        io: IoExecutor,
        disk_bytes_max: int,
        settings: Settings,
        secret: bytes,
        layer: FileLayer | None = None,
    ) -> None:
        self._directory: Final = directory
        self._secret: Final = secret
        self._io: Final = io
        self._disk_bytes_max: Final = disk_bytes_max
        self._compressor: Final = BatchCompressor.from_settings(settings)
        self._layer: Final = layer or OsFileLayer()
        # Nobody reads from it: while a result is being pushed, only its session knows it.
        self._pushed: Final = ResultPartitionManager("a shuffle service's writers")
        # Guards the sizes: results are written and deleted on several threads.
        self._lock = threading.Lock()
        self._sizes: dict[ResultPartitionId, int] = {}

    @property
    def stored_bytes(self) -> int:
        """Return the present number of bytes in all files."""
        return sum(tuple(self._sizes.values()))

    def create_writer(
        self, partition_id: ResultPartitionId, count: int, pages: int
    ) -> SortMergePartition:
        """Create the writer of a result: it collects rows in `pages` of memory and writes them sorted by consumer.

        NetworkError if its files cannot be created.
        """
        folder = self._directory / str(partition_id.producer.job_id)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                str(folder), f"its files cannot be created: {describe(error)}"
            ) from error
        # Its own, as it was given what it has once and for all.
        memory = NetworkBufferPool(pages * PAGE_BYTES, PAGE_BYTES)
        pool = memory.create_local_pool(
            f"pushed result {partition_id}",
            required=pages,
            maximum=pages,
            segment_size=PAGE_BYTES,
            overdraft_max=0,
            wait=NeverWait(),
        )
        storage = PartitionStorage(
            # The writer is on the I/O pool already: were it to wait there for other jobs, all threads might.
            InlineIo(),
            _NamedFiles(
                folder,
                file_stem(partition_id),
                self._seal_of(partition_id),
                self._io.submit,
                self._layer,
            ),
            ReadMemory(0),
        )
        try:
            return SortMergePartition(
                partition_id, count, pool, storage, self._pushed, self._compressor
            )
        except BaseException:
            pool.destroy()
            raise

    def grown(self, partition_id: ResultPartitionId, size_bytes: int) -> bool:
        """Note the present size of a result's files; return False if the disk quota is used up."""
        with self._lock:
            self._sizes[partition_id] = size_bytes
        return self.stored_bytes <= self._disk_bytes_max

    def forgotten(self, partition_id: ResultPartitionId) -> None:
        """Subtract the deleted files of a result from the used space. Idempotent."""
        with self._lock:
            self._sizes.pop(partition_id, None)

    def forget_job(self, job_id: JobId) -> None:
        """Delete the job's folder with all remaining files."""
        shutil.rmtree(self._directory / str(job_id), ignore_errors=True)

    def recover(self) -> list[RecoveredFile]:
        """Return the committed results and delete everything else. Only for the holder of the DirectoryLock."""
        found = [each for folder in self._job_folders() for each in self._recover_job(folder)]
        for each in found:
            self.grown(each.partition_id, each.file.data.size)
        return found

    def _seal_of(self, partition_id: ResultPartitionId) -> FileSeal:
        name = f"{partition_id.producer.job_id}/{file_stem(partition_id)}"
        return FileSeal(self._secret, name)

    def _job_folders(self) -> Iterator[tuple[JobId, Path]]:
        for folder in sorted(self._directory.iterdir()):
            if folder.is_symlink():
                continue  # Whatever lies there is none of ours to read or delete.
            try:
                yield JobId.from_hex(folder.name), folder
            except ValueError:
                continue  # Not ours.

    def _recover_job(self, found: tuple[JobId, Path]) -> Iterator[RecoveredFile]:
        job_id, folder = found
        committed: set[Path] = set()
        for index in sorted(folder.glob(f"*{INDEX_SUFFIX}")):
            data = index.with_suffix(".data")
            try:
                partition_id = parse_stem(job_id, index.stem)
                seal = self._seal_of(partition_id)
                file = PartitionedFile.open(data, index, self._layer, self._io.submit, seal)
            except (ValueError, NetworkError) as error:
                _LOG.warning("%s is not a valid result and is deleted: %s", index, error)
                continue
            committed |= {index, data}
            yield RecoveredFile(partition_id, file)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path not in committed:
                path.unlink(missing_ok=True)
        if not committed:
            shutil.rmtree(folder, ignore_errors=True)


def file_stem(partition_id: ResultPartitionId) -> str:
    """Return the name of a result's files in the folder of its job, without suffix."""
    vertex = partition_id.producer.execution_vertex_id
    return (
        f"{partition_id.data_set_id}-{partition_id.partition_number}-{vertex.vertex_id}-"
        f"{vertex.subtask_index}-{partition_id.producer.attempt_number}"
    )


def parse_stem(job_id: JobId, stem: str) -> ResultPartitionId:
    """Return the partition id of a file stem: the inverse of `file_stem`. ValueError if the stem is not valid."""
    data_set, number, vertex, subtask, attempt = stem.split("-")
    vertex_id = ExecutionVertexId(JobVertexId.from_hex(vertex), int(subtask))
    producer = ExecutionAttemptId(job_id, vertex_id, int(attempt))
    return ResultPartitionId(IntermediateDataSetId.from_hex(data_set), int(number), producer)


class _NamedFiles(SpillDirectories):
    """Gives the files of one result the names that identify it."""

    def __init__(
        self,
        folder: Path,
        stem: str,
        seal: FileSeal,
        submit_to_disk: SubmitToDisk,
        layer: FileLayer,
    ) -> None:
        super().__init__((folder,), submit_to_disk, layer)
        self.seal = seal
        self._folder: Final = folder
        self._stem: Final = stem
        self._file_layer: Final = layer
        self._delete_later: Final = submit_to_disk

    def create_file(self, suffix: str) -> SpillFile:
        path = self._folder / f"{self._stem}{suffix}"
        return SpillFile.create(path, self._file_layer, self._delete_later)


class DirectoryLock:
    """Lock on a directory for one shuffle service, so that no other service deletes the files that it writes.

    Held from `take` until `release`. The operating system releases it when the process ends, also after kill -9.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, directory: Path) -> "DirectoryLock":
        """Create the directory if it is missing, and lock it.

        DirectoryInUseError if another service holds it; ConfigurationError if it cannot be written, or if other users
        could put files there or exchange the directory.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_open(directory)
            path = directory / LOCK_FILE
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            reason = f"the shuffle service cannot write to this directory: {describe(error)}"
            raise ConfigurationError(DIRECTORY.key, str(directory), reason) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, _HOLDER_BYTES_MAX, 0).decode(errors="replace")
            os.close(descriptor)
            raise DirectoryInUseError(str(directory), holder) from error
        except OSError as error:
            os.close(descriptor)
            reason = f"the directory cannot be locked: {describe(error)}"
            raise ConfigurationError(DIRECTORY.key, str(directory), reason) from error
        # Where the disk is full nobody learns who holds it; held it is all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock. Idempotent. The file stays, as another service may be waiting for it already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _refuse_open(directory: Path) -> None:
    """Raise ConfigurationError if other users may write there: the files are read and sent to clusters."""
    place = directory.resolve()
    for folder in (place, *place.parents):
        found = folder.stat()
        reason = ""
        if folder == place and found.st_uid != os.geteuid():
            reason = f"the directory belongs to another user ({found.st_uid}): use one of your own"
        elif folder == place and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = "users other than the owner may write there: chmod 700"
        elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            reason = "everybody may rename its files: chmod o-w, or use another directory"
        elif found.st_uid not in (os.geteuid(), _ROOT, _NOBODY_KNOWN):
            reason = f"another user ({found.st_uid}) may rename its files: use a directory below your own"
        if reason:
            where = "" if folder == place else f"in {folder} above it: "
            raise ConfigurationError(DIRECTORY.key, str(directory), f"{where}{reason}")
