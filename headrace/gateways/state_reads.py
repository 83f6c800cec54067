"""Reads of a running operator's state: one query put to several of its subtasks, and the states that they name."""

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
"""Tables of a running job, by the name that a user asks with."""
READS_AT_ONCE_MAX: Final = 16
"""Subtasks that one read asks at the same time."""


async def read_subtasks(
    dispatcher: DispatcherGateway,
    job_id: JobId,
    operator_id: OperatorId,
    indices: Sequence[int],
    query: StateQuery,
) -> list[SubtaskState]:
    """Return the answers of these subtasks, in their order. The first error is raised once all have answered."""
    turn = asyncio.Semaphore(READS_AT_ONCE_MAX)

    async def one(index: int) -> SubtaskState:
        request = StateReadRequest(operator_id.hex(), index, query)
        async with turn:
            return await dispatcher.read_state(job_id, request)

    # All of them are waited for: whoever asks again after an error would else find reads of its own still going on.
    answers = await asyncio.gather(*map(one, indices), return_exceptions=True)
    return [_answer_of(each) for each in answers]


def live_states_of(answers: Sequence[SubtaskState]) -> tuple[LiveStateInfo, ...]:
    """Return the states of any subtask; one that waits in some of them and is there in others is there."""
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
