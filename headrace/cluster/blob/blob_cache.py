"""BlobCache: keeps the blobs of a TaskManager's jobs; each is fetched once, however many tasks need it.

    absent ──first request──► being fetched ──content verified, moved into place──► present
    present ──the job has left, and not returned within the interval──► absent

Source: Flink PermanentBlobCache.
"""

import asyncio
from pathlib import Path
from typing import Final

from headrace.cluster.blob.blob_client import PAUSE_S, TransferFailures, download
from headrace.cluster.blob.blob_files import BlobFiles
from headrace.cluster.blob.options import (
    CLEANUP_INTERVAL,
    FETCH_RETRIES,
    chunk_size,
    storage_parent,
)
from headrace.core.ids import BlobKey, JobId
from headrace.core.threads import BlockingRunner
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import BlobCorruptedError, BlobTransferError
from headrace.rpc.endpoint import RpcEndpoint


class BlobCache:
    """Blobs for the tasks of `endpoint`; used on its main thread."""

    def __init__(
        self, endpoint: RpcEndpoint, run_blocking: BlockingRunner, scratch: Path | None = None
    ) -> None:
        settings = endpoint.settings
        self._endpoint: Final = endpoint
        self._run_blocking: Final = run_blocking
        self._files: Final = BlobFiles(storage_parent(settings, scratch))
        self._chunk_size: Final = chunk_size(settings)
        self._retries: Final = settings.get_option(FETCH_RETRIES)
        self._cleanup_ms: Final = settings.duration_ms(CLEANUP_INTERVAL)
        # Blobs that are present or being fetched: all tasks await the same future.
        self._blobs: dict[tuple[JobId, BlobKey], asyncio.Future[None]] = {}
        # Counts the arrivals and departures of each job: a deletion planned before the last one is void.
        self._versions: dict[JobId, int] = {}

    @property
    def directory(self) -> Path | None:
        """Directory of the files, or None while there are none."""
        return self._files.directory

    def retain_job(self, job_id: JobId) -> None:
        """Keep the blobs of a job that now runs here."""
        self._versions[job_id] = self._versions.get(job_id, 0) + 1

    def release_job(self, job_id: JobId) -> None:
        """Delete the blobs of a job that no longer runs here after a while, unless it comes back."""
        if not any(job == job_id for job, _ in self._blobs):
            self._versions.pop(job_id, None)
            return
        version = self._versions[job_id] = self._versions.get(job_id, 0) + 1

        def delete() -> None:
            if self._versions.get(job_id) == version:
                del self._versions[job_id]
                for blob in [blob for blob in self._blobs if blob[0] == job_id]:
                    del self._blobs[blob]
                self._endpoint.spawn(self._delete(job_id), f"delete blobs of {job_id}")

        self._endpoint.schedule_run_async(self._cleanup_ms, delete)

    async def open(self, job_id: JobId, key: BlobKey, server_address: str) -> memoryview:
        """Return a blob's content, mapped from its file. BlobError if it cannot be fetched."""
        for _ in range(2):
            await self._here(job_id, key, server_address)
            view = await self._run_blocking("blobs: open", lambda: self._files.open(job_id, key))
            if view is not None:
                return view
            # Another program cleaned up the temporary directory: fetch the blob again, once.
            self._blobs.pop((job_id, key), None)
        raise BlobTransferError(
            f"its file was removed from {self._files.directory} right after it was written; set a directory that "
            "is not cleaned up by other programs with 'blob.storage.directory'"
        )

    async def close(self) -> None:
        """Remove all files."""
        if self._files.directory is not None:
            await self._run_blocking("remove blobs", self._files.close)

    async def _here(self, job_id: JobId, key: BlobKey, server_address: str) -> None:
        blob = self._blobs.get((job_id, key))
        if blob is None:
            self._files.make_directory()
            blob = self._blobs[job_id, key] = self._endpoint.spawn_shared(
                lambda: self._fetch_once(job_id, key, server_address), f"fetch blob {key}"
            )
        await asyncio.shield(blob)

    async def _fetch_once(self, job_id: JobId, key: BlobKey, server_address: str) -> None:
        try:
            await self._fetch(job_id, key, server_address)
        except BaseException:
            # The next attempt of the task fetches again.
            self._blobs.pop((job_id, key), None)
            raise

    async def _fetch(self, job_id: JobId, key: BlobKey, server_address: str) -> None:
        server = self._endpoint.rpc_service.gateway(server_address, BlobServerGateway)
        failures = TransferFailures(self._retries)

        async def append(offset: int, chunk: bytes) -> None:
            await self._run_blocking(
                "blobs: append", lambda: self._files.append(job_id, key, offset, chunk)
            )

        while True:
            try:
                await download(
                    server,
                    job_id,
                    key,
                    append,
                    chunk_size_bytes=self._chunk_size,
                    failures=failures,
                )
                await self._run_blocking(
                    "blobs: compare", lambda: self._files.complete(job_id, key)
                )
                return
            except BlobCorruptedError as error:
                failures.count(error)
                await asyncio.sleep(PAUSE_S)

    async def _delete(self, job_id: JobId) -> None:
        await self._run_blocking("blobs: delete", lambda: self._files.delete_job(job_id))
