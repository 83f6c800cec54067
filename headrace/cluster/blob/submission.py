"""Submitting a job: its big payloads go to the blob server first, then the graph that names them to the Dispatcher.

The same road for a client in the driver and for one in another process. Source: Flink ClientUtils, RestClusterClient.
"""

from headrace.cluster.blob.options import FETCH_RETRIES, chunk_size, inline_size_max
from headrace.cluster.blob.transfer import upload
from headrace.core.blob_key import size_text
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.errors import BlobTransferError
from headrace.graph.job_graph import JobGraph
from headrace.graph.payloads import OffloadedGraph, offload


def prepare(graph: JobGraph, settings: Settings) -> OffloadedGraph:
    """Divide a job into its graph and its blobs. Takes a while for big ones: call it on the client's own thread."""
    return offload(graph, inline_size_max(settings))


async def upload_blobs(
    job: OffloadedGraph, blob_server: BlobServerGateway, settings: Settings
) -> None:
    """Put what the graph names on the server. BlobTransferError names the job."""
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
            names = ", ".join(f"'{v.name}'" for v in graph.vertices if v.payloads == key)
            raise BlobTransferError(
                f"job '{graph.name}' ({graph.job_id}) was not submitted, because the functions and collections of "
                f"{names} ({size_text(key.size_bytes)}) could not be brought to the cluster: {error}"
            ) from (error.__cause__ if isinstance(error, BlobTransferError) else error)


async def submit_job(
    job: OffloadedGraph,
    dispatcher: DispatcherGateway,
    blob_server: BlobServerGateway,
    settings: Settings,
) -> None:
    """Upload, then submit; returns once the Dispatcher has taken the job."""
    await upload_blobs(job, blob_server, settings)
    await dispatcher.submit_job(job.graph)
