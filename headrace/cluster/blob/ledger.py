"""BlobLedger: which blobs the server has, how much of each, and until when. Pure.

put ──► incomplete ──last byte, content compared──► complete ──► released with its job
A job that was never submitted loses its blobs when nobody has asked for them for a while.
"""

from dataclasses import dataclass, field
from typing import Final

from headrace.core.blob_key import BlobKey, size_text
from headrace.core.ids import JobId
from headrace.gateways.errors import BlobNotFoundError, BlobStorageError


@dataclass
class _JobBlobs:
    last_used_ms: float
    is_retained: bool = False
    # Bytes that are there; a key is in `complete` only after its content was compared.
    received: dict[BlobKey, int] = field(default_factory=dict[BlobKey, int])
    complete: set[BlobKey] = field(default_factory=set[BlobKey])


class BlobLedger:
    """Blobs by job and key. `size_bytes_max` bounds what all of them may be together, once complete."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max: Final = size_bytes_max
        self._size_bytes = 0
        self._jobs: dict[JobId, _JobBlobs] = {}

    @property
    def size_bytes(self) -> int:
        """Room that is taken: whole blobs, whatever of them has arrived."""
        return self._size_bytes

    def expect(self, job_id: JobId, key: BlobKey, monotonic_ms: float) -> int:
        """Make room for a blob unless it is known, and answer how much of it is there.

        BlobStorageError beyond the bound.
        """
        job = self._jobs.get(job_id)
        if job is None or key not in job.received:
            if self._size_bytes + key.size_bytes > self._size_bytes_max:
                raise BlobStorageError(
                    f"blob {key} of job {job_id} does not fit: {size_text(self._size_bytes)} of "
                    f"{size_text(self._size_bytes_max)} are taken; raise 'headrace.blob.storage-size-max', or read "
                    "big data from files instead of carrying it in the program"
                )
            job = self._jobs.setdefault(job_id, _JobBlobs(monotonic_ms))
            job.received[key] = 0
            self._size_bytes += key.size_bytes
        job.last_used_ms = monotonic_ms
        return job.received[key]

    def received(self, job_id: JobId, key: BlobKey) -> int | None:
        """How much of an expected blob is there; None where it is not expected (any more)."""
        job = self._jobs.get(job_id)
        return None if job is None else job.received.get(key)

    def is_complete(self, job_id: JobId, key: BlobKey) -> bool:
        """Whether the blob can be read."""
        job = self._jobs.get(job_id)
        return job is not None and key in job.complete

    def arrived(self, job_id: JobId, key: BlobKey, received: int) -> None:
        """So much of an expected blob is there now."""
        assert received <= key.size_bytes
        self._jobs[job_id].received[key] = received

    def completed(self, job_id: JobId, key: BlobKey) -> None:
        """Its content is what its key says."""
        assert self._jobs[job_id].received[key] == key.size_bytes
        self._jobs[job_id].complete.add(key)

    def forget(self, job_id: JobId, key: BlobKey) -> None:
        """The blob is not there any more, or never was."""
        job = self._jobs.get(job_id)
        if job is not None and job.received.pop(key, None) is not None:
            job.complete.discard(key)
            self._size_bytes -= key.size_bytes
            if not job.received and not job.is_retained:
                del self._jobs[job_id]

    def retain(self, job_id: JobId, keys: tuple[BlobKey, ...], monotonic_ms: float) -> None:
        """The job begins. BlobNotFoundError names the first of `keys` that is not complete; then nothing changes."""
        for key in keys:
            if not self.is_complete(job_id, key):
                raise BlobNotFoundError(
                    str(job_id), str(key), "the client has not uploaded it; submit the job again"
                )
        if keys:
            job = self._jobs[job_id]
            job.is_retained, job.last_used_ms = True, monotonic_ms

    def release(self, job_id: JobId) -> bool:
        """The job is over; whether there is anything to delete."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return False
        self._size_bytes -= sum(key.size_bytes for key in job.received)
        return True

    def expired(self, monotonic_ms: float, idle_ms: float) -> list[JobId]:
        """Jobs that never began and whose blobs nobody has touched for `idle_ms`."""
        return [
            job_id
            for job_id, job in self._jobs.items()
            if not job.is_retained and monotonic_ms - job.last_used_ms >= idle_ms
        ]
