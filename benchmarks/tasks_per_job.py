"""How long does the control plane take to deploy a job of n tasks, to take a checkpoint of it, and to end it?

The real Dispatcher, ResourceManager, JobMaster and TaskExecutors, on loopback RPC in one process; the tasks have no
data plane: they say that they run, and acknowledge a checkpoint as soon as its barrier could have come. So what is
measured is what the control plane does for each task, and whether any step of it grows faster than the tasks do. Jobs
are ten vertices, joined one to one; `--all-to-all` joins the last two by key, where each consumer reads from every
producer.

    python -m benchmarks.tasks_per_job [--tasks 10 100 1000 10000] [--all-to-all] [--dry]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.record import record_result
from headrace.cluster.cluster import Cluster
from headrace.cluster.cluster_handle import ClusterHandle
from headrace.cluster.resource_manager.driver import WorkerListener
from headrace.cluster.resource_manager.workers import worker_names
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.cluster.versions import software_versions
from headrace.core.barriers import CheckpointOptions, SavepointFormatType
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    IntermediateDataSetId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.randomness import system_random
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import ResultPartitionType, TaskManagerLocation
from headrace.core.threads import EventLoopThread
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import (
    ChainedOperator,
    JobEdge,
    JobGraph,
    JobVertex,
    PartitionerKind,
    PartitionerSpec,
    VertexKind,
)
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.rpc.loopback import LoopbackNetwork
from headrace.rpc.service import RpcService
from headrace.task.environment import TaskListener
from testkit.scripted_gateways import ScriptedTask

VERTEX_COUNT: Final = 10
TASK_MANAGERS_MAX: Final = 10
MAX_PARALLELISM: Final = 4096
CHECKPOINTS: Final = 3
TIMEOUT_S: Final = 300.0
ASK_TIMEOUT: Final = "120 s"
"""So that a busy machine is slow, and not wrong."""
LOOK_PAUSE_S: Final = 0.1


class SliceTask(ScriptedTask):
    """One of the tasks of a slice: barriers pass from its source to the others at once, and there is no state."""

    def __init__(
        self, attempt_id: ExecutionAttemptId, listener: TaskListener, slice_: list["SliceTask"]
    ) -> None:
        super().__init__(attempt_id, listener)
        self._slice = slice_

    def trigger_checkpoint(
        self, checkpoint_id: int, timestamp_ms: int, options: CheckpointOptions
    ) -> None:
        """Acknowledge the checkpoint for every task of the slice."""
        for task in self._slice:
            task.acknowledge_checkpoint(checkpoint_id)


class SliceTaskFactory:
    """Makes the tasks of all TaskManagers, each with the same figures. Implements TaskFactory."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        self._metrics = metrics
        self._slices: defaultdict[int, list[SliceTask]] = defaultdict(list)

    def create(
        self,
        descriptor: TaskDeploymentDescriptor,
        listener: TaskListener,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> SliceTask:
        slice_ = self._slices[descriptor.attempt_id.subtask_index]
        task = SliceTask(descriptor.attempt_id, listener, slice_)
        task.metrics = dict(self._metrics)
        slice_.append(task)
        return task


class LoopbackDriver:
    """Starts TaskExecutors on the cluster's own RpcService. Implements ResourceManagerDriver."""

    max_worker_count = TASK_MANAGERS_MAX

    def __init__(
        self, rpc_service: RpcService, slot_count: int, metrics: Mapping[str, float]
    ) -> None:
        self._rpc_service = rpc_service
        self._slot_count = slot_count
        self._task_factory = SliceTaskFactory(metrics)
        self._listener: WorkerListener | None = None
        self.cluster: Cluster | None = None
        self._executors: dict[ResourceId, TaskExecutor] = {}

    def initialize(self, listener: WorkerListener) -> None:
        self._listener = listener

    def describe_shortage(self) -> str:
        return ""

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        assert self.cluster is not None and self._listener is not None
        setup = TaskManagerServices(
            resource_id=worker_id,
            location=TaskManagerLocation(worker_id, "loopback", 1, None, "host"),
            leader_retrieval_address=self.cluster.leaders.address,
            slot_count=self._slot_count,
            slot_profile=ResourceProfile(),
            versions=software_versions(),
            pid=0,
            attempt_number=0,
            task_factory=self._task_factory,
            run_blocking=_run_at_once,
            exit_process=_refuse_to_exit,
            on_terminated=lambda _: self._gone(worker_id),
            partitions=ResultPartitionManager(worker_id.name),
        )
        executor = self._executors[worker_id] = TaskExecutor(self._rpc_service, setup)
        self._listener.worker_started(worker_id)
        executor.start()

    def release_worker(self, worker_id: ResourceId) -> None:
        self._executors[worker_id].end("its worker was released")

    async def close(self) -> None:
        for executor in tuple(self._executors.values()):
            await executor.close()

    def _gone(self, worker_id: ResourceId) -> None:
        del self._executors[worker_id]
        assert self._listener is not None
        self._listener.worker_terminated(worker_id, "ended")


async def _run_at_once(name: str, body: Callable[[], Any]) -> Any:
    return body()


def _refuse_to_exit(reason: str) -> None:
    raise AssertionError(f"a TaskManager wanted to end its process: {reason}")


def start_cluster(
    slots_per_task_manager: int, settings: Settings, metrics: Mapping[str, float] | None = None
) -> ClusterHandle:
    """A control plane and, once they are asked for, TaskManagers; all on one thread. `metrics`: those of each task."""
    control = EventLoopThread("headrace-benchmark")

    async def start() -> ClusterHandle:
        network = LoopbackNetwork(
            SystemClock(), system_random(), loop=control.loop, settings=settings
        )
        rpc_service = network.create_service("cluster")
        driver = LoopbackDriver(rpc_service, slots_per_task_manager, metrics or {})
        cluster = Cluster(
            rpc_service, driver, {}, worker_name=worker_names("loopback"), on_shut_down=_nothing
        )
        driver.cluster = cluster
        cluster.start()
        return ClusterHandle(control, rpc_service, cluster)

    return control.run(start())


def _nothing() -> None:
    """Nobody asks for the end of this cluster."""


def job_of(
    task_count: int, *, is_all_to_all: bool = False, vertex_count: int = VERTEX_COUNT
) -> JobGraph:
    """Return a job of vertices of equal parallelism in a row."""
    parallelism = max(1, task_count // vertex_count)
    vertices = tuple(_vertex(number, parallelism) for number in range(vertex_count))
    edges = tuple(
        _edge(number, is_by_key=is_all_to_all and number == vertex_count - 2)
        for number in range(vertex_count - 1)
    )
    return JobGraph(JobId.generate(system_random()), f"{task_count} tasks", vertices, edges, {})


def _vertex(number: int, parallelism: int) -> JobVertex:
    operator = ChainedOperator(
        OperatorId(number.to_bytes(16, "big")), f"operator {number}", "none", b"", b""
    )
    kind = VertexKind.ONE_INPUT if number else VertexKind.SOURCE
    identity = JobVertexId(number.to_bytes(16, "big"))
    return JobVertex(
        identity, f"vertex {number}", kind, parallelism, MAX_PARALLELISM, "default", (operator,), ()
    )


def _edge(number: int, *, is_by_key: bool) -> JobEdge:
    kind = PartitionerKind.HASH if is_by_key else PartitionerKind.FORWARD
    return JobEdge(
        IntermediateDataSetId(number.to_bytes(16, "big")),
        JobVertexId(number.to_bytes(16, "big")),
        OperatorId(number.to_bytes(16, "big")),
        JobVertexId((number + 1).to_bytes(16, "big")),
        OperatorId((number + 1).to_bytes(16, "big")),
        0,
        PartitionerSpec(kind),
        ResultPartitionType.PIPELINED_BOUNDED,
        100,
    )


async def await_running(handle: ClusterHandle, job_id: JobId) -> None:
    """Return once every task of the job runs; the job's details are looked at, as a user would."""
    while True:
        began = time.perf_counter()
        details = await handle.dispatcher.request_job_details(job_id)
        if details.status is JobStatus.FAILED:
            raise RuntimeError(f"the job failed: {details.failure}")
        states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
        if all(state is ExecutionState.RUNNING for state in states):
            return
        # The details of ten thousand tasks, with the metrics of each, are work for all endpoints too: no more than half
        # of the time is spent on looking.
        await asyncio.sleep(max(LOOK_PAUSE_S, time.perf_counter() - began))


def measure(task_count: int, *, is_all_to_all: bool) -> dict[str, Any]:
    """Seconds of each step for a job of about `task_count` tasks."""
    graph = job_of(task_count, is_all_to_all=is_all_to_all)
    parallelism = graph.vertices[0].parallelism
    slots = -(-parallelism // TASK_MANAGERS_MAX)
    with tempfile.TemporaryDirectory() as directory:
        settings = {"execution.checkpointing.dir": directory, "pekko.ask.timeout": ASK_TIMEOUT}
        handle = start_cluster(slots, Settings(settings))
        try:
            started = time.perf_counter()
            handle.submit(graph)
            handle.call(await_running(handle, graph.job_id), TIMEOUT_S)
            running = time.perf_counter()
            checkpoints: list[float] = []
            for _ in range(CHECKPOINTS):
                before = time.perf_counter()
                handle.call(
                    handle.dispatcher.trigger_savepoint(
                        graph.job_id, directory, SavepointFormatType.CANONICAL
                    ),
                    TIMEOUT_S,
                )
                checkpoints.append(time.perf_counter() - before)
            before = time.perf_counter()
            handle.call(handle.dispatcher.cancel_job(graph.job_id), TIMEOUT_S)
            handle.call(handle.dispatcher.request_job_result(graph.job_id), TIMEOUT_S)
            ended = time.perf_counter()
        finally:
            handle.close()
    return {
        "tasks": parallelism * VERTEX_COUNT,
        "all_to_all": is_all_to_all,
        "deploy_seconds": running - started,
        "checkpoint_seconds": statistics.median(checkpoints),
        "cancel_seconds": ended - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--all-to-all", action="store_true")
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    for task_count in options.tasks:
        figures = measure(task_count, is_all_to_all=options.all_to_all)
        if options.dry:
            print(figures)
        else:
            record_result("tasks_per_job", figures)


if __name__ == "__main__":
    main()
