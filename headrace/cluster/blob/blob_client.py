"""Blob client: uploads the large payloads of a job before it is submitted, and downloads them to TaskManagers.

A blob is sent in chunks. An interrupted transfer resumes where it stopped, until it has failed too often. A client in
the driver and one in another process submit jobs in the same way. Runs on the event loop of an RpcService.
Source: Flink BlobClient, ClientUtils, RestClusterClient.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.cluster.blob.options import FETCH_RETRIES, chunk_size, inline_size_max
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import BlobKey, JobId
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.errors import BlobCorruptedError, BlobTransferError
from headrace.graph.job_graph import JobGraph, OffloadedGraph, blob_keys, blob_text, offload
from headrace.rpc.errors import AskTimeoutError, MailboxFullError, RpcConnectionError
from headrace.rpc.errors import RecipientUnreachableError as Unreachable

_LOG = logging.getLogger(__name__)

PAUSE_S: Final = 0.2
_PASSING: Final = (AskTimeoutError, MailboxFullError, RpcConnectionError, Unreachable)

Append = Callable[[int, bytes], Awaitable[None]]
"""Stores a chunk at an offset."""


class TransferFailures:
    """Counts the failures of one blob's transfer, and decides when to give up. Pure."""

    def __init__(self, retries: int) -> None:
        self._retries: Final = retries
        self._count = 0

    def count(self, error: HeadraceError) -> None:
        """Record a failure. BlobTransferError after too many; errors that no retry can fix are raised unchanged."""
        if not isinstance(error, (*_PASSING, BlobCorruptedError)):
            raise error
        self._count += 1
        if self._count > self._retries:
            raise BlobTransferError(
                f"{error}; the transfer was abandoned after {self._count} failures ('blob.fetch.retries')"
            ) from error


async def upload(
    server: BlobServerGateway,
    job_id: JobId,
    key: BlobKey,
    content: bytes,
    *,
    chunk_size_bytes: int,
    retries: int,
) -> None:
    """Upload a blob; bytes that the server has already are not sent again. BlobError if that fails."""
    view, offset = memoryview(content), 0
    failures = TransferFailures(retries)
    while True:
        chunk = bytes(view[offset : offset + chunk_size_bytes])
        try:
            received = await server.put_chunk(job_id, key, offset, chunk)
        except HeadraceError as error:
            failures.count(error)
            if isinstance(error, BlobCorruptedError):
                offset = 0
            await asyncio.sleep(PAUSE_S)
            continue
        if received == key.size_bytes:
            return
        if received <= offset:
            failures.count(BlobCorruptedError(str(job_id), str(key)))
        offset = received


async def download(
    server: BlobServerGateway,
    job_id: JobId,
    key: BlobKey,
    append: Append,
    *,
    chunk_size_bytes: int,
    failures: TransferFailures,
) -> None:
    """Fetch a whole blob through `append`, without verifying its content. BlobError if that fails."""
    offset = 0
    while offset < key.size_bytes:
        try:
            chunk = await server.get_chunk(job_id, key, offset, chunk_size_bytes)
        except HeadraceError as error:
            failures.count(error)
            await asyncio.sleep(PAUSE_S)
            continue
        if not chunk:
            raise BlobCorruptedError(str(job_id), str(key))
        await append(offset, chunk)
        offset += len(chunk)


async def content_of(
    server: BlobServerGateway, job_id: JobId, key: BlobKey, settings: Settings
) -> bytes:
    """Fetch a blob into memory. BlobError if that fails."""
    content = bytearray()

    async def append(_offset: int, chunk: bytes) -> None:
        content.extend(chunk)

    await download(
        server,
        job_id,
        key,
        append,
        chunk_size_bytes=chunk_size(settings),
        failures=TransferFailures(settings.get_option(FETCH_RETRIES)),
    )
    found = bytes(content)
    if BlobKey.of(found) != key:
        raise BlobCorruptedError(str(job_id), str(key))
    return found


def prepare(graph: JobGraph, settings: Settings) -> OffloadedGraph:
    """Split a job into its graph and its blobs. May be slow for large ones: call it on the client's own thread."""
    return offload(graph, inline_size_max(settings))


async def upload_blobs(
    job: OffloadedGraph, blob_server: BlobServerGateway, settings: Settings
) -> None:
    """Upload the blobs that the graph names. BlobTransferError, with the job's name, if that fails."""
    graph = job.graph
    for key, content in job.blobs.items():
        try:
            await upload(
                blob_server,
                graph.job_id,
                key,
                content,
                chunk_size_bytes=chunk_size(settings),
                retries=settings.get_option(FETCH_RETRIES),
            )
        except HeadraceError as error:
            what = blob_text(graph, key)
            raise BlobTransferError(
                f"job '{graph.name}' ({graph.job_id}) was not submitted because {what} "
                f"could not be uploaded to the cluster: {error}"
            ) from (error.__cause__ if isinstance(error, BlobTransferError) else error)


async def release_blobs(graph: JobGraph, blob_server: BlobServerGateway) -> None:
    """Delete the blobs of a job that has ended. If that fails, they are deleted with the cluster."""
    if not blob_keys(graph):
        return
    try:
        await blob_server.release_job(graph.job_id)
    except HeadraceError as error:
        _LOG.warning("the blobs of job %s could not be deleted yet: %s", graph.job_id, error)


async def submit_job(
    job: OffloadedGraph,
    dispatcher: DispatcherGateway,
    blob_server: BlobServerGateway,
    settings: Settings,
) -> None:
    """Upload the job's blobs, then submit it; return once the Dispatcher has accepted the job."""
    await upload_blobs(job, blob_server, settings)
    await dispatcher.submit_job(job.graph)
