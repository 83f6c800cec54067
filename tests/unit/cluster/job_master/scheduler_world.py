"""A scheduler with scripted services, and the events of its tasks."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.checkpoint.handles import SubtaskRestore
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.partition_registrar import PartitionRegistration
from headrace.cluster.job_master.executions import Execution, ReportVerdict
from headrace.cluster.job_master.failover.failover_strategies import FAILOVER_STRATEGY
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.failover.restart_strategies import FixedDelayRestart, NoRestart
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.cluster.job_master.scheduler.scheduler import Scheduler, SchedulerServices
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ClusterDataSetId,
    ExecutionAttemptId,
    ExecutionVertexId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.gateways.messages import ErrorInfo, ExecutionReport, SlotOffer
from headrace.gateways.resource_manager import ResourceRequirement
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import ConnectionLostError
from tests.unit.cluster.cluster_samples import (
    SLOT_PROFILE,
    TM_1,
    TM_2,
    allocation,
    edge,
    job_graph,
    vertex,
)

S = ExecutionState


USER_ERROR = ErrorInfo(
    "UserCodeError", "ValueError: bad (in operator 'map', f.py, line 3)", "USER", True
)


LOST = error_info_of(ConnectionLostError("tm-2", "reset by peer"))


class ScriptedServices:
    """All services of a scheduler in one: notes what the scheduler wants; the test answers."""

    def __init__(self) -> None:
        self.declared: list[tuple[ResourceRequirement, ...]] = []
        self.submitted: list[tuple[Execution, TaskDeploymentDescriptor]] = []
        self.cancelled: list[ExecutionAttemptId] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.statuses: list[JobStatus] = []
        self.commit_count = 0
        self.released: list[tuple[ResourceId, ResultPartitionId]] = []
        self.registered: list[PartitionRegistration] = []
        self.released_externally: list[ResultPartitionId] = []
        self.restored_scopes: list[frozenset[ExecutionVertexId]] = []
        self.restores: dict[ExecutionVertexId, SubtaskRestore] = {}
        self.answers_restores = True
        self.answers_registrations = True
        self.is_external = False
        self.asked_for: list[ClusterDataSetId] = []
        self.places: dict[ClusterDataSetId, tuple[ShuffleDescriptor, ...]] = {}
        self.released_data_sets: list[ClusterDataSetId] = []
        self.version = 0
        self.restarts_told: list[tuple[str, float, int]] = []

    def connect(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        me: Any = self
        scheduler.connect(
            SchedulerServices(
                task_managers=me,
                slots=me,
                registrar=me,
                data_sets=me,
                restore=self.restore,
                commit=self.commit,
                execution_changed=lambda execution: None,
                status_changed=self.statuses.append,
                restarts=self.restarts,
                schedule_run_async=self.schedule_run_async,
            )
        )

    def restore(self, scope: frozenset[ExecutionVertexId], version: int) -> None:
        self.restored_scopes.append(scope)
        self.version = version
        if self.answers_restores:
            self.scheduler.restored(self.restores, version)

    def declare(self, profiles: Sequence[ResourceProfile]) -> None:
        self.scheduler.pool.require(profiles)
        self.declared.append(self.scheduler.pool.requirements)

    def request(self, profiles: Sequence[ResourceProfile]) -> None:
        self.declare(profiles)

    def location_of(self, resource_id: ResourceId) -> TaskManagerLocation:
        return TaskManagerLocation(resource_id, "localhost", 1, None, "host")

    def find(
        self, data_sets: Sequence[ClusterDataSetId], version: int, on_found: Any, on_failed: Any
    ) -> None:
        self.asked_for += data_sets
        self.version = version
        if self.answers_registrations:
            on_found({key: self.places[key] for key in data_sets}, version)

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        self.released_data_sets.append(data_set)

    def register(
        self,
        registrations: Sequence[PartitionRegistration],
        version: int,
        on_registered: Any,
        on_failed: Any,
    ) -> None:
        self.registered += registrations
        self.version = version
        if self.answers_registrations:
            answers = [self.place(each.partition, each.producer) for each in registrations]
            on_registered(answers, version)

    def place(
        self, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        key = ResultPartitionId(
            partition.data_set_id, partition.partition_number, producer.attempt_id
        )
        return ShuffleDescriptor(key, producer.location, self.is_external)

    def release_externally(self, descriptors: Sequence[ShuffleDescriptor]) -> None:
        self.released_externally += [each.partition_id for each in descriptors]

    def submit_task(
        self, execution: Execution, descriptor: TaskDeploymentDescriptor, on_answer: Any
    ) -> None:
        self.submitted.append((execution, descriptor))

    def cancel_task(self, execution: Execution) -> None:
        self.cancelled.append(execution.attempt_id)

    def release_partitions(
        self, resource_id: ResourceId, partition_ids: tuple[ResultPartitionId, ...]
    ) -> None:
        self.released += [(resource_id, partition_id) for partition_id in partition_ids]

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> None:
        self.later.append((delay_ms, action))

    def restarts(self, cause: Failure, delay_ms: float, restart_count: int) -> None:
        self.restarts_told.append((cause.error.text, delay_ms, restart_count))

    def commit(self) -> None:
        self.commit_count += 1


class Fixture:
    """A job of two vertices with, by default, two subtasks each, on as many slots."""

    def __init__(
        self,
        restarts: int = 0,
        result_type: ResultPartitionType = ResultPartitionType.PIPELINED_BOUNDED,
        kind: PartitionerKind = PartitionerKind.HASH,
        strategy: str = "region",
        parallelism: int = 2,
        services: ScriptedServices | None = None,
        vertex_count: int = 2,
        first_attempt_number: int = 0,
    ) -> None:
        """`kind` and `result_type` are of the first exchange; those behind it, if any, are pipelined."""
        self.clock = ManualClock()
        self.services = services or ScriptedServices()
        vertices = tuple(vertex(number, parallelism) for number in range(1, vertex_count + 1))
        pipelined = (edge(number, number + 1) for number in range(2, vertex_count))
        graph = job_graph(vertices, (edge(1, 2, kind, result_type), *pipelined))
        self.scheduler = Scheduler(
            graph,
            FixedDelayRestart(restarts, 100) if restarts else NoRestart(),
            self.clock,
            PartitionTracker(releases_during_job=True),
            Settings({FAILOVER_STRATEGY.key: strategy}),
            first_attempt_number,
        )
        self.services.connect(self.scheduler)

    def give_slots(self) -> None:
        for number, resource_id in ((1, TM_1), (2, TM_2)):
            self.scheduler.pool.offer(
                resource_id, [SlotOffer(allocation(number), 0, SLOT_PROFILE)], 0
            )
        self.scheduler.slots_changed()

    def run(self) -> None:
        self.scheduler.start()
        self.give_slots()
        self.report_all(S.RUNNING)

    def report(
        self, attempt: ExecutionAttemptId, state: ExecutionState, error: ErrorInfo | None = None
    ) -> ReportVerdict:
        return self.scheduler.report(ExecutionReport(attempt, state, error))

    def report_all(self, state: ExecutionState) -> None:
        for attempt in self.attempts:
            self.report(attempt, state)

    @property
    def attempts(self) -> list[ExecutionAttemptId]:
        return [execution.attempt_id for execution in self.scheduler.executions]

    @property
    def states(self) -> list[ExecutionState]:
        return [execution.state for execution in self.scheduler.executions]
