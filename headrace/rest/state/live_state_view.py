"""LiveStateView: reads the state of a running job from its tasks, subtask by subtask, with limits on rows and time.

A task answers between two of its batches (`task/chain/queryable_state`). Subtasks are asked in waves, so that a job of
thousands sends only a few messages at a time, and none once enough rows have arrived.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.checkpoint.errors import StateKeyMismatchError
from headrace.checkpoint.state_queries import (
    DUE_WORDS,
    FiguresQuery,
    LiveStateInfo,
    RowsQuery,
    StateQuery,
    StateTotals,
    refuse_key_count,
    totals_of,
)
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.ids import JobId
from headrace.core.record_batch import stream_bytes
from headrace.gateways.messages import OperatorDescription, SubtaskState
from headrace.gateways.state_reads import (
    LIVE_TABLES,
    READS_AT_ONCE_MAX,
    live_states_of,
    read_subtasks,
)
from headrace.rest.cluster_view import ClusterView
from headrace.rest.models import state as models
from headrace.rest.state.shown_rows import ShownRows
from headrace.state_processor.errors import UnknownStateError

_TABLE_NAMES: Final = {table: name for name, table in LIVE_TABLES.items()}
_READ_TIME_MS: Final = 5_000
_TIME_MAX_MS: Final = 20_000
_PIECE_BYTES_MAX: Final = 512 << 10
"""Maximum bytes of rows that one subtask sends, so that a wave of subtasks fits into 8 MB."""
_KEY_GROUPS_SHOWN: Final = 20


@dataclass(frozen=True)
class RowsRequest:
    """Request for rows. `keys`: as JSON values, None for all; `subtask`: None for all."""

    table: str
    state: str
    keys: Sequence[Any] | None
    subtask: int | None
    limit: int
    includes_expired: bool = False


class LiveStateView:
    """The state of one running job."""

    def __init__(self, cluster: ClusterView, job: JobId) -> None:
        self._cluster: Final = cluster
        self._job: Final = job

    async def operators(self) -> tuple[OperatorDescription, ...]:
        """Return the operators of the job. JobAlreadyEndedError or UnknownJobError if it does not run."""
        return await self._cluster.ask(self._cluster.dispatcher.request_operators(self._job))

    async def figures(self, named: str) -> models.OperatorState:
        """Return the sizes of an operator's states, counted by each subtask. UnknownOperatorError, StateReadError."""
        operator = await self._operator(named)
        answers: list[SubtaskState] = []
        async for wave in self._waves(
            operator, range(operator.parallelism), FiguresQuery(_READ_TIME_MS)
        ):
            answers += [answer for _, answer in wave]
        totals = {
            (one.table, one.state): one
            for one in totals_of([answer.result.figures for answer in answers])
        }
        infos = sorted(live_states_of(answers), key=lambda one: (one.table.value, one.name))
        is_partial = len(answers) < operator.parallelism
        watermark_ms = min((one.result.watermark_ms for one in answers), default=None)
        return models.OperatorState(
            id=operator.operator_id.hex(),
            title=operator.title,
            snapshot=None,
            taken_at=max((one.result.taken_at_ms for one in answers), default=0),
            watermark=None if watermark_ms in (None, MIN_TIMESTAMP) else watermark_ms,
            states=[
                _figures(
                    one,
                    totals.get((one.table.value, one.name))
                    or StateTotals(one.table.value, one.name, ()),
                    is_partial=is_partial,
                )
                for one in infos
            ],
        )

    async def rows(self, named: str, request: RowsRequest) -> models.StateRows:
        """Return rows of one state. UnknownOperatorError, UnknownStateError, StateReadError."""
        table = LIVE_TABLES.get(request.table)
        if table is None:
            raise UnknownStateError(
                f"a running job has no table '{request.table}'", sorted(LIVE_TABLES)
            )
        operator = await self._operator(named)
        indices = _indices(operator, request.subtask)
        query = RowsQuery(
            table,
            request.state,
            keys=b"" if request.keys is None else _encoded(request.state, request.keys),
            # One more shows that there are more.
            row_count_max=request.limit + 1,
            size_bytes_max=_PIECE_BYTES_MAX,
            duration_ms_max=_READ_TIME_MS,
            includes_expired=request.includes_expired,
        )
        shown = ShownRows(request.limit)
        notes: list[str] = []
        answers: list[SubtaskState] = []
        async for wave in self._waves(operator, indices, query):
            for index, answer in wave:
                answers.append(answer)
                notes += _take(shown, index, answer, query)
            if shown.is_full:
                break
        if not any(one.result.is_found for one in answers):
            names = sorted(one.name for one in live_states_of(answers) if one.table is table)
            raise UnknownStateError(
                f"operator '{operator.title}' has no state '{request.state}' in its table {request.table} at the "
                f"moment",
                names,
            )
        if len(answers) < len(indices):
            notes.append(
                f"{len(indices) - len(answers)} subtasks were not read, as the limit was reached."
            )
        return models.StateRows(
            table=request.table,
            state=request.state,
            snapshot=None,
            columns=shown.columns(),
            rows=shown.rows(),
            notes=[*([shown.note] if shown.note else []), *notes],
        )

    async def _operator(self, named: str) -> OperatorDescription:
        return await self._cluster.ask(self._cluster.dispatcher.request_operator(self._job, named))

    async def _waves(
        self, operator: OperatorDescription, indices: Sequence[int], query: StateQuery
    ) -> AsyncGenerator[list[tuple[int, SubtaskState]]]:
        """Yield answers of the subtasks in their order, a wave at a time, until the time is over."""
        end_ms = self._cluster.clock.monotonic_ms() + _TIME_MAX_MS
        for start in range(0, len(indices), READS_AT_ONCE_MAX):
            if self._cluster.clock.monotonic_ms() >= end_ms:
                return
            wave = indices[start : start + READS_AT_ONCE_MAX]
            answers = await self._cluster.ask(
                read_subtasks(
                    self._cluster.dispatcher, self._job, operator.operator_id, wave, query
                )
            )
            yield list(zip(wave, answers, strict=True))


def _indices(operator: OperatorDescription, subtask: int | None) -> Sequence[int]:
    if subtask is None:
        return range(operator.parallelism)
    if subtask >= operator.parallelism:
        raise UnknownStateError(
            f"operator '{operator.title}' has no subtask {subtask}",
            [f"0 to {operator.parallelism - 1}"],
        )
    return [subtask]


def _take(shown: ShownRows, index: int, answer: SubtaskState, query: RowsQuery) -> list[str]:
    """Add the rows of a subtask, and return a note on omitted rows."""
    result = answer.result
    info = next(
        (one for one in result.states if (one.table, one.name) == (query.table, query.state)), None
    )
    opaque = () if info is None else info.opaque
    for piece in result.pieces:
        with pa.ipc.open_stream(piece) as stream:
            shown.add(stream.read_all(), index, opaque)
    notes: list[str] = []
    if result.limit is not None and not shown.is_full:
        notes.append(f"Subtask {index} omitted rows: {result.limit.value}.")
    if info is not None and info.is_waiting:
        notes.append(
            f"Subtask {index} has the state in the restored checkpoint only, as no record has accessed it yet."
        )
    return notes


def _encoded(state: str, keys: Sequence[Any]) -> bytes:
    refuse_key_count(state, len(keys))
    try:
        column = pa.table({"key": pa.array(list(keys))})
        return stream_bytes(column.schema, [column])
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        text = json.dumps(keys)[:100]
        raise StateKeyMismatchError(
            state, f"the keys {text} are not all of one type ({error})"
        ) from None


def _figures(
    info: LiveStateInfo, totals: StateTotals, *, is_partial: bool
) -> models.StateFiguresInfo:
    return models.StateFiguresInfo(
        table=_TABLE_NAMES[info.table],
        name=info.name,
        kind=info.kind,
        unreadable=list(info.opaque),
        is_waiting=info.is_waiting,
        rows=totals.row_count,
        size=totals.size_bytes,
        expired_rows=totals.expired_count,
        oldest_window=totals.oldest_window_ms,
        subtasks=[
            models.StateSubtask(subtask=index, rows=one.row_count, size=one.size_bytes)
            for index, one in enumerate(totals.subtasks)
            if one is not None
        ],
        subtask_skew=totals.subtask_skew,
        is_partial=is_partial or totals.is_partial,
        **parts_of(totals),
    )


def parts_of(totals: StateTotals) -> dict[str, Any]:
    """Return the fields of StateFiguresInfo about key groups, keys and timers."""
    groups = [
        models.StateKeyGroup(
            key_group=group.key_group, subtask=index, rows=group.row_count, size=group.size_bytes
        )
        for index, one in enumerate(totals.subtasks)
        if one is not None
        for group in one.key_groups
    ]
    return {
        "key_group_count": len(groups),
        "key_group_skew": totals.key_group_skew,
        "key_groups": sorted(groups, key=lambda one: one.size, reverse=True)[:_KEY_GROUPS_SHOWN],
        "keys": [
            models.StateKey(key=one["key"], rows=one["rows"], size=one["bytes"])
            for one in totals.top_keys
        ],
        "are_keys_exact": totals.are_top_keys_exact,
        "timers": [
            models.StateTimers(
                domain=one["domain"],
                next=one["next_ms"],
                due={word: one[word] for word in DUE_WORDS},
            )
            for one in totals.timers
        ],
    }
