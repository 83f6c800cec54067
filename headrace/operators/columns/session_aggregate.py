"""SessionAggregateOperator: aggregates of columns per key and session, a batch at a time.

Rows are held until the watermark moves, which decides which of them are late; then they become stretches of time, which
are joined with each other and with the sessions that are open. Source: Flink MergingWindowSet, EventTimeSessionWindows.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import (
    SLICE,
    EventTimeWindows,
    SessionAggregateSpec,
    SlicedAggregation,
)
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.group_codes import Codes, group_codes
from headrace.operators.columns.held_rows import HeldRows
from headrace.operators.columns.partials import Partials
from headrace.operators.columns.sessions import group_stretches, late_rows
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.row_times import require_times
from headrace.state.columnar_rows import KEY_HASH, ColumnarRows, FrozenTables

_NAME: Final = "sessions"
_START: Final = "$start"
_LAST: Final = "$last"
_EMIT_ROWS_MAX: Final = 65_536


class SessionAggregateOperator(OneInputOperator):
    """Emits a session when the watermark has passed its last row by the gap; ordered by end, then key.

    Output: as of WindowAggregateOperator. Late rows are counted and dropped.
    """

    def __init__(self, spec: SessionAggregateSpec) -> None:
        self._gap_ms = spec.gap_ms
        self._keys = list(spec.key_columns)
        # Partials need no windows: `$slice` holds the number of the session here. The hash goes with the key through
        # every grouping, as state is found by it.
        self._aggregation = SlicedAggregation(
            EventTimeWindows(1, 1, 0), (*spec.key_columns, KEY_HASH), spec.aggregates
        )

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        columns = columns.append(pa.field(KEY_HASH, pa.int32()))
        self._output_schema = data_schema(context.types.output.value_type)
        self._partials = Partials(self._aggregation, self._aggregation.partial_schema(columns))
        self._schema = self._partials.schema.append(pa.field(_START, pa.int64())).append(
            pa.field(_LAST, pa.int64())
        )
        self._held = HeldRows()
        tables = ColumnarRows(_NAME, self._schema, self._frozen).restore(context.state)
        self._open_sessions = pa.concat_tables([self._schema.empty_table(), *tables])
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        times = require_times(batch, self.context.operator_name)
        columns = batch.columns().append_column(KEY_HASH, pa.array(batch.key_hashes))
        self._held.add(columns, times)
        if self._held.are_enough:
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._settle()
        self.current_watermark = timestamp_ms
        self._fire(output)
        output.emit_watermark(timestamp_ms)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self._settle()

    def _settle(self) -> None:
        """Bring the rows that are held into sessions."""
        if not self._held.row_count:
            return
        rows, times = self._held.take()
        is_late = self._late(rows, times)
        if is_late.any():
            self._late_count.inc(int(np.count_nonzero(is_late)))
            rows, times = rows.filter(pa.array(~is_late)), times[~is_late]
            if rows.num_rows == 0:
                return
        codes, _ = group_codes(rows, self._keys)
        grouping = group_stretches(codes, times, times, self._gap_ms)
        partials = self._partials.of_rows(rows, pa.array(grouping.sessions))
        numbers = partials.column(SLICE).to_numpy()
        made = partials.append_column(_START, pa.array(grouping.starts[numbers]))
        made = made.append_column(_LAST, pa.array(grouping.lasts[numbers]))
        self._join_sessions(made)

    def _late(self, rows: pa.Table, times: Timestamps) -> npt.NDArray[np.bool_]:
        if (times > self.current_watermark - self._gap_ms + 1).all():
            return np.zeros(len(times), dtype=np.bool_)
        names = [*self._keys, KEY_HASH]
        both = pa.concat_tables([rows.select(names), self._open_sessions.select(names)])
        codes, _ = group_codes(both, self._keys)
        starts, lasts = _stretches(self._open_sessions)
        sessions = zip(codes[len(times) :].tolist(), starts.tolist(), lasts.tolist(), strict=True)
        return late_rows(codes[: len(times)], times, sessions, self._gap_ms, self.current_watermark)

    def _join_sessions(self, made: pa.Table) -> None:
        everything = pa.concat_tables([self._open_sessions, made])
        codes, _ = group_codes(everything, self._keys)
        starts, lasts = _stretches(everything)
        grouping = group_stretches(codes, starts, lasts, self._gap_ms)
        if len(grouping.starts) < everything.num_rows:
            place = everything.schema.get_field_index(SLICE)
            numbered = everything.set_column(place, SLICE, pa.array(grouping.sessions))
            merged = self._partials.merged(numbered, [*self._keys, KEY_HASH, SLICE], ())
            numbers: Codes = merged.column(SLICE).to_numpy()
            merged = merged.append_column(_START, pa.array(grouping.starts[numbers]))
            merged = merged.append_column(_LAST, pa.array(grouping.lasts[numbers]))
            everything = merged.select(self._schema.names)
        self._open_sessions = everything.combine_chunks()

    def _fire(self, output: Output) -> None:
        _, lasts = _stretches(self._open_sessions)
        is_due = lasts <= self.current_watermark - self._gap_ms + 1
        if not is_due.any():
            return
        due = self._open_sessions.filter(pa.array(is_due))
        self._open_sessions = self._open_sessions.filter(pa.array(~is_due))
        due = due.sort_by([(_LAST, "ascending"), *((name, "ascending") for name in self._keys)])
        for begin in range(0, due.num_rows, _EMIT_ROWS_MAX):
            self._emit(due.slice(begin, _EMIT_ROWS_MAX), output)

    def _emit(self, due: pa.Table, output: Output) -> None:
        starts, lasts = _stretches(due)
        ends = lasts + self._gap_ms
        fields = list(self._output_schema)
        arrays: list[Any] = [due.column(name) for name in self._keys]
        for times in (starts, ends):
            as_times = pa.array(times).cast(pa.timestamp("ms"))
            arrays.append(as_times.cast(fields[len(arrays)].type))
        arrays += self._partials.results(due, fields[len(arrays) :])
        made = pa.Table.from_arrays(arrays, schema=self._output_schema).combine_chunks()
        emit_table(made, ends - 1, self.context.types.output, output)

    def _frozen(self) -> FrozenTables:
        sessions = self._open_sessions
        return lambda: [sessions]


def _stretches(sessions: pa.Table) -> tuple[Timestamps, Timestamps]:
    return sessions.column(_START).to_numpy(), sessions.column(_LAST).to_numpy()
