"""PendingStateReads: waits, for a bounded time, for the answers of tasks whose state is read.

A task answers on its own thread, between two batches, or never if it ends before. Main thread of the TaskExecutor.
"""

import asyncio
from typing import Final

from headrace.checkpoint.errors import SubtaskNotReadableError
from headrace.checkpoint.state_queries import StateQuery, StateReadResult
from headrace.cluster.task_executor.task_table import TaskEntry
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.gateways.errors import StateReadTimeoutError
from headrace.rpc.endpoint import RpcEndpoint
from headrace.task.chain.queryable_state import StateOutcome, StateRead

_MARGIN_MS: Final = 1_000.0
"""Time in ms to wait for the answer of a task beyond the time limit of the read itself: its mail may have to wait."""

_Answer = asyncio.Future[StateReadResult]


class PendingStateReads:
    """Pending reads of one TaskExecutor."""

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint: Final = endpoint
        self._waiting: dict[ExecutionAttemptId, list[_Answer]] = {}

    async def read(
        self, entry: TaskEntry, operator_id: OperatorId, query: StateQuery
    ) -> StateReadResult:
        """Let a task read its state, and wait for the answer. StateReadError if it fails or takes too long."""
        answer: _Answer = asyncio.get_running_loop().create_future()

        def answered(outcome: StateOutcome) -> None:
            self._endpoint.run_async(lambda: _complete(answer, outcome))

        read = StateRead(operator_id, query, answered)
        name, waited_ms = f"'{entry.display_name}'", query.duration_ms_max + _MARGIN_MS
        late = StateReadTimeoutError(name, round(waited_ms))
        timer = self._endpoint.schedule_run_async(waited_ms, lambda: _complete(answer, late))
        self._waiting.setdefault(entry.attempt_id, []).append(answer)
        try:
            entry.task.read_state(read)
            return await answer
        except SubtaskNotReadableError as error:
            # The task does not know its own name.
            raise SubtaskNotReadableError(name, error.reason) from None
        finally:
            read.is_given_up = True
            timer.cancel()
            self._forget(entry.attempt_id, answer)

    def task_gone(self, attempt_id: ExecutionAttemptId) -> None:
        """Fail the reads of a task that has ended without an answer."""
        for answer in self._waiting.get(attempt_id, ()):
            _complete(answer, SubtaskNotReadableError("the subtask", "it has ended meanwhile"))

    def _forget(self, attempt_id: ExecutionAttemptId, answer: _Answer) -> None:
        waiting = self._waiting[attempt_id]
        waiting.remove(answer)
        if not waiting:
            del self._waiting[attempt_id]


def _complete(answer: _Answer, outcome: StateOutcome) -> None:
    """Complete a read; the first outcome counts."""
    if answer.done():
        return
    if isinstance(outcome, StateReadResult):
        answer.set_result(outcome)
    else:
        answer.set_exception(outcome)
