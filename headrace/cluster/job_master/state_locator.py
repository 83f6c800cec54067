"""StateLocator: finds the operators, the subtask or the stored checkpoint whose state a client wants to read.

A running subtask is queried through its TaskManager. Runs on the JobMaster's main thread.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from headrace.checkpoint.errors import SubtaskNotReadableError
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import KEY_FILE
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.ids import ExecutionVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.core.operator_spec import operators_called
from headrace.gateways.errors import StaleLeaderError, UnknownOperatorError
from headrace.gateways.messages import (
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import ChainedOperator, JobVertex
from headrace.rpc.errors import AskTimeoutError, RecipientUnreachableError, RpcConnectionError
from headrace.rpc.proxies import with_timeout

_ANSWER_MARGIN_MS: Final = 4_000.0
"""Time in ms to wait for the answer of a TaskManager beyond the time limit of the read itself.

One second after that limit the TaskManager itself answers that the subtask has not processed the read."""


class StateLocator:
    """Locates state for one JobMaster."""

    def __init__(
        self,
        scheduler: Scheduler,
        task_managers: TaskManagers,
        newest_checkpoint: Callable[[], Awaitable[CompletedCheckpoint | None]],
        settings: Settings,
    ) -> None:
        """Set up the locator; `settings` are the job's over the cluster's."""
        self._scheduler: Final = scheduler
        self._task_managers: Final = task_managers
        self._newest_checkpoint: Final = newest_checkpoint
        self._settings: Final = settings

    def operators(self) -> tuple[OperatorDescription, ...]:
        """Return all operators of the job, in topological order of their vertices."""
        return tuple(_described(vertex, operator) for vertex, operator in self._all())

    def operator(self, named: str) -> OperatorDescription:
        """Return the operator with this uid, or else id, or else name. UnknownOperatorError if there is none."""
        return _described(*self._find(named))

    async def latest_checkpoint(self) -> StoredCheckpoint | None:
        """Return the newest complete checkpoint, or else the one the job started from; None if there is neither."""
        newest = await self._newest_checkpoint()
        if newest is None:
            return None
        return StoredCheckpoint(
            newest.checkpoint_id,
            newest.uri,
            newest.metadata.timestamp_ms,
            self._settings.get_option(KEY_FILE) or "",
        )

    async def read(self, request: StateReadRequest) -> SubtaskState:
        """Read state from the subtask.

        UnknownOperatorError if there is no such operator; StateReadError if the read fails.
        """
        vertex, operator = self._find(request.operator)
        index = request.subtask_index
        if not 0 <= index < vertex.parallelism:
            reason = f"'{vertex.name}' has {vertex.parallelism} subtasks, counted from 0"
            raise SubtaskNotReadableError(f"subtask {index}", reason)
        name = f"'{vertex.subtask_name(index)}'"
        execution = self._scheduler.executions.current(ExecutionVertexId(vertex.vertex_id, index))
        if execution.state is not ExecutionState.RUNNING or execution.slot is None:
            raise SubtaskNotReadableError(name, f"it is {execution.state.name}")
        resource_id = execution.slot.resource_id
        gateway = self._task_managers.gateway_of(resource_id)
        if gateway is None:
            raise SubtaskNotReadableError(name, f"TaskManager {resource_id} is lost")
        patient = with_timeout(gateway, request.query.duration_ms_max + _ANSWER_MARGIN_MS)
        attempt_id = execution.attempt_id
        try:
            result = await patient.read_state(
                attempt_id, self._task_managers.job_master_id, operator.operator_id, request.query
            )
        except (
            AskTimeoutError,
            RecipientUnreachableError,
            RpcConnectionError,
            StaleLeaderError,
        ) as error:
            reason = f"TaskManager {resource_id} does not respond{self._since(execution)}"
            raise SubtaskNotReadableError(name, reason) from error
        return SubtaskState(attempt_id.attempt_number, resource_id.name, result)

    def _since(self, execution: Execution) -> str:
        """Return a clause about the attempt's change since the request; empty if it still runs."""
        if self._scheduler.executions.find(execution.attempt_id) is None:
            return " and the subtask restarts"
        state = execution.state
        return "" if state is ExecutionState.RUNNING else f" and the subtask is {state.name}"

    def _all(self) -> Iterator[tuple[JobVertex, ChainedOperator]]:
        for vertex in self._scheduler.graph.vertices:
            for operator in vertex.operators:
                yield vertex, operator

    def _find(self, named: str) -> tuple[JobVertex, ChainedOperator]:
        pairs = list(self._all())
        vertex_of = {operator.operator_id: vertex for vertex, operator in pairs}
        matches = operators_called([operator for _, operator in pairs], named)
        if len(matches) == 1:
            return vertex_of[matches[0].operator_id], matches[0]
        if matches:
            ids = ", ".join(operator.operator_id.hex() for operator in matches)
            raise UnknownOperatorError(named, ids, "several operators")
        known = ", ".join(dict.fromkeys(one.title for one in self.operators()))
        raise UnknownOperatorError(named, known)


def _described(vertex: JobVertex, operator: ChainedOperator) -> OperatorDescription:
    return OperatorDescription(
        operator.operator_id,
        operator.uid or "",
        operator.name,
        vertex.name,
        vertex.parallelism,
        vertex.max_parallelism,
    )
