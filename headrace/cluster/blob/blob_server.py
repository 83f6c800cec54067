"""BlobServer: keeps the large payloads of all jobs in files, from their upload to the end of their job.

Chunks are sent over the existing RPC connections of the cluster's processes, with their authentication and
encryption (docs/adr/0008). Files are written and read by threads, concurrently with the main thread.
Source: Flink BlobServer.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.blob.blob_files import BlobFiles, BlobLedger
from headrace.cluster.blob.options import (
    CLEANUP_INTERVAL,
    FETCH_NUM_CONCURRENT,
    STORAGE_SIZE_MAX,
    chunk_size,
    storage_parent,
)
from headrace.cluster.high_availability.job_graph_store import JobGraphStore
from headrace.core.ids import BlobKey, JobId
from headrace.core.threads import BlockingRunner
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.errors import BlobCorruptedError, BlobNotFoundError, BlobStorageError
from headrace.gateways.messages import Acknowledge
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import EndpointFailedError
from headrace.rpc.service import RpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class BlobServer(RpcEndpoint, BlobServerGateway):
    """Blob server of a cluster. Its directory is made below `scratch` unless `blob.storage.directory` is set.

    `job_graph_store` keeps copies of the blobs of jobs for later leaders, and those of earlier ones.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        run_blocking: BlockingRunner,
        scratch: Path | None = None,
        job_graph_store: JobGraphStore | None = None,
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("blobserver"))
        self._job_graph_store: Final = job_graph_store
        self._run_blocking: Final = run_blocking
        self._files: Final = BlobFiles(storage_parent(self.settings, scratch))
        self._ledger: Final = BlobLedger(int(self.settings.get_option(STORAGE_SIZE_MAX)))
        self._chunk_size: Final = chunk_size(self.settings)
        self._cleanup_ms: Final = self.settings.duration_ms(CLEANUP_INTERVAL)
        # Bounds threads and chunks in memory: further calls wait for a turn.
        self._turns: Final = asyncio.Semaphore(
            max(1, self.settings.get_option(FETCH_NUM_CONCURRENT))
        )
        # A client that repeats a chunk while the first copy is still being written must not write concurrently.
        self._uploads: dict[tuple[JobId, BlobKey], asyncio.Lock] = {}

    @property
    def directory(self) -> Path | None:
        """Directory of the files, or None while there are none."""
        return self._files.directory

    def on_fatal_error(self, error: BaseException) -> None:
        """Fail the cluster: no task could be deployed without its payloads."""
        self.rpc_service.fatal_error(EndpointFailedError(self.address, error))

    async def on_start(self) -> None:
        """Start to look for unused blobs periodically."""
        self.schedule_run_async(self._cleanup_ms, self._sweep)

    async def on_stop(self) -> None:
        """Delete all files."""
        if self._files.directory is not None:
            await self._run_blocking("remove blobs", self._files.close)

    async def put_chunk(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> int:
        self._ledger.expect(job_id, key, self.clock.monotonic_ms())
        self._files.make_directory()
        upload = self._uploads.setdefault((job_id, key), asyncio.Lock())
        async with upload:
            received = self._expected(job_id, key)
            if self._ledger.is_complete(job_id, key) or offset != received:
                return received
            try:
                await self._append(job_id, key, offset, chunk)
            except (BlobCorruptedError, BlobStorageError):
                self._ledger.forget(job_id, key)
                self._uploads.pop((job_id, key), None)
                raise
            received = self._expected(job_id, key)
        if received == key.size_bytes:
            self._uploads.pop((job_id, key), None)
        return received

    async def _append(self, job_id: JobId, key: BlobKey, offset: int, chunk: bytes) -> None:
        received = offset + len(chunk)
        if received > key.size_bytes:
            raise BlobCorruptedError(str(job_id), str(key))
        await self._run("append", lambda: self._files.append(job_id, key, offset, chunk))
        self._expected(job_id, key)
        self._ledger.arrived(job_id, key, received)
        if received == key.size_bytes:
            await self._run("compare", lambda: self._files.complete(job_id, key))
            self._expected(job_id, key)
            self._ledger.completed(job_id, key)

    def _expected(self, job_id: JobId, key: BlobKey) -> int:
        """Return the number of received bytes. BlobNotFoundError if the job was released meanwhile."""
        received = self._ledger.received(job_id, key)
        if received is None:
            raise BlobNotFoundError(str(job_id), str(key), "the job was released meanwhile")
        return received

    async def get_chunk(
        self, job_id: JobId, key: BlobKey, offset: int, size_bytes_max: int
    ) -> bytes:
        if not self._ledger.is_complete(job_id, key):
            raise BlobNotFoundError(
                str(job_id), str(key), "the job is over, or the blob was never uploaded"
            )
        size_bytes = max(0, min(size_bytes_max, self._chunk_size))
        return await self._run(
            "read", lambda: self._files.read(job_id, key, max(0, offset), size_bytes)
        )

    async def retain_job(
        self, job_id: JobId, keys: tuple[BlobKey, ...], stored_epoch: int = 0
    ) -> Acknowledge:
        if self._job_graph_store is not None:
            for key in keys:
                await self._share(self._job_graph_store, job_id, key, stored_epoch)
        self._ledger.retain(job_id, keys, self.clock.monotonic_ms())
        return Acknowledge()

    async def _share(
        self, store: JobGraphStore, job_id: JobId, key: BlobKey, stored_epoch: int
    ) -> None:
        """Copy a blob to the store of later leaders, or fetch it from an earlier one's if it is missing here."""
        if self._ledger.is_complete(job_id, key):
            parts = functools.partial(self._files.parts, job_id, key)
            await self._run("store", lambda: store.put_blob(job_id, stored_epoch, key, parts()))
            return
        self._ledger.expect(job_id, key, self.clock.monotonic_ms())
        self._files.make_directory()
        try:
            await self._run(
                "recover",
                lambda: self._files.write(job_id, key, store.blob(job_id, stored_epoch, key)),
            )
        except CheckpointStorageError as error:
            self._ledger.forget(job_id, key)
            raise BlobNotFoundError(str(job_id), str(key), str(error)) from error
        except (BlobCorruptedError, BlobStorageError):
            self._ledger.forget(job_id, key)
            raise
        self._expected(job_id, key)
        self._ledger.arrived(job_id, key, key.size_bytes)
        self._ledger.completed(job_id, key)

    async def release_job(self, job_id: JobId) -> Acknowledge:
        if self._forget(job_id):
            await self._delete(job_id)
        return Acknowledge()

    def _forget(self, job_id: JobId) -> bool:
        for upload in [upload for upload in self._uploads if upload[0] == job_id]:
            del self._uploads[upload]
        return self._ledger.release(job_id)

    async def _delete(self, job_id: JobId) -> None:
        await self._run("delete", lambda: self._files.delete_job(job_id))

    def _sweep(self) -> None:
        for job_id in self._ledger.expired(self.clock.monotonic_ms(), self._cleanup_ms):
            _LOG.info("deleting the blobs of job %s, which was never submitted", job_id)
            self._forget(job_id)
            self.spawn(self._delete(job_id), f"delete blobs of {job_id}")
        self.schedule_run_async(self._cleanup_ms, self._sweep)

    async def _run(self, what: str, body: Callable[[], T]) -> T:
        async with self._turns:
            return await self._run_blocking(f"blobs: {what}", body)
