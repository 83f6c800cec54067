"""BlobServerGateway: large payloads of jobs, in chunks that are small enough for messages. Not fenced.

A blob is named by its content and belongs to a job, so that repeating or resuming a call cannot change a stored blob.
"""

from typing import Protocol

from headrace.core.ids import BlobKey, JobId
from headrace.gateways.messages import Acknowledge


class BlobServerGateway(Protocol):
    """The endpoint that keeps the blobs of all jobs, in the JobManager's process."""

    async def put_chunk(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> int:
        """Store the bytes from `offset` on; return the number of stored bytes, which is the next offset.

        A chunk that does not begin at the end of the stored bytes changes nothing. With the last byte the content is
        compared with the key: on BlobCorruptedError the upload begins anew. BlobStorageError if there is no space.
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
        """Keep a beginning job's blobs until `release_job`. BlobNotFoundError if one was not uploaded.

        `stored_epoch`: epoch of the leader that has stored the job, or is about to.
        """
        ...

    async def release_job(self, job_id: JobId) -> Acknowledge:
        """Delete the blobs of a job that has ended. Idempotent."""
        ...
