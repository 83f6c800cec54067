"""SlicedAggregateOperator: partial results per slice in, aggregates per window out.

A slice is kept once, however many windows it lies in; a window is the merger of its slices, made when it fires.
Source: Flink SlicingWindowOperator; Krishnamurthy, Wu, Franklin 2006 (shared paned aggregation).

The column that says which slice of event time a row is of. Pure.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.specs.columnar_specs import SLICE, EventTimeWindows, SlicedAggregateSpec
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.integer_groups import are_in_order, begin_stretches
from headrace.operators.columns.partials import Partials
from headrace.operators.columns.stored_rows import (
    KEY_HASH_FIELD,
    TABLE_ROWS_MAX,
    are_enough_to_settle,
    emit_table,
    table_with_hashes,
    without_late,
)
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.row_times import window_columns
from headrace.state.columnar_rows import ColumnarRows, FrozenTables


def slices_of(rows: pa.Table | pa.RecordBatch) -> Timestamps:
    """Return where the slice of each row begins, epoch ms, shape (num_rows,)."""
    slices: Timestamps = rows.column(SLICE).to_numpy()
    return slices


def different_slices(rows: pa.Table) -> Timestamps:
    """Return where the slices of the rows begin, ascending, each once."""
    slices = slices_of(rows)
    # Rows mostly come in stretches of one slice: only the first of each is looked up.
    return np.unique(slices[begin_stretches(slices)])


_NAME: Final = "sliced-aggregates"
_FIRED: Final = "$fired"
"""Event time up to which the windows of a row have fired on the subtask that had it before a restart."""


class SlicedAggregateOperator(OneInputOperator):
    """Merges partial results per key and slice; fires a window when the watermark has passed its end.

    Output: as of WindowAggregateOperator, ordered by window and key; without window columns and timestamps where there
    is one window that ends with the input. A partial result all of whose windows have fired
    is late: its rows are counted and dropped.
    """

    def __init__(self, spec: SlicedAggregateSpec) -> None:
        self._aggregation = spec.aggregation
        self._windows: EventTimeWindows = spec.aggregation.windows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        input_schema = data_schema(context.types.inputs[0].value_type)
        self._output_schema = data_schema(context.types.output.value_type)
        self._partials = Partials(self._aggregation, input_schema)
        self._schema = input_schema.append(KEY_HASH_FIELD).append(pa.field(_FIRED, pa.int64()))
        self._slice_index = self._schema.get_field_index(SLICE)
        rows = ColumnarRows(_NAME, self._schema, self._frozen)
        # Merged partial results, and others in order of arrival that are not merged yet.
        self._merged = self._schema.empty_table()
        self._loose: list[pa.Table] = rows.restore(context.state)
        self._merged_size = 0
        self._loose_size = sum(map(self._size_of, self._loose))
        # Those of all rows, ascending: a watermark looks at them, and not at the rows.
        self._held_slices = different_slices(pa.concat_tables([self._merged, *self._loose]))
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        is_late = self._last_starts(slices_of(batch.columns())) <= self._windows.last_due(
            self.current_watermark
        )
        never = np.full(batch.num_rows, MIN_TIMESTAMP, dtype=np.int64)
        rows = table_with_hashes(batch, self._schema, pa.array(never))
        rows = without_late(rows, is_late, self._late_count)
        if rows.num_rows == 0:
            return
        self._loose.append(rows)
        self._loose_size += self._size_of(rows)
        self._held_slices = np.union1d(self._held_slices, different_slices(rows))
        if are_enough_to_settle(self._loose_size, self._merged_size):
            self._merge()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        before, self.current_watermark = self.current_watermark, timestamp_ms
        starts = self._due_starts(before, timestamp_ms)
        if len(starts):
            self._merge()
            self._fire(starts, output)
            self._forget(timestamp_ms)
        output.emit_watermark(timestamp_ms)

    def _due_starts(self, before: int, now: int) -> Timestamps:
        """Return the windows with slices whose end the watermark has just passed, in order."""
        slices, windows = self._held_slices, self._windows
        shifts = np.arange(-(-windows.size // windows.slide), dtype=np.int64) * windows.slide
        starts = (self._last_starts(slices)[:, np.newaxis] - shifts).ravel()
        first, last = self._windows.last_due(before), self._windows.last_due(now)
        owners = np.repeat(slices, len(shifts))
        is_due = (starts > first) & (starts <= last) & (owners < starts + windows.size)
        return np.unique(starts[is_due])

    def _fire(self, starts: Timestamps, output: Output) -> None:
        """Emit windows; `_merged` holds everything, in order of slices."""
        slices = slices_of(self._merged)
        begins = np.searchsorted(slices, starts, side="left").tolist()
        ends = np.searchsorted(slices, starts + self._windows.size, side="left").tolist()
        waiting: list[tuple[int, pa.Table]] = []
        row_count = 0
        for start, begin, end in zip(starts.tolist(), begins, ends, strict=True):
            waiting.append((start, self._merged.slice(begin, end - begin)))
            row_count += end - begin
            if row_count >= TABLE_ROWS_MAX:
                self._emit(waiting, output)
                waiting, row_count = [], 0
        if waiting:
            self._emit(waiting, output)

    def _emit(self, windows: list[tuple[int, pa.Table]], output: Output) -> None:
        """Emit windows, each given by its start and the partial results that lie in it."""
        counts = [partials.num_rows for _, partials in windows]
        starts = np.repeat([start for start, _ in windows], counts)
        # All windows at once: from now on the slice of a row is the window for which it stands here.
        partials = pa.concat_tables([partials for _, partials in windows])
        partials = partials.set_column(self._slice_index, SLICE, pa.array(starts))
        by = [SLICE, *self._aggregation.key_columns]
        if self._windows.size > self._windows.slice_ms:
            partials = self._partials.merged(partials, by, (_FIRED,))
        last_ms = slices_of(partials) + (self._windows.size - 1)
        is_new = partials.column(_FIRED).to_numpy() < last_ms
        if not is_new.all():
            partials, last_ms = partials.filter(pa.array(is_new)), last_ms[is_new]
        if not are_in_order(partials, by):
            # Windows are in order, and their times with them.
            partials = partials.sort_by([(name, "ascending") for name in by])
        times = None if self._windows.is_until_end_of_input else last_ms
        emit_table(self._results(partials), times, self.context.types.output, output)

    def _results(self, partials: pa.Table) -> pa.Table:
        """Return the rows that go out, one per window and key: key, window and aggregates."""
        fields = list(self._output_schema)
        arrays: list[Any] = [partials.column(name) for name in self._aggregation.key_columns]
        if not self._windows.is_until_end_of_input:
            starts = slices_of(partials)
            arrays += window_columns(starts, starts + self._windows.size, fields[len(arrays) :])
        arrays += self._partials.results(partials, fields[len(arrays) :])
        return pa.Table.from_arrays(arrays, schema=self._output_schema).combine_chunks()

    def _merge(self) -> None:
        """Bring all partial results of a key and slice together, in order of slices."""
        if not self._loose:
            return
        everything = pa.concat_tables([self._merged, *self._loose])
        # Rows of one key have one hash.
        by = [SLICE, *self._aggregation.key_columns]
        merged = self._partials.merged(everything, by, (_FIRED, KEY_HASH_COLUMN))
        merged = merged.select(self._schema.names)
        if not are_in_order(merged, [SLICE]):
            order = np.argsort(slices_of(merged), kind="stable")
            merged = merged.take(pa.array(order))
        self._merged = merged.combine_chunks()
        self._merged_size = self._size_of(self._merged)
        self._loose, self._loose_size = [], 0

    def _size_of(self, partials: pa.Table) -> int:
        """Return what it takes to merge them, in rows."""
        return partials.num_rows + self._partials.value_count(partials)

    def _forget(self, watermark: int) -> None:
        last_due = self._windows.last_due(watermark)
        slices = slices_of(self._merged)
        gone = int(np.count_nonzero(self._last_starts(slices) <= last_due))
        if gone:
            # A copy of what stays, as a slice would keep the memory of what goes.
            self._merged = self._merged.take(pa.array(np.arange(gone, len(slices))))
            self._merged_size = self._size_of(self._merged)
            self._held_slices = different_slices(self._merged)

    def _last_starts(self, slices: Timestamps) -> Timestamps:
        """Return the start of the last window that each slice lies in, or a later one where it lies in none."""
        starts: Timestamps = slices - np.mod(slices - self._windows.offset, self._windows.slide)
        return starts

    def _frozen(self) -> FrozenTables:
        tables, watermark = [self._merged, *self._loose], self.current_watermark
        index = self._schema.get_field_index(_FIRED)

        def rows() -> list[pa.Table]:
            stored: list[pa.Table] = []
            for table in tables:
                fired = np.maximum(table.column(_FIRED).to_numpy(), watermark)
                table = table.set_column(index, self._schema.field(index), pa.array(fired))
                stored.append(self._partials.cut(table))
            return stored

        return rows
