"""BlobFiles: writes, reads and deletes blobs as files of one directory. Blocking; no bookkeeping.

    <directory>/<job id>/<hash>            complete: moved there in one step, after its content was verified
    <directory>/<job id>/<hash>.partial    grows by chunks

BlobLedger is the server's bookkeeping: its blobs, the received bytes of each, and their expiry. Pure.

    put ──► incomplete ──last byte, content verified──► complete ──► released with its job

The blobs of a job that was never submitted are deleted after a while without use. Source: Flink BlobUtils.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.core.ids import BlobKey, JobId, size_text
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.gateways.errors import BlobCorruptedError, BlobNotFoundError, BlobStorageError

_READ_SIZE: Final = 1 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class BlobFiles:
    """Blob files in a directory below `parent`, made with the first blob. Different threads may use different blobs."""

    def __init__(self, parent: Path | None) -> None:
        self._parent: Final = parent
        self._directory: Path | None = None

    @property
    def directory(self) -> Path | None:
        """Directory of the files, or None while there are none."""
        return self._directory

    def path(self, job_id: JobId, key: BlobKey) -> Path:
        """Return the path of the complete blob, whether it exists yet or not."""
        return self._job_directory(job_id) / key.digest.hex()

    def append(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> None:
        """Write a chunk at `offset` of the incomplete file. BlobStorageError if the disk is full or fails."""
        partial = self._partial(job_id, key)
        try:
            partial.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if offset == 0 else 0)
            descriptor = os.open(partial, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.seek(offset)
                file.write(chunk)
        except OSError as error:
            raise _storage_error(job_id, key, partial, error) from error

    def complete(self, job_id: JobId, key: BlobKey) -> None:
        """Verify the incomplete file and turn it into the blob.

        BlobCorruptedError, after deleting it, if it does not match its key.
        """
        partial = self._partial(job_id, key)
        try:
            if not _matches(partial, key):
                partial.unlink()
                raise BlobCorruptedError(str(job_id), str(key))
            partial.replace(self.path(job_id, key))
        except OSError as error:
            raise _storage_error(job_id, key, partial, error) from error

    def read(self, job_id: JobId, key: BlobKey, offset: int, size_bytes_max: int) -> bytes:
        """Return bytes of a complete blob. BlobNotFoundError if its file is gone."""
        path = self.path(job_id, key)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(size_bytes_max)
        except FileNotFoundError as error:
            raise BlobNotFoundError(
                str(job_id), str(key), f"its file {path} was removed by another process"
            ) from error
        except OSError as error:
            raise _storage_error(job_id, key, path, error) from error

    def parts(self, job_id: JobId, key: BlobKey) -> Iterator[bytes]:
        """Yield a complete blob in pieces. BlobNotFoundError if its file is gone."""
        for offset in range(0, key.size_bytes, _READ_SIZE):
            yield self.read(job_id, key, offset, _READ_SIZE)

    def write(self, job_id: JobId, key: BlobKey, parts: Iterable[bytes]) -> None:
        """Write a whole blob and verify it.

        BlobCorruptedError if it does not match its key; BlobStorageError if the disk fails.
        """
        offset = 0
        for part in parts:
            self.append(job_id, key, offset, part)
            offset += len(part)
        self.complete(job_id, key)

    def open(self, job_id: JobId, key: BlobKey) -> memoryview | None:
        """Map a complete blob into memory; return None if its file is gone.

        The pages belong to the file system: tasks of one host share them, and nothing is copied until it is read. The
        view stays valid when the file is deleted.
        """
        try:
            with self.path(job_id, key).open("rb") as file:
                if key.size_bytes == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None

    def delete_job(self, job_id: JobId) -> None:
        """Delete all blobs of a job."""
        if self._directory is not None:
            shutil.rmtree(self._job_directory(job_id), ignore_errors=True)

    def close(self) -> None:
        """Delete the directory. Idempotent."""
        directory, self._directory = self._directory, None
        if directory is not None:
            remove_scratch_folder(directory)

    def make_directory(self) -> None:
        """Make the directory unless it exists; one thread at a time. BlobStorageError if that fails."""
        if self._directory is None:
            try:
                self._directory = make_scratch_folder("headrace-blobs-", self._parent)
            except OSError as error:
                raise BlobStorageError(
                    f"no directory for blobs can be created below {self._parent or tempfile.gettempdir()}: "
                    f"{error.strerror}; set another one with 'blob.storage.directory'"
                ) from error

    def _job_directory(self, job_id: JobId) -> Path:
        assert self._directory is not None, "make_directory() comes first"
        return self._directory / job_id.hex()

    def _partial(self, job_id: JobId, key: BlobKey) -> Path:
        return self.path(job_id, key).with_suffix(".partial")


def _matches(path: Path, key: BlobKey) -> bool:
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_SIZE):
            hashed.update(piece)
        return file.tell() == key.size_bytes and hashed.digest() == key.digest


def _storage_error(job_id: JobId, key: BlobKey, path: Path, error: OSError) -> BlobStorageError:
    """Return the error for a failed write; after a full disk, delete the partial file."""
    where = f"blob {key} of job {job_id} cannot be stored in {path.parent.parent}"
    if error.errno not in _FULL:
        return BlobStorageError(f"{where}: {error.strerror or error}")
    with contextlib.suppress(OSError):
        path.unlink()
    free = _free_text(path)
    return BlobStorageError(
        f"{where}: the disk is full ({free}); make room there, or set another directory with "
        "'blob.storage.directory'"
    )


def _free_text(path: Path) -> str:
    try:
        return f"{size_text(shutil.disk_usage(path.parent).free)} free"
    except OSError:
        return "nothing free"


@dataclass
class _JobBlobs:
    last_used_ms: float
    is_retained: bool = False
    # Received bytes; a key is in `complete` only after its content was verified.
    received: dict[BlobKey, int] = field(default_factory=dict[BlobKey, int])
    complete: set[BlobKey] = field(default_factory=set[BlobKey])


class BlobLedger:
    """Blobs by job and key. `size_bytes_max` bounds their total size once complete."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max: Final = size_bytes_max
        self._size_bytes = 0
        self._jobs: dict[JobId, _JobBlobs] = {}

    @property
    def size_bytes(self) -> int:
        """Reserved bytes: the full size of every blob, whether it has arrived or not."""
        return self._size_bytes

    def expect(self, job_id: JobId, key: BlobKey, monotonic_ms: float) -> int:
        """Reserve room for a blob unless it is known, and return the number of bytes received.

        BlobStorageError if it exceeds the bound.
        """
        job = self._jobs.get(job_id)
        if job is None or key not in job.received:
            if self._size_bytes + key.size_bytes > self._size_bytes_max:
                raise BlobStorageError(
                    f"blob {key} of job {job_id} does not fit: {size_text(self._size_bytes)} of "
                    f"{size_text(self._size_bytes_max)} are in use; raise 'headrace.blob.storage-size-max', or read "
                    "large data from files instead of embedding it in the program"
                )
            job = self._jobs.setdefault(job_id, _JobBlobs(monotonic_ms))
            job.received[key] = 0
            self._size_bytes += key.size_bytes
        job.last_used_ms = monotonic_ms
        return job.received[key]

    def received(self, job_id: JobId, key: BlobKey) -> int | None:
        """Return the number of received bytes of a blob; None if it is not expected, or not any more."""
        job = self._jobs.get(job_id)
        return None if job is None else job.received.get(key)

    def is_complete(self, job_id: JobId, key: BlobKey) -> bool:
        """Return whether the blob can be read."""
        job = self._jobs.get(job_id)
        return job is not None and key in job.complete

    def arrived(self, job_id: JobId, key: BlobKey, received: int) -> None:
        """Record the number of received bytes of an expected blob."""
        assert received <= key.size_bytes
        self._jobs[job_id].received[key] = received

    def completed(self, job_id: JobId, key: BlobKey) -> None:
        """Record that the blob's content was verified."""
        assert self._jobs[job_id].received[key] == key.size_bytes
        self._jobs[job_id].complete.add(key)

    def forget(self, job_id: JobId, key: BlobKey) -> None:
        """Remove a blob that is gone or never arrived."""
        job = self._jobs.get(job_id)
        if job is not None and job.received.pop(key, None) is not None:
            job.complete.discard(key)
            self._size_bytes -= key.size_bytes
            if not job.received and not job.is_retained:
                del self._jobs[job_id]

    def retain(self, job_id: JobId, keys: tuple[BlobKey, ...], monotonic_ms: float) -> None:
        """Keep the blobs of a job that starts. BlobNotFoundError, without any change, for the first incomplete blob."""
        for key in keys:
            if not self.is_complete(job_id, key):
                raise BlobNotFoundError(
                    str(job_id), str(key), "the client has not uploaded it; submit the job again"
                )
        if keys:
            job = self._jobs[job_id]
            job.is_retained, job.last_used_ms = True, monotonic_ms

    def release(self, job_id: JobId) -> bool:
        """Forget the blobs of a job that has ended; return whether there is anything to delete."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return False
        self._size_bytes -= sum(key.size_bytes for key in job.received)
        return True

    def expired(self, monotonic_ms: float, idle_ms: float) -> list[JobId]:
        """Return jobs that never started and whose blobs were not used for `idle_ms`."""
        return [
            job_id
            for job_id, job in self._jobs.items()
            if not job.is_retained and monotonic_ms - job.last_used_ms >= idle_ms
        ]
