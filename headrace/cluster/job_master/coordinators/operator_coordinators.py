"""OperatorCoordinators: the coordinators of one job, and the events between them and their subtasks.

Runs on the JobMaster's main thread. An event counts only from a subtask's current attempt, once and in order; an
event to a subtask goes to the attempt that runs now. Source: Flink OperatorCoordinatorHolder.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Final

from headrace.cluster.job_master.coordinators.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.coordinators.event_valve import HeldEvent, OperatorEventValve
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
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobVertexId, OperatorId
from headrace.core.operator_events import ALIGNED_COORDINATOR
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.source import SPLIT_COORDINATOR
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex

SendEvent = Callable[[ExecutionVertexId, OperatorId, bytes], None]
BUILT_IN_COORDINATORS: Final[CoordinatorFactories] = {
    "collect": CollectCoordinator,
    SPLIT_COORDINATOR: create_source_coordinator,
}


class OperatorCoordinators:
    """Made before anything is deployed; asks nothing of the tasks itself.

    `settings` are the job's over the cluster's.
    """

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
    ) -> None:
        self._has_all_arrived: Final = has_all_arrived
        self._when_quiet: Callable[[], None] | None = None
        known = {**BUILT_IN_COORDINATORS, **factories}
        known[ALIGNED_COORDINATOR] = AlignedCoordinators(known).create
        self._send_event: Final = send_event
        self._gates: Final = OperatorEventValve()
        self._coordinators: dict[OperatorId, OperatorCoordinator] = {}
        self._by_vertex: dict[JobVertexId, list[OperatorCoordinator]] = {}
        # Next event number of each operator of each attempt: what was repeated counts once.
        self._next_event: dict[tuple[ExecutionAttemptId, OperatorId], int] = {}
        self._backlogs: set[OperatorId] = set()
        self._backlog_changed: Callable[[bool], None] = lambda is_any: None
        for vertex in graph.vertices:
            for operator in vertex.operators:
                if not operator.coordinator:
                    continue
                report_backlog = functools.partial(self._backlog_of, operator.operator_id)
                context = _context(
                    graph, vertex, operator, settings, self._send, run_async, fail_job, later,
                    report_backlog,
                )  # fmt: skip
                coordinator = _create(known, operator, context)
                self._coordinators[operator.operator_id] = coordinator
                self._by_vertex.setdefault(vertex.vertex_id, []).append(coordinator)
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

    def start(self) -> None:
        """Start all, before any task is deployed."""
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
        """The attempt runs and can take events."""
        for coordinator in self._of(attempt_id):
            coordinator.subtask_ready(attempt_id, location)

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """The attempt ended without finishing."""
        self._gates.subtask_gone(attempt_id.execution_vertex_id)
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
        """Deliver an event, unless it was delivered before. What the coordinator raises goes back to the sender."""
        key = (attempt_id, operator_id)
        if sequence_number < self._next_event.get(key, 0):
            return
        self._coordinators[operator_id].handle_event(attempt_id, payload)
        self._next_event[key] = sequence_number + 1

    # Checkpoints

    @property
    def can_be_snapshotted(self) -> bool:
        """Whether nothing waits for an earlier checkpoint's barrier, or is on its way: it would be in no snapshot."""
        return not self._gates.holds_events and self._has_all_arrived()

    def when_quiet(self, action: Callable[[], None]) -> None:
        """Have `action` called whenever nothing is on its way any more."""
        self._when_quiet = action

    def everything_arrived(self) -> None:
        """All that was said has arrived."""
        if self._when_quiet is not None:
            self._when_quiet()

    def checkpoint(self, checkpoint_id: int) -> dict[OperatorId, bytes]:
        """Take every coordinator's part; from now on their events wait for the subtasks' parts."""
        states = {
            operator_id: coordinator.checkpoint(checkpoint_id)
            for operator_id, coordinator in self._checkpointed
        }
        self._gates.close(checkpoint_id, self._subtasks)
        return states

    def acknowledged(self, attempt_id: ExecutionAttemptId, checkpoint_id: int) -> None:
        """The subtask has taken its part: events for it may go on."""
        self._release(self._gates.acknowledged(attempt_id.execution_vertex_id, checkpoint_id))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """The checkpoint is published."""
        self._release(self._gates.ended(checkpoint_id))
        for _, coordinator in self._checkpointed:
            coordinator.checkpoint_completed(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint came to nothing, or commits nothing."""
        self._release(self._gates.ended(checkpoint_id))
        for _, coordinator in self._checkpointed:
            coordinator.checkpoint_aborted(checkpoint_id)

    def reset(self, checkpoint_id: int | None, states: Mapping[OperatorId, bytes]) -> None:
        """The whole job starts from a checkpoint, or afresh."""
        for operator_id, coordinator in self._checkpointed:
            coordinator.reset(checkpoint_id, states.get(operator_id))

    def subtask_reset(self, subtask: ExecutionVertexId, checkpoint_id: int | None) -> None:
        """A subtask starts from a checkpoint, or afresh, while others go on."""
        for coordinator in self._by_vertex.get(subtask.vertex_id, []):
            if isinstance(coordinator, CheckpointedCoordinator):
                coordinator.subtask_reset(subtask.subtask_index, checkpoint_id)

    def collect_coordinators(self) -> Mapping[OperatorId, CollectCoordinator]:
        """The collect sinks, whose records outlive the job."""
        return {
            operator_id: coordinator
            for operator_id, coordinator in self._coordinators.items()
            if isinstance(coordinator, CollectCoordinator)
        }

    async def commit(self) -> None:
        """Every task has FINISHED: let all finish, one after the other; the first error ends it."""
        for coordinator in self._coordinators.values():
            await coordinator.job_finishing()

    async def close(self) -> list[Exception]:
        """Close all, whatever each of them raises; returns what they raised."""
        errors: list[Exception] = []
        for coordinator in self._coordinators.values():
            try:
                await coordinator.close()
            except Exception as error:
                errors.append(error)
        return errors

    def _send(self, subtask: ExecutionVertexId, operator_id: OperatorId, payload: bytes) -> None:
        if self._gates.pass_on(HeldEvent(subtask, operator_id, payload)):
            self._send_event(subtask, operator_id, payload)

    def _release(self, events: list[HeldEvent]) -> None:
        for event in events:
            self._send_event(event.subtask, event.operator_id, event.payload)

    def _of(self, attempt_id: ExecutionAttemptId) -> list[OperatorCoordinator]:
        return self._by_vertex.get(attempt_id.execution_vertex_id.vertex_id, [])


def _create(
    known: CoordinatorFactories, operator: ChainedOperator, context: CoordinatorContext
) -> OperatorCoordinator:
    factory = known.get(operator.coordinator)
    if factory is None:
        raise ConfigurationError(
            "execution.target",
            operator.coordinator,
            f"operator '{operator.name}' needs this coordinator, which is not installed on the driver",
        )
    return factory(context, operator.coordinator_payload)


def _context(
    graph: JobGraph,
    vertex: JobVertex,
    operator: ChainedOperator,
    settings: Settings,
    send_event: SendEvent,
    run_async: Callable[[Callable[[], None]], None],
    fail_job: Callable[[BaseException], None],
    later: LaterCalls,
    report_backlog: Callable[[bool], None],
) -> CoordinatorContext:
    def send(subtask_index: int, payload: bytes) -> None:
        subtask = ExecutionVertexId(vertex.vertex_id, subtask_index)
        send_event(subtask, operator.operator_id, payload)

    return CoordinatorContext(
        job_id=graph.job_id,
        operator_id=operator.operator_id,
        operator_name=operator.name,
        parallelism=vertex.parallelism,
        settings=settings,
        send_event=send,
        run_async=run_async,
        fail_job=fail_job,
        later=later,
        report_backlog=report_backlog,
        location=operator.location,
    )
