"""SessionAggregateOperator: merges partial results of stretches of time into sessions, and emits aggregates of them.

Stretches are held until the watermark moves, which decides which of them are late; then they are joined with each other
and with the open sessions. Source: Flink MergingWindowSet, EventTimeSessionWindows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import LAST, SLICE, START, SessionAggregateSpec
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.integer_columns import Codes, begin_stretches, group_codes
from headrace.operators.columns.local_aggregate import HELD_ROWS_MAX
from headrace.operators.columns.partial_aggregates import Partials
from headrace.operators.columns.window_assignment import without_late
from headrace.operators.columns.window_results import TABLE_ROWS_MAX, WindowResults
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import (
    KEY_HASH_FIELD,
    ColumnarRows,
    FrozenTables,
    table_with_hashes,
)

_NAME: Final = "sessions"


@dataclass(frozen=True)
class SessionGrouping:
    """The session of each stretch, shape (stretches,), and the first and last event time of each session."""

    sessions: Codes
    starts: Timestamps
    lasts: Timestamps


def group_stretches(
    codes: Codes, starts: Timestamps, lasts: Timestamps, gap_ms: int
) -> SessionGrouping:
    """Join stretches [start, last] of one key (`codes`) that are at most `gap_ms` apart; there is at least one."""
    order = np.lexsort((starts, codes))
    codes, starts, lasts = codes[order], starts[order], lasts[order]
    # The latest end of a key's stretches up to each one: by rank, as a key's number times a time could overflow.
    distinct, ranks = np.unique(lasts, return_inverse=True)
    is_new_key = begin_stretches(codes)
    keys = np.cumsum(is_new_key) - 1
    reaches = distinct[np.maximum.accumulate(keys * len(distinct) + ranks) % len(distinct)]
    begins = is_new_key.copy()
    # The distance of two times needs all 64 bits, without a sign.
    distances = (starts[1:] - reaches[:-1]).view(np.uint64)
    begins[1:] |= (starts[1:] > reaches[:-1]) & (distances > gap_ms)
    firsts = np.flatnonzero(begins)
    sessions = np.empty(len(order), dtype=np.int64)
    sessions[order] = np.cumsum(begins) - 1
    return SessionGrouping(sessions, starts[firsts], np.maximum.reduceat(lasts, firsts))


def late_stretches(
    codes: Codes,
    starts: Timestamps,
    lasts: Timestamps,
    sessions: Iterable[tuple[int, int, int]],
    gap_ms: int,
    watermark: int,
) -> npt.NDArray[np.bool_]:
    """Return which stretches [start, last] are late, as if they had come one by one.

    A stretch is late if the session that it would form by itself has ended and no live session is within the gap;
    `sessions` has the (code, start, last) of live sessions. An earlier stretch may keep a later one from being late,
    but not the reverse. So a Python loop handles the keys that have a stretch whose own session has ended.
    """
    is_late = np.zeros(len(codes), dtype=np.bool_)
    is_behind = lasts <= watermark - gap_ms + 1
    if not is_behind.any():
        return is_late
    affected = np.isin(codes, codes[is_behind])
    live: dict[int, list[tuple[int, int]]] = {code: [] for code in codes[affected].tolist()}
    for code, start, last in sessions:
        if code in live:
            live[code].append((start, last))
    for row in np.flatnonzero(affected).tolist():
        start, last = int(starts[row]), int(lasts[row])
        stretches = live[int(codes[row])]
        near = [one for one in stretches if one[0] - gap_ms <= last and start <= one[1] + gap_ms]
        if not near and is_behind[row]:
            is_late[row] = True
            continue
        joined = min([start, *(one[0] for one in near)]), max([last, *(one[1] for one in near)])
        live[int(codes[row])] = [*(one for one in stretches if one not in near), joined]
    return is_late


class SessionAggregateOperator(OneInputOperator):
    """Emits a session when the watermark has passed its last row by the gap; ordered by end, then key.

    The output columns are those of WindowAggregateOperator. Late rows are counted and dropped.
    """

    def __init__(self, spec: SessionAggregateSpec) -> None:
        self._gap_ms = spec.aggregation.gap_ms
        self._keys = list(spec.aggregation.key_columns)
        # `$slice` holds the number of the session here. Rows are grouped by the hash too, so that state keeps it.
        sliced = spec.aggregation.sliced
        self._aggregation = replace(sliced, key_columns=(*sliced.key_columns, KEY_HASH_COLUMN))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        self._results = WindowResults(context.types.output, len(self._keys))
        self._schema = columns.insert(len(self._keys), KEY_HASH_FIELD)
        extent = (START, LAST)
        self._partials = Partials(
            self._aggregation, pa.schema([one for one in self._schema if one.name not in extent])
        )
        self._held: list[pa.Table] = []
        self._held_count = 0
        state = ColumnarRows(_NAME, self._schema, self._frozen)
        tables = state.restore(context.state)
        self._memory = state.memory
        self._buffer_bytes = context.state.row_buffer_bytes
        self._hold_open(pa.concat_tables([self._schema.empty_table(), *tables]))
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        stretches = table_with_hashes(batch, self._schema)
        self._held.append(stretches)
        self._held_count += batch.num_rows
        self._memory.add_rows(stretches)
        if self._held_count >= HELD_ROWS_MAX:
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._settle()
        self.current_watermark = timestamp_ms
        self._fire(timestamp_ms, output)
        output.emit_watermark(timestamp_ms)

    def end_keys(self, output: Output) -> None:
        # Small results of many keys are merged at once.
        if self._memory.size_bytes >= self._buffer_bytes:
            self._settle()
            self._fire(MAX_WATERMARK, output)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self._settle()

    def _settle(self) -> None:
        """Join the held stretches with the open sessions."""
        if not self._held:
            return
        stretches = pa.concat_tables(self._held)
        self._held, self._held_count = [], 0
        self._memory.resize(self._open_bytes)
        stretches = without_late(stretches, self._late(stretches), self._late_count)
        if stretches.num_rows:
            self._join_sessions(stretches)

    def _late(self, stretches: pa.Table) -> npt.NDArray[np.bool_]:
        starts, lasts = _extents(stretches)
        if (lasts > self.current_watermark - self._gap_ms + 1).all():
            return np.zeros(len(lasts), dtype=np.bool_)
        names = [*self._keys, KEY_HASH_COLUMN]
        both = pa.concat_tables([stretches.select(names), self._open_sessions.select(names)])
        codes, _ = group_codes(both, self._keys)
        extents = (extent.tolist() for extent in _extents(self._open_sessions))
        sessions = zip(codes[len(lasts) :].tolist(), *extents, strict=True)
        return late_stretches(
            codes[: len(lasts)], starts, lasts, sessions, self._gap_ms, self.current_watermark
        )

    def _join_sessions(self, made: pa.Table) -> None:
        everything = pa.concat_tables([self._open_sessions, made])
        codes, _ = group_codes(everything, self._keys)
        starts, lasts = _extents(everything)
        grouping = group_stretches(codes, starts, lasts, self._gap_ms)
        if len(grouping.starts) < everything.num_rows:
            place = everything.schema.get_field_index(SLICE)
            numbered = everything.set_column(place, SLICE, pa.array(grouping.sessions))
            merged = self._partials.merged(numbered, [*self._keys, KEY_HASH_COLUMN, SLICE], ())
            numbers: Codes = merged.column(SLICE).to_numpy()
            merged = merged.append_column(START, pa.array(grouping.starts[numbers]))
            merged = merged.append_column(LAST, pa.array(grouping.lasts[numbers]))
            everything = merged.select(self._schema.names)
        self._hold_open(everything.combine_chunks())

    def _hold_open(self, sessions: pa.Table) -> None:
        """Replace all held rows by these sessions."""
        self._open_sessions, self._open_bytes = sessions, sessions.nbytes
        self._memory.resize(self._open_bytes)

    def _fire(self, watermark: int, output: Output) -> None:
        _, lasts = _extents(self._open_sessions)
        is_due = lasts <= watermark - self._gap_ms + 1
        if not is_due.any():
            return
        due = self._open_sessions.filter(pa.array(is_due))
        self._hold_open(self._open_sessions.filter(pa.array(~is_due)))
        due = due.sort_by([(LAST, "ascending"), *((name, "ascending") for name in self._keys)])
        for begin in range(0, due.num_rows, TABLE_ROWS_MAX):
            self._emit(due.slice(begin, TABLE_ROWS_MAX), output)

    def _emit(self, due: pa.Table, output: Output) -> None:
        starts, lasts = _extents(due)
        keys = [due.column(name) for name in self._keys]
        aggregates = self._partials.results(due, self._results.aggregate_fields)
        self._results.emit(keys, starts, lasts + self._gap_ms, aggregates, output)

    def _frozen(self) -> FrozenTables:
        # Before a barrier this has been done; readers of live state come without a barrier.
        self._settle()
        sessions = self._open_sessions
        return lambda: [self._partials.cut(sessions)]


def _extents(sessions: pa.Table) -> tuple[Timestamps, Timestamps]:
    return sessions.column(START).to_numpy(), sessions.column(LAST).to_numpy()
