"""ClusterHandle: lets other threads of the process use a running cluster."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.cluster.blob.blob_client import prepare, upload_blobs
from headrace.cluster.cluster import Cluster
from headrace.cluster.printed_output import OutputReceiver
from headrace.core.ids import ClusterDataSetId
from headrace.core.threads import EventLoopThread
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.messages import DataSetInfo
from headrace.gateways.resource_manager import ResourceManagerGateway
from headrace.graph.job_graph import JobGraph
from headrace.metrics.process_metrics import ProcessWatcher
from headrace.rpc.errors import EndpointFailedError
from headrace.rpc.proxies import NO_TIMEOUT_MS, with_timeout
from headrace.rpc.service import RpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 30.0


class ClusterHandle:
    """Access to a running cluster for other threads; `close` ends the cluster."""

    def __init__(
        self,
        control: EventLoopThread,
        rpc_service: RpcService,
        cluster: Cluster,
        output: OutputReceiver | None = None,
    ) -> None:
        self._control: Final = control
        self._output: Final = output
        self.output_address: Final = "" if output is None else output.address
        self.log_folder: Final = cluster.log_folder
        self._rpc_service: Final = rpc_service
        self._cluster: Final = cluster
        self._is_closed = False
        # Guards `_is_closed`: two threads may close, one of them in an exit hook.
        self._lock: Final = threading.Lock()
        self._watcher: Final = ProcessWatcher(
            rpc_service.clock, control.loop.call_soon_threadsafe
        ).start()
        self.is_shutting_down: Final = threading.Event()
        control.on_fatal_error = rpc_service.fatal_error
        self.loop: Final[asyncio.AbstractEventLoop] = control.loop
        self.leader_retrieval_address: Final = cluster.leaders.address
        self.dispatcher: Final[DispatcherGateway] = with_timeout(
            cluster.dispatcher_gateway, NO_TIMEOUT_MS
        )
        self.blob_server: Final[BlobServerGateway] = cluster.blob_server.self_gateway(
            BlobServerGateway
        )
        self.resource_manager: Final[ResourceManagerGateway] = with_timeout(
            cluster.resource_manager_gateway, NO_TIMEOUT_MS
        )

    async def start(self) -> None:
        """Start the cluster; once, on the control thread."""
        await self._cluster.start_shuffle_master()
        if self._output is not None:
            self._output.start()
        self._cluster.start()

    @property
    def failure(self) -> BaseException | None:
        """Error that ended the cluster before its owner did, or None."""
        return self._cluster.failure

    def fail(self, name: str, error: BaseException) -> None:
        """Fail the cluster, because the essential part `name` has failed with `error`. Any thread."""
        failure = EndpointFailedError(name, error)
        self.loop.call_soon_threadsafe(self._cluster.failed, failure)

    @property
    def leading_epoch(self) -> int:
        """Number of the leadership that this process has now; 0 if it has none."""
        return self._cluster.leading_epoch

    def announce(self, address: str) -> None:
        """Publish to standbys the address at which this cluster serves clients."""
        self._cluster.announce(address)

    def submit(self, graph: JobGraph, timeout_s: float | None = None) -> None:
        """Upload a job's large payloads to the blob server, then submit it. BlobError, or an error of the Dispatcher.

        `timeout_s` bounds the Dispatcher's part: the payloads are bounded by their own retries.
        """
        settings = self._rpc_service.settings
        job = prepare(graph, settings.with_values(graph.settings))
        self.call(upload_blobs(job, self.blob_server, settings))
        self.call(self.dispatcher.submit_job(job.graph), timeout_s)

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that jobs have left in the cluster. RpcError or TimeoutError if there is no answer."""
        return self.call(self.resource_manager.list_data_sets(), _ASK_TIMEOUT_S)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Let the cluster drop a data set that a job has left, or will leave.

        RpcError or TimeoutError if there is no answer.
        """
        self.call(self.resource_manager.release_cluster_partitions(data_set), _ASK_TIMEOUT_S)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a call of a gateway on the control thread and wait for its answer."""
        return self._control.run(coroutine, timeout_s)

    def leave_host(self, error: BaseException) -> None:
        """Fail all jobs with `error` and stop all workers, while the host still exists; jobs can be queried afterwards.

        From any thread but the control thread, before `close`; no effect after it.
        """
        with self._lock:
            if self._is_closed:
                return
        try:
            self._control.run(self._cluster.leave_host(error), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            _LOG.error("the workers of the cluster did not stop within %g s", _CLOSE_TIMEOUT_S)

    def close(self) -> None:
        """Cancel all jobs, stop all workers and end the thread. Idempotent; from any thread but the control thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._control.run(self._close(), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            _LOG.error("the cluster did not close within %g s", _CLOSE_TIMEOUT_S)
        finally:
            self._watcher.stop()
            self._control.stop()
            # Not earlier: the next leader starts when this one has ended completely.
            self._cluster.release_leadership()
            self._cluster.close_reporters()

    async def _close(self) -> None:
        await self._cluster.close()
        if self._output is not None:
            # Last of all: TaskManagers send printed lines while they end.
            await self._output.close()
        await self._rpc_service.stop()
