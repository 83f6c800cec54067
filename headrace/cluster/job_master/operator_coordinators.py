"""OperatorCoordinators: the coordinators of one job, and the events between them and their subtasks.

Runs on the JobMaster's main thread. An event counts only from a subtask's current attempt, once and in order; an
event to a subtask goes to the attempt that runs now. Source: Flink OperatorCoordinatorHolder.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headrace.cluster.job_master.collect_coordinator import CollectCoordinator
from headrace.cluster.job_master.operator_coordinator import (
    NO_LATER_CALLS,
    CoordinatorContext,
    CoordinatorFactories,
    LaterCalls,
    OperatorCoordinator,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import ExecutionAttemptId, JobVertexId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.graph.job_graph import ChainedOperator, JobGraph, JobVertex

SendEvent = Callable[[JobVertexId, int, OperatorId, bytes], None]
BUILT_IN_COORDINATORS: Final[CoordinatorFactories] = {"collect": CollectCoordinator}


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
    ) -> None:
        known = {**BUILT_IN_COORDINATORS, **factories}
        self._coordinators: dict[OperatorId, OperatorCoordinator] = {}
        self._by_vertex: dict[JobVertexId, list[OperatorCoordinator]] = {}
        # Next event number of each operator of each attempt: what was repeated counts once.
        self._next_event: dict[tuple[ExecutionAttemptId, OperatorId], int] = {}
        for vertex in graph.vertices:
            for operator in vertex.operators:
                if not operator.coordinator:
                    continue
                context = _context(
                    graph, vertex, operator, settings, send_event, run_async, fail_job, later
                )
                coordinator = _create(known, operator, context)
                self._coordinators[operator.operator_id] = coordinator
                self._by_vertex.setdefault(vertex.vertex_id, []).append(coordinator)

    def start(self) -> None:
        """Start all, before any task is deployed."""
        for coordinator in self._coordinators.values():
            coordinator.start()

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """The attempt runs and can take events."""
        for coordinator in self._of(attempt_id):
            coordinator.subtask_ready(attempt_id, location)

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """The attempt ended without finishing."""
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
            f"operator '{operator.name}' needs a coordinator of this name, which this host does not bring",
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
) -> CoordinatorContext:
    def send(subtask_index: int, payload: bytes) -> None:
        send_event(vertex.vertex_id, subtask_index, operator.operator_id, payload)

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
    )
