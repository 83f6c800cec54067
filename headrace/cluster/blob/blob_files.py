"""BlobFiles: blobs as files of one directory of their own, complete or on their way. Blocking; no bookkeeping.

    <directory>/<job id>/<hash>            complete: moved there in one step, after its content was compared
    <directory>/<job id>/<hash>.partial    grows by chunks

Source: Flink BlobUtils.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from headrace.core.blob_key import BlobKey, size_text
from headrace.core.ids import JobId
from headrace.gateways.errors import BlobCorruptedError, BlobNotFoundError, BlobStorageError

_READ_SIZE: Final = 1 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class BlobFiles:
    """Makes its directory below `parent` with the first blob. Different blobs may be used by different threads."""

    def __init__(self, parent: Path | None) -> None:
        self._parent: Final = parent
        self._directory: Path | None = None

    @property
    def directory(self) -> Path | None:
        """Where the files are; None while there were none."""
        return self._directory

    def path(self, job_id: JobId, key: BlobKey) -> Path:
        """Where the complete blob is, or will be."""
        return self._job_directory(job_id) / key.digest.hex()

    def append(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> None:
        """Write a chunk at `offset` of the incomplete file. BlobStorageError where there is no room."""
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
        """Compare the incomplete file with its key and make it the blob. BlobCorruptedError, and it is gone."""
        partial = self._partial(job_id, key)
        try:
            if not _matches(partial, key):
                partial.unlink()
                raise BlobCorruptedError(str(job_id), str(key))
            partial.replace(self.path(job_id, key))
        except OSError as error:
            raise _storage_error(job_id, key, partial, error) from error

    def read(self, job_id: JobId, key: BlobKey, offset: int, size_bytes_max: int) -> bytes:
        """Return bytes of a complete blob. BlobNotFoundError."""
        path = self.path(job_id, key)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(size_bytes_max)
        except FileNotFoundError as error:
            raise BlobNotFoundError(
                str(job_id), str(key), f"its file {path} was removed by somebody else"
            ) from error
        except OSError as error:
            raise _storage_error(job_id, key, path, error) from error

    def open(self, job_id: JobId, key: BlobKey) -> memoryview | None:
        """Map a complete blob into memory, or None where its file is gone.

        The pages are the file system's: tasks of one host share them, and nothing is copied until it is read. The view
        stays valid when the file is deleted.
        """
        try:
            with self.path(job_id, key).open("rb") as file:
                if key.size_bytes == 0:
                    return memoryview(b"")
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return None

    def delete_job(self, job_id: JobId) -> None:
        """Remove everything of a job."""
        if self._directory is not None:
            shutil.rmtree(self._job_directory(job_id), ignore_errors=True)

    def close(self) -> None:
        """Remove the directory. Idempotent."""
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def make_directory(self) -> None:
        """Make the directory unless it is there; one thread at a time. BlobStorageError."""
        if self._directory is None:
            try:
                made = tempfile.mkdtemp(prefix="headrace-blobs-", dir=self._parent)
            except OSError as error:
                raise BlobStorageError(
                    f"no directory for blobs can be made below {self._parent or tempfile.gettempdir()}: "
                    f"{error.strerror}; name another one with 'blob.storage.directory'"
                ) from error
            self._directory = Path(made)

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
    """A full disk keeps nothing of what did not fit."""
    where = f"blob {key} of job {job_id} cannot be kept in {path.parent.parent}"
    if error.errno not in _FULL:
        return BlobStorageError(f"{where}: {error.strerror or error}")
    with contextlib.suppress(OSError):
        path.unlink()
    free = _free_text(path)
    return BlobStorageError(
        f"{where}: the disk is full ({free}); make room there, or name another directory with "
        "'blob.storage.directory'"
    )


def _free_text(path: Path) -> str:
    try:
        return f"{size_text(shutil.disk_usage(path.parent).free)} free"
    except OSError:
        return "nothing free"
