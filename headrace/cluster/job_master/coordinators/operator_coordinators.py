"""OperatorCoordinators: holds the operator coordinators of a job, and counts their events.

An event counts only from a subtask's current attempt, once and in order; an event to a subtask goes to the attempt that
runs now. Runs on the JobMaster's main thread. Source: Flink OperatorCoordinatorHolder.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Final

from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.coordinators.event_delivery import (
    HeldEvent,
    OperatorEventValve,
)
from headrace.cluster.job_master.coordinators.operator_coordinator import (
    NO_LATER_CALLS,
    CheckpointedCoordinator,
    CoordinatorContext,
    CoordinatorFactories,
    LaterCalls,
    OperatorCoordinator,
)
from headrace.cluster.job_master.coordinators.source_coordinator import create_source_coordinator
from headrace.cluster.job_master.coordinators.watermark_alignment import AlignedCoordinators
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import NotInstalledError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobVertexId, OperatorId
from headrace.core.operator_events import ALIGNED_COORDINATOR
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.source import SPLIT_COORDINATOR
from headrace.gateways.job_metrics import OperatorMetrics
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from headrace.metrics.cluster_names import NUM_EVENTS_IN, NUM_EVENTS_OUT
from headrace.metrics.groups import MetricGroup

SendEvent = Callable[[ExecutionVertexId, OperatorId, bytes], None]
BUILT_IN_COORDINATORS: Final[CoordinatorFactories] = {
    "collect": CollectCoordinator,
    SPLIT_COORDINATOR: create_source_coordinator,
}


class OperatorCoordinators:
    """Coordinators of one job, made before anything is deployed. `settings` are the job's over the cluster's."""

    def __init__(
        self,
        graph: JobGraph,
        factories: CoordinatorFactories,
        *,
        settings: Settings,
        send_event: SendEvent,
        run_async: Callable[[Callable[[], None]], None],
        fail_job: Callable[[BaseException], None],
        later: LaterCalls = NO_LATER_CALLS,
        has_all_arrived: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        self._has_all_arrived: Final = has_all_arrived
        self._when_quiet: Callable[[], None] | None = None
        self._clock: Final = clock
        self._factories: Final = {**BUILT_IN_COORDINATORS, **factories}
        self._factories[ALIGNED_COORDINATOR] = AlignedCoordinators(self._factories).create
        self._context_of_job: Final = functools.partial(
            CoordinatorContext,
            job_id=graph.job_id,
            settings=settings,
            run_async=run_async,
            fail_job=fail_job,
            later=later,
        )
        self._send_event: Final = send_event
        self._valve: Final = OperatorEventValve()
        self._coordinators: dict[OperatorId, OperatorCoordinator] = {}
        self._by_vertex: dict[JobVertexId, list[OperatorCoordinator]] = {}
        # Next event number of each operator of each attempt: what was repeated counts once.
        self._next_event: dict[tuple[ExecutionAttemptId, OperatorId], int] = {}
        self._metrics: Final[dict[OperatorId, _CoordinatorMetrics]] = {}
        self._metrics_by_vertex: Final[dict[JobVertexId, list[_CoordinatorMetrics]]] = {}
        self._backlogs: set[OperatorId] = set()
        self._backlog_changed: Callable[[bool], None] = lambda is_any: None
        for vertex in graph.vertices:
            for operator in vertex.operators:
                if operator.coordinator:
                    self._add(vertex, operator)
        self._checkpointed: Final = [
            (operator_id, coordinator)
            for operator_id, coordinator in self._coordinators.items()
            if isinstance(coordinator, CheckpointedCoordinator)
        ]
        self._subtasks: Final = [
            ExecutionVertexId(vertex_id, index)
            for vertex_id in self._by_vertex
            for index in range(graph.vertex(vertex_id).parallelism)
        ]

    def _add(self, vertex: JobVertex, operator: ChainedOperator) -> None:
        """Make the coordinator of an operator. NotInstalledError if it is not installed on the driver."""
        metrics = _CoordinatorMetrics(vertex, operator, self._clock)
        self._metrics[operator.operator_id] = metrics
        self._metrics_by_vertex.setdefault(vertex.vertex_id, []).append(metrics)
        context = self._context_of_job(
            operator_id=operator.operator_id,
            operator_name=operator.name,
            parallelism=vertex.parallelism,
            send_event=functools.partial(self._send, vertex.vertex_id, operator.operator_id),
            report_backlog=functools.partial(self._backlog_of, operator.operator_id),
            location=operator.location,
            metric_group=metrics.group,
        )
        coordinator = _create(self._factories, operator, context)
        self._coordinators[operator.operator_id] = coordinator
        self._by_vertex.setdefault(vertex.vertex_id, []).append(coordinator)

    def start(self) -> None:
        """Start all coordinators, before any task is deployed."""
        for coordinator in self._coordinators.values():
            coordinator.start()

    def when_backlog_changes(self, action: Callable[[bool], None]) -> None:
        self._backlog_changed = action
        if self._backlogs:
            action(True)

    def _backlog_of(self, operator_id: OperatorId, is_backlog: bool) -> None:
        was_any = bool(self._backlogs)
        if is_backlog:
            self._backlogs.add(operator_id)
        else:
            self._backlogs.discard(operator_id)
        if bool(self._backlogs) != was_any:
            self._backlog_changed(bool(self._backlogs))

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Notify the coordinators that the attempt runs and can take events."""
        for coordinator in self._of(attempt_id):
            coordinator.subtask_ready(attempt_id, location)

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Notify the coordinators that the attempt ended without finishing."""
        self._valve.subtask_gone(attempt_id.execution_vertex_id)
        for coordinator in self._of(attempt_id):
            coordinator.subtask_failed(attempt_id)
        for key in [key for key in self._next_event if key[0] == attempt_id]:
            del self._next_event[key]

    def handle_event(
        self,
        attempt_id: ExecutionAttemptId,
        operator_id: OperatorId,
        sequence_number: int,
        payload: bytes,
    ) -> None:
        """Deliver an event, unless it was delivered before. Errors of the coordinator go back to the sender."""
        key = (attempt_id, operator_id)
        if sequence_number < self._next_event.get(key, 0):
            return
        self._coordinators[operator_id].handle_event(attempt_id, payload)
        self._metrics[operator_id].events_in.inc()
        self._next_event[key] = sequence_number + 1

    # Metrics

    def metrics_of(self, vertex_id: JobVertexId) -> dict[str, float]:
        """Return the metrics of a vertex's coordinators, as `<operator>.coordinator.<metric>`."""
        return {
            f"{metrics.operator_name}.{name}": value
            for metrics in self._metrics_by_vertex.get(vertex_id, ())
            for name, value in metrics.operator_group.snapshot().items()
        }

    def operator_metrics(self) -> tuple[OperatorMetrics, ...]:
        """Return the metrics of all coordinators, for reporters."""
        return tuple(
            OperatorMetrics(metrics.variables, tuple(metrics.operator_group.samples()))
            for metrics in self._metrics.values()
        )

    # Checkpoints

    @property
    def can_be_snapshotted(self) -> bool:
        """Return whether no event is held back or in flight: it would be in no snapshot."""
        return not self._valve.holds_events and self._has_all_arrived()

    def when_quiet(self, action: Callable[[], None]) -> None:
        """Set `action` to be called whenever no event is in flight any more."""
        self._when_quiet = action

    def everything_arrived(self) -> None:
        """Handle that all sent events have arrived."""
        if self._when_quiet is not None:
            self._when_quiet()

    def checkpoint(self, checkpoint_id: int) -> dict[OperatorId, bytes]:
        """Take the state of every coordinator; from now on their events wait for the subtasks' parts."""
        states = {
            operator_id: coordinator.checkpoint(checkpoint_id)
            for operator_id, coordinator in self._checkpointed
        }
        self._valve.close(checkpoint_id, self._subtasks)
        return states

    def acknowledged(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        """Release events for a subtask that has taken its part."""
        self._release(self._valve.acknowledged(attempt_id.execution_vertex_id, checkpoint_id))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Notify the coordinators that the checkpoint is published."""
        self._release(self._valve.ended(checkpoint_id))
        for _, coordinator in self._checkpointed:
            coordinator.checkpoint_completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the coordinators that the checkpoint was aborted, or commits nothing."""
        self._release(self._valve.ended(checkpoint_id))
        for _, coordinator in self._checkpointed:
            coordinator.checkpoint_aborted(checkpoint_id)

    def reset(self, checkpoint_id: int | None, states: Mapping[OperatorId, bytes]) -> None:
        """Reset the coordinators, because the whole job starts from a checkpoint, or anew."""
        for operator_id, coordinator in self._checkpointed:
            coordinator.reset(checkpoint_id, states.get(operator_id))

    def subtask_reset(self, subtask: ExecutionVertexId, checkpoint_id: int | None) -> None:
        """Notify the coordinators that a subtask starts from a checkpoint, or anew, while others go on."""
        for coordinator in self._by_vertex.get(subtask.vertex_id, []):
            if isinstance(coordinator, CheckpointedCoordinator):
                coordinator.subtask_reset(subtask.subtask_index, checkpoint_id)

    def collect_coordinators(self) -> Mapping[OperatorId, CollectCoordinator]:
        """Return the coordinators of collect sinks, whose records outlive the job."""
        return {
            operator_id: coordinator
            for operator_id, coordinator in self._coordinators.items()
            if isinstance(coordinator, CollectCoordinator)
        }

    async def commit(self) -> None:
        """Let all coordinators finish in turn, after every task has FINISHED. Stops at the first error."""
        for coordinator in self._coordinators.values():
            await coordinator.job_finishing()

    async def close(self) -> list[Exception]:
        """Close all coordinators, even after errors; return the errors."""
        errors: list[Exception] = []
        for coordinator in self._coordinators.values():
            try:
                await coordinator.close()
            except Exception as error:
                errors.append(error)
        return errors

    def _send(
        self, vertex_id: JobVertexId, operator_id: OperatorId, subtask_index: int, payload: bytes
    ) -> None:
        subtask = ExecutionVertexId(vertex_id, subtask_index)
        self._metrics[operator_id].events_out.inc()
        if self._valve.pass_on(HeldEvent(subtask, operator_id, payload)):
            self._send_event(subtask, operator_id, payload)

    def _release(self, events: list[HeldEvent]) -> None:
        for event in events:
            self._send_event(event.subtask, event.operator_id, event.payload)

    def _of(self, attempt_id: ExecutionAttemptId) -> list[OperatorCoordinator]:
        return self._by_vertex.get(attempt_id.execution_vertex_id.vertex_id, [])


class _CoordinatorMetrics:
    """Metrics of one operator's coordinator. Source: Flink JobManagerOperatorMetricGroup."""

    def __init__(self, vertex: JobVertex, operator: ChainedOperator, clock: Clock | None) -> None:
        self.operator_name: Final = operator.name
        self.variables: Final = {
            "task_id": str(vertex.vertex_id),
            "task_name": vertex.name,
            "operator_id": str(operator.operator_id),
            "operator_name": operator.name,
        }
        self.operator_group: Final = MetricGroup(clock)
        self.group: Final = self.operator_group.add_group("coordinator")
        self.events_in: Final = self.group.counter(NUM_EVENTS_IN)
        self.events_out: Final = self.group.counter(NUM_EVENTS_OUT)


def _create(
    known: CoordinatorFactories, operator: ChainedOperator, context: CoordinatorContext
) -> OperatorCoordinator:
    factory = known.get(operator.coordinator)
    if factory is None:
        raise NotInstalledError(
            f"operator '{operator.name}' needs the coordinator '{operator.coordinator}', which is not installed on "
            "the driver"
        )
    return factory(context, operator.coordinator_payload)
