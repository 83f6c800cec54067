"""A TaskExecutor between a scripted ResourceManager and a scripted JobMaster, on virtual time."""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from headrace.cluster.leadership import LeaderDirectory
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.cluster.task_executor.task_manager_services import TaskManagerServices
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import (
    InstanceId,
    JobId,
    JobMasterId,
    OperatorId,
    ResourceId,
    ResourceManagerId,
    ResultPartitionId,
    SlotId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.job_master import JobMasterGateway, TaskManagerRegistered
from headrace.gateways.messages import MemoryUsage
from headrace.gateways.resource_manager import ResourceManagerGateway, TaskExecutorRegistered
from headrace.gateways.task_executor import (
    SlotRequest,
    TaskDeploymentDescriptor,
    TaskExecutorGateway,
)
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import (
    ScriptedTask,
    ScriptedTaskFactory,
    end_processes,
    start_scripted,
)
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import (
    JOB,
    SLOT_PROFILE,
    TM_1,
    allocation,
    attempt,
    vertex,
)

RM_ID = ResourceManagerId(b"r" * 16)
JM_ID = JobMasterId(b"m" * 16)
BLOB_SERVER = "headrace.loopback://master/rpc/blobs"
INSTANCE = InstanceId(b"i" * 16)
RM_RESOURCE, JM_RESOURCE = ResourceId("rm"), ResourceId("jm")
MEMORY = MemoryUsage(300 << 20, 1 << 30)
PROCESS_METRICS = {"Status.JVM.CPU.Load": 0.5}
OPERATOR = OperatorId(b"o" * 16)
SETTINGS = {
    "taskmanager.slot.timeout": "5 s",
    "task.cancellation.timeout": "30 s",
    "taskmanager.registration.timeout": "60 s",
    "heartbeat.timeout": "20 s",
    "pekko.ask.timeout": "1 s",
}


class NotedPartitions:
    """Notes what is released."""

    def __init__(self) -> None:
        self.partition_count = 0
        self.released: list[ResultPartitionId] = []
        self.released_jobs: list[JobId] = []
        self.kept: set[ResultPartitionId] = set()
        self.missing: set[ResultPartitionId] = set()

    def release(self, partition_ids: Iterable[ResultPartitionId]) -> None:
        self.released += partition_ids

    def holds(self, partition_id: ResultPartitionId) -> bool:
        return partition_id not in self.missing

    def release_job(self, job_id: JobId, kept: Collection[ResultPartitionId] = ()) -> None:
        self.released_jobs.append(job_id)
        self.kept = set(kept)


class World:
    """A TaskManager of one slot, and who speaks with it. Its log files are in `log_folder`."""

    def __init__(self, *, log_folder: Path | None = None, **resource_manager_answers: Any) -> None:
        self._log_folder = log_folder
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(
            clock, SeededRandom(1), loop=self.loop, settings=Settings(SETTINGS)
        )
        master = self.network.create_service("master")
        answers = {"register_task_executor": TaskExecutorRegistered(INSTANCE, RM_RESOURCE)}
        self.resource_manager = start_scripted(
            master, "rm", ResourceManagerGateway, RM_ID, **(answers | resource_manager_answers)
        )
        self.leaders = LeaderDirectory(master)
        self.leaders.confirm(self.resource_manager.address, RM_ID)
        self.leaders.start()
        self.job_master = start_scripted(
            master,
            "jm",
            JobMasterGateway,
            JM_ID,
            register_task_manager=TaskManagerRegistered(JM_RESOURCE, BLOB_SERVER),
            offer_slots=lambda _, offers: tuple(offer.allocation_id for offer in offers),
        )
        self.factory = ScriptedTaskFactory()
        self.registry = MetricRegistry(Settings(), clock)
        self.partitions = NotedPartitions()
        self.exits: list[str] = []
        self.ends: list[str] = []
        worker = self.network.create_service("worker")
        self.executor = TaskExecutor(worker, self._setup())
        self.executor.start()
        self.gateway = master.gateway(self.executor.address, TaskExecutorGateway)
        self.run_for(10)

    def _setup(self) -> TaskManagerServices:
        async def run_at_once(name: str, body: Any) -> Any:
            return body()

        return TaskManagerServices(
            resource_id=TM_1,
            location=TaskManagerLocation(TM_1, "worker", 1, None, "host"),
            leader_retrieval_address=self.leaders.address,
            slot_count=1,
            slot_profile=SLOT_PROFILE,
            versions={},
            pid=7,
            attempt_number=0,
            task_factory=self.factory,
            run_blocking=run_at_once,
            exit_process=self.exits.append,
            on_terminated=self.ends.append,
            partitions=self.partitions,
            measure_memory=lambda: MEMORY,
            log_folder=self._log_folder,
            process_metrics=lambda: dict(PROCESS_METRICS),
            metric_registry=self.registry,
        )

    def run_for(self, duration_ms: float) -> None:
        self.loop.run_for(duration_ms)

    def close(self) -> None:
        """End every process, so that no task is left pending."""
        end_processes(self.network, self.loop)

    def ask(self, coroutine: Any) -> Any:
        return self.loop.run_until(coroutine)

    def request_slot(self, number: int = 1, resource_manager_id: ResourceManagerId = RM_ID) -> None:
        request = SlotRequest(
            SlotId(TM_1, 0),
            JOB,
            allocation(number),
            ResourceProfile(),
            self.job_master.address,
            JM_ID,
            resource_manager_id,
        )
        self.ask(self.gateway.request_slot(request))
        self.run_for(10)

    def submit(
        self,
        index: int = 0,
        job_master_id: JobMasterId = JM_ID,
        settings: dict[str, str] | None = None,
    ) -> ScriptedTask:
        descriptor = TaskDeploymentDescriptor(
            attempt(index), allocation(1), "a job", settings or {}, vertex(1, 2), (), ()
        )
        self.ask(self.gateway.submit_task(descriptor, job_master_id))
        self.run_for(10)
        return self.factory.tasks[attempt(index)]

    @property
    def slot_owner(self) -> object:
        return self.executor.slot_report().slots[0].allocation_id

    def reported(self) -> list[ExecutionState]:
        calls = self.job_master.script.called("update_task_execution_state")
        return [report.state for (report,) in calls]


async def never() -> Any:
    await asyncio.sleep(10**6)
