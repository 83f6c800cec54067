"""PayloadLoader: brings tasks what their descriptors only name, once per TaskManager, while they wait in DEPLOYING.

A task is built and acknowledged before: its partitions are there for consumers, and however long the blob takes, only
its own retries bound it. Source: Flink TaskDeploymentDescriptor.loadBigData.
"""

from typing import Final

from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.task_executor.job_connections import JobConnections
from headrace.cluster.task_executor.task_table import TaskEntry, TaskTable
from headrace.core.decode_errors import DECODE_ERRORS
from headrace.core.errors import HeadraceError
from headrace.core.ids import BlobKey, JobId, size_text
from headrace.gateways.errors import BlobTransferError
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import VertexPayloads
from headrace.rpc.endpoint import RpcEndpoint


class PayloadLoader:
    """One per TaskExecutor, on its main thread."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        tasks: TaskTable,
        jobs: JobConnections,
        cache: BlobCache,
    ) -> None:
        self._endpoint: Final = endpoint
        self._tasks: Final = tasks
        self._jobs: Final = jobs
        self.cache: Final = cache

    def retain_job(self, job_id: JobId) -> None:
        """The job has a slot here."""
        self.cache.retain_job(job_id)

    def release_job(self, job_id: JobId) -> None:
        """Nothing of the job is left here."""
        self.cache.release_job(job_id)

    async def close(self) -> None:
        """The TaskManager ends."""
        await self.cache.close()

    def load(self, entry: TaskEntry, descriptor: TaskDeploymentDescriptor) -> None:
        """Bring the task its payloads, unless it has them. What goes wrong is the task's failure."""
        key = descriptor.vertex.payloads
        if key is not None:
            self._endpoint.spawn(
                self._load(entry, descriptor, key), f"payloads of {entry.attempt_id}"
            )

    async def _load(
        self, entry: TaskEntry, descriptor: TaskDeploymentDescriptor, key: BlobKey
    ) -> None:
        job_id = entry.attempt_id.job_id
        connection = self._jobs.find(job_id)
        address = "" if connection is None else connection.blob_server_address
        try:
            view = await self.cache.open(job_id, key, address)
            payloads = VertexPayloads.decode(view)
        except (HeadraceError, OSError, *DECODE_ERRORS) as error:
            what = (
                f"job '{descriptor.job_name}' ({job_id}): the functions and collections of "
                f"'{descriptor.vertex.name}' ({size_text(key.size_bytes)}) could not be fetched from {address}"
            )
            self._tasks.fail_task(entry, BlobTransferError(f"{what}: {error}"))
            return
        entry.task.deliver_payloads(payloads)
