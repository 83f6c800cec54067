"""BlobServerGateway: big payloads of jobs, in chunks that are small enough to be messages. Not fenced.

A blob is named by its content and belongs to a job, so that repeating or resuming a call cannot change what is there.
"""

from typing import Protocol

from headrace.core.ids import BlobKey, JobId
from headrace.gateways.messages import Acknowledge


class BlobServerGateway(Protocol):
    """The endpoint that keeps the blobs of all jobs, in the JobManager's process."""

    async def put_chunk(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> int:
        """Take the bytes from `offset` on; answers how many bytes are there, which is where to go on.

        A chunk elsewhere than at the end of what is there changes nothing. With the last byte the content is
        compared with the key: BlobCorruptedError, and the upload begins anew. BlobStorageError where there is no room.
        """
        ...

    async def get_chunk(
        self, job_id: JobId, key: BlobKey, offset: int, size_bytes_max: int
    ) -> bytes:
        """Return bytes from `offset` on, as many as fit; none at the end. BlobNotFoundError."""
        ...

    async def retain_job(
        self, job_id: JobId, keys: tuple[BlobKey, ...], stored_epoch: int = 0
    ) -> Acknowledge:
        """A job begins: its blobs stay until `release_job`. BlobNotFoundError where one was not uploaded.

        `stored_epoch`: of the leader that has stored the job, or is about to.
        """
        ...

    async def release_job(self, job_id: JobId) -> Acknowledge:
        """The job is over: its blobs are deleted. Idempotent."""
        ...
