"""MiniCluster: Dispatcher, ResourceManager and TaskManagers in one process, for tests of the runtime and of programs.

One control thread serves all endpoints; every TaskManager has a data plane and task threads of its own.
Source: Flink MiniCluster.
"""

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headrace.cluster.cluster import Cluster
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.entrypoint import DRIVER_NAME
from headrace.cluster.host_services import HostServices
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorFactories
from headrace.cluster.resource_manager.driver import WorkerListener, remedy_where_alike
from headrace.cluster.resource_manager.options import FIXED_POOL_SIZE
from headrace.cluster.resource_manager.workers import worker_names
from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS, TaskManagerConfiguration
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.cluster.task_executor.task_manager_runner import LocalTaskManager
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.core.ids import JobId, ResourceId
from headrace.core.process.log_files import (
    JOB_MANAGER,
    named_log_folder,
    private_folder,
    task_manager_file_name,
)
from headrace.core.process.logger_tap import HEADRACE_TAP
from headrace.core.process.process_log import ProcessLog
from headrace.core.process.rotating_file import RotatingFile
from headrace.core.randomness import system_random
from headrace.core.resource_profile import ResourceProfile
from headrace.core.security.cluster_secret import cluster_secret
from headrace.core.threads import EventLoopThread, Thread, start_thread
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.ended_job import OnJobEnded
from headrace.graph.job_graph import JobGraph
from headrace.metrics.reporters.reporter_setup import create_metric_registry
from headrace.rpc.loopback import LoopbackNetwork
from headrace.rpc.service import RpcService

_LOG = logging.getLogger(__name__)

_IN_ONE_PROCESS: Final = (
    "This TaskManager runs in the JobManager's process and has no log of its own: Headrace's messages are in "
    f"{JOB_MANAGER}.log ('headrace logs', /jobmanager/log), and the printed and logged lines of functions go to the "
    "output of that process.\n"
).encode()
"""Content of a TaskManager's log files."""


class MiniCluster:
    """Cluster in this process, as a context manager: `submit` a JobGraph, then call `dispatcher` on `loop`.

    TaskManagers start on demand, at most `task_manager_count` of them, each with `slots_per_task_manager` slots; with
    `is_fixed` all of them start at once and stay.
    """

    def __init__(
        self,
        *,
        task_manager_count: int = 1,
        slots_per_task_manager: int = 1,
        settings: Mapping[str, str] | None = None,
        coordinator_factories: CoordinatorFactories | None = None,
        is_fixed: bool = False,
        scratch: Path | None = None,
        on_job_ended: OnJobEnded | None = None,
    ) -> None:
        """Set up the cluster, without starting it.

        `scratch`: a folder in which each TaskManager has one of its own; without it they keep no local state.
        `on_job_ended` is called with each job that has ended, on the control thread.
        """
        self._on_job_ended: Final = on_job_ended
        own = {NUMBER_OF_TASK_SLOTS.key: str(slots_per_task_manager)}
        if is_fixed:
            own[FIXED_POOL_SIZE.key] = str(task_manager_count)
        self.slot_count: Final = task_manager_count * slots_per_task_manager
        self._settings: Final = Settings({**own, **(settings or {})})
        self._driver: Final = _InProcessDriver(self._settings, task_manager_count, scratch)
        self._coordinator_factories: Final = coordinator_factories or {}
        self._handle: ClusterHandle | None = None
        self._log: ProcessLog | None = None

    def __enter__(self) -> "MiniCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, log_folder: Path | None = None) -> None:
        """Start the control plane. This process writes its log to `log_folder`, or else below `env.log.dir`, if set.

        ConfigurationError if no folder can be made there.
        """
        folder = log_folder or named_log_folder(self._settings, SystemClock().now_ms())
        if folder is not None:
            self._log = ProcessLog(private_folder(folder), JOB_MANAGER, self._settings)
            HEADRACE_TAP.add(self._log.handler, self._log.level)
            _LOG.info("the log file of the cluster is in %s", folder)
        control = EventLoopThread("headrace-minicluster")
        try:
            self._handle = control.run(self._start(control, folder))
        except BaseException:
            control.stop()
            self._close_log()
            raise

    def close(self) -> None:
        """Cancel all jobs and end everything. Idempotent."""
        handle, self._handle = self._handle, None
        try:
            if handle is not None:
                handle.close()
        finally:
            self._close_log()

    def _close_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            HEADRACE_TAP.remove(log.handler)
            log.close()

    @property
    def handle(self) -> ClusterHandle:
        """Running cluster, with its `dispatcher` and the `loop` to call it on."""
        assert self._handle is not None, "the cluster is not running"
        return self._handle

    def submit(self, graph: JobGraph) -> ClusterHandle:
        """Submit a job, wait until it is accepted, and return the cluster's handle."""
        self.handle.submit(graph)
        return self.handle

    def await_result(self, job_id: JobId, timeout_s: float = 60.0) -> JobResult:
        """Wait for the end of a job. TimeoutError after `timeout_s`."""
        return self.handle.call(self.handle.dispatcher.request_job_result(job_id), timeout_s)

    async def _start(self, control: EventLoopThread, log_folder: Path | None) -> ClusterHandle:
        clock, random = SystemClock(), system_random()
        network = LoopbackNetwork(clock, random, loop=control.loop, settings=self._settings)
        rpc_service = network.create_service("minicluster")
        cluster = Cluster(
            rpc_service,
            self._driver,
            self._coordinator_factories,
            worker_name=worker_names("mini"),
            on_shut_down=lambda: handle.is_shutting_down.set(),
            secret=self._driver.secret,
            host_services=HostServices(log_folder=log_folder, on_job_ended=self._on_job_ended),
            registry=create_metric_registry(self._settings, clock, DRIVER_NAME),
            host="localhost",
        )
        self._driver.open(rpc_service, cluster)
        handle = ClusterHandle(control, rpc_service, cluster)
        await handle.start()
        return handle


class _InProcessDriver:
    """Starts TaskManagers as endpoints of the cluster's own RpcService. Implements ResourceManagerDriver."""

    def __init__(self, settings: Settings, max_worker_count: int, scratch: Path | None) -> None:
        self._settings = settings
        self._scratch = scratch
        self._max_worker_count = max_worker_count
        self.secret: Final = cluster_secret(settings)
        self._listener: WorkerListener | None = None
        self._rpc_service: RpcService | None = None
        self._cluster: Cluster | None = None
        self._executors: dict[ResourceId, TaskExecutor] = {}
        self._live: set[ResourceId] = set()
        self._threads: Final[dict[ResourceId, Thread]] = {}
        self._released: set[ResourceId] = set()

    @property
    def max_worker_count(self) -> int | None:
        """Number of workers that the cluster was made for."""
        return self._max_worker_count

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        remedy = remedy_where_alike(profile, usual)
        return f"all TaskManagers of this cluster have the same size: {remedy}"

    def describe_shortage(self) -> str:
        return (
            f"this cluster was made for {self._max_worker_count} TaskManagers, but jobs need more"
        )

    def open(self, rpc_service: RpcService, cluster: Cluster) -> None:
        """Set the cluster to which the workers belong."""
        self._rpc_service, self._cluster = rpc_service, cluster

    def initialize(self, listener: WorkerListener) -> None:
        self._listener = listener

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        """Start a thread that opens the worker's data plane, waits for the worker's end and closes it again."""
        self._live.add(worker_id)
        self._threads[worker_id] = start_thread(
            f"headrace-{worker_id}", lambda: self._host(worker_id)
        )

    def release_worker(self, worker_id: ResourceId) -> None:
        self._released.add(worker_id)
        executor = self._executors.get(worker_id)
        if executor is not None:
            executor.end("its worker was released")

    async def close(self) -> None:
        for worker_id in tuple(self._live):
            self.release_worker(worker_id)
        while self._live:
            await asyncio.sleep(0.005)

    def _host(self, worker_id: ResourceId) -> None:
        """Run a worker on its thread. Only opening and closing the data plane happens outside the loop."""
        assert self._rpc_service is not None
        loop = self._rpc_service.loop
        ended = threading.Event()
        reasons: list[str] = []

        def terminated(reason: str) -> None:
            reasons.append(reason)
            ended.set()

        def failed(error: BaseException) -> None:
            executor = self._executors.get(worker_id)
            if executor is not None:
                executor.end(f"fatal error: {type(error).__name__}: {error}")

        try:
            with LocalTaskManager(self._configuration(worker_id), failed) as task_manager:
                loop.call_soon_threadsafe(self._serve, worker_id, task_manager, terminated)
                ended.wait()
        except (PortInUseError, ConfigurationError) as error:
            # A new worker would end in the same way.
            assert self._listener is not None
            self._listener.interpreter_failed("", str(error), recoverable=False)
            reasons.append(str(error))
        except Exception as error:
            _LOG.exception("could not run TaskManager %s", worker_id)
            reasons.append(f"{type(error).__name__}: {error}")
        loop.call_soon_threadsafe(self._gone, worker_id, reasons[0])

    def _serve(
        self,
        worker_id: ResourceId,
        task_manager: LocalTaskManager,
        terminated: Callable[[str], None],
    ) -> None:
        assert self._rpc_service is not None and self._listener is not None
        try:
            executor = task_manager.create_executor(
                self._rpc_service,
                exit_process=functools.partial(_cannot_exit, worker_id),
                on_terminated=terminated,
            )
        except Exception as error:
            _LOG.exception("could not create TaskManager %s", worker_id)
            terminated(f"{type(error).__name__}: {error}")
            return
        self._executors[worker_id] = executor
        executor.start()
        self._listener.worker_started(worker_id)
        if worker_id in self._released:
            executor.end("its worker was released")

    def _gone(self, worker_id: ResourceId, reason: str) -> None:
        assert self._listener is not None
        self._executors.pop(worker_id, None)
        # This call is the last of the thread.
        self._threads.pop(worker_id).join()
        self._live.discard(worker_id)
        self._listener.worker_terminated(worker_id, reason)

    def _configuration(self, worker_id: ResourceId) -> TaskManagerConfiguration:
        assert self._cluster is not None
        return TaskManagerConfiguration(
            resource_id=worker_id,
            leader_retrieval_address=self._cluster.leaders.address,
            secret=self.secret,
            settings=self._settings.to_dict(),
            scratch_directory=self._scratch_of(worker_id),
            log_folder=self._log_folder_of(worker_id),
        )

    def _log_folder_of(self, worker_id: ResourceId) -> Path | None:
        """Return the cluster's folder, with files of the TaskManager that refer to its log."""
        assert self._cluster is not None
        folder = self._cluster.log_folder
        if folder is not None:
            for ending in (".log", ".out"):
                name = f"{task_manager_file_name(worker_id)}{ending}"
                file = RotatingFile(folder / name, 1 << 10, 0)
                file.write(_IN_ONE_PROCESS)
                file.close()
        return folder

    def _scratch_of(self, worker_id: ResourceId) -> Path | None:
        if self._scratch is None:
            return None
        directory = self._scratch / str(worker_id)
        directory.mkdir(parents=True, exist_ok=True)
        return directory


def _cannot_exit(worker_id: ResourceId, reason: str) -> None:
    """Log that the process cannot exit because it is also the user's: a stuck task is left behind with its thread."""
    _LOG.critical(
        "TaskManager %s should end its process, but shares it with the user: %s", worker_id, reason
    )
