"""SessionAggregateOperator: partial results of stretches of time in, aggregates per key and session out.

Stretches are held until the watermark moves, which decides which of them are late; then they are joined with each other
and with the sessions that are open. Source: Flink MergingWindowSet, EventTimeSessionWindows.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import LAST, SLICE, START, SessionAggregateSpec
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.emitted_tables import TABLE_ROWS_MAX, emit_table
from headrace.operators.columns.group_codes import Codes, group_codes
from headrace.operators.columns.hashed_rows import KEY_HASH_FIELD, table_with_hashes
from headrace.operators.columns.held_rows import HELD_ROWS_MAX
from headrace.operators.columns.late_rows import without_late
from headrace.operators.columns.partials import Partials
from headrace.operators.columns.sessions import group_stretches, late_stretches
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.row_times import window_columns
from headrace.state.columnar_rows import ColumnarRows, FrozenTables

_NAME: Final = "sessions"


class SessionAggregateOperator(OneInputOperator):
    """Emits a session when the watermark has passed its last row by the gap; ordered by end, then key.

    Output: as of WindowAggregateOperator. Late rows are counted and dropped.
    """

    def __init__(self, spec: SessionAggregateSpec) -> None:
        self._gap_ms = spec.aggregation.gap_ms
        self._keys = list(spec.aggregation.key_columns)
        # `$slice` holds the number of the session here. The hash goes with the key through every grouping, as state is
        # found by it.
        sliced = spec.aggregation.sliced
        self._aggregation = replace(sliced, key_columns=(*sliced.key_columns, KEY_HASH_COLUMN))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        self._output_schema = data_schema(context.types.output.value_type)
        self._schema = columns.insert(len(self._keys), KEY_HASH_FIELD)
        extent = (START, LAST)
        self._partials = Partials(
            self._aggregation, pa.schema([one for one in self._schema if one.name not in extent])
        )
        self._held: list[pa.Table] = []
        self._held_count = 0
        tables = ColumnarRows(_NAME, self._schema, self._frozen).restore(context.state)
        self._open_sessions = pa.concat_tables([self._schema.empty_table(), *tables])
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._held.append(table_with_hashes(batch, self._schema))
        self._held_count += batch.num_rows
        if self._held_count >= HELD_ROWS_MAX:
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._settle()
        self.current_watermark = timestamp_ms
        self._fire(output)
        output.emit_watermark(timestamp_ms)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self._settle()

    def _settle(self) -> None:
        """Bring the stretches that are held into sessions."""
        if not self._held:
            return
        stretches = pa.concat_tables(self._held)
        self._held, self._held_count = [], 0
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
        self._open_sessions = everything.combine_chunks()

    def _fire(self, output: Output) -> None:
        _, lasts = _extents(self._open_sessions)
        is_due = lasts <= self.current_watermark - self._gap_ms + 1
        if not is_due.any():
            return
        due = self._open_sessions.filter(pa.array(is_due))
        self._open_sessions = self._open_sessions.filter(pa.array(~is_due))
        due = due.sort_by([(LAST, "ascending"), *((name, "ascending") for name in self._keys)])
        for begin in range(0, due.num_rows, TABLE_ROWS_MAX):
            self._emit(due.slice(begin, TABLE_ROWS_MAX), output)

    def _emit(self, due: pa.Table, output: Output) -> None:
        starts, lasts = _extents(due)
        ends = lasts + self._gap_ms
        fields = list(self._output_schema)
        arrays: list[Any] = [due.column(name) for name in self._keys]
        arrays += window_columns(starts, ends, fields[len(arrays) :])
        arrays += self._partials.results(due, fields[len(arrays) :])
        made = pa.Table.from_arrays(arrays, schema=self._output_schema).combine_chunks()
        emit_table(made, ends - 1, self.context.types.output, output)

    def _frozen(self) -> FrozenTables:
        # Before a barrier it is done already; whoever reads the running operator comes without one.
        self._settle()
        sessions = self._open_sessions
        return lambda: [self._partials.cut(sessions)]


def _extents(sessions: pa.Table) -> tuple[Timestamps, Timestamps]:
    return sessions.column(START).to_numpy(), sessions.column(LAST).to_numpy()
