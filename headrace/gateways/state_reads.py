"""Reads of a running operator's state: send one query to several of its subtasks, and merge the listed states."""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import LiveStateInfo, StateQuery
from headrace.core.ids import JobId, OperatorId
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.messages import StateReadRequest, SubtaskState

LIVE_TABLES: Final = {
    "keyed": StateTable.KEYED,
    "timers": StateTable.TIMERS,
    "windows": StateTable.COLUMNAR,
    "operator_state": StateTable.OPERATOR,
}
"""Tables of a running job, by the name that users pass."""
READS_AT_ONCE_MAX: Final = 16
"""Number of subtasks that one read asks at the same time."""


async def read_subtasks(
    dispatcher: DispatcherGateway,
    job_id: JobId,
    operator_id: OperatorId,
    indices: Sequence[int],
    query: StateQuery,
) -> list[SubtaskState]:
    """Return the answers of these subtasks, in order. The first error is raised once all have answered."""
    turn = asyncio.Semaphore(READS_AT_ONCE_MAX)

    async def one(index: int) -> SubtaskState:
        request = StateReadRequest(operator_id.hex(), index, query)
        async with turn:
            return await dispatcher.read_state(job_id, request)

    # Wait for all answers: otherwise a retry after an error would compete with its own earlier reads.
    answers = await asyncio.gather(*map(one, indices), return_exceptions=True)
    return [_answer_of(each) for each in answers]


def live_states_of(answers: Sequence[SubtaskState]) -> tuple[LiveStateInfo, ...]:
    """Return the states of any subtask; a state that waits only in some of them does not count as waiting."""
    found: dict[tuple[StateTable, str], LiveStateInfo] = {}
    for answer in answers:
        for one in answer.result.states:
            known = found.get((one.table, one.name))
            if known is None or known.is_waiting:
                found[one.table, one.name] = one
    return tuple(found.values())


def _answer_of(outcome: SubtaskState | BaseException) -> SubtaskState:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
