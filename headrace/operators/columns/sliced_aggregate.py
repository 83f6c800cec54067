"""SlicedAggregateOperator: merges partial results per slice, and emits aggregates per window.

A slice is stored once, even if several windows contain it; a window is merged from its slices when it fires.
Source: Flink SlicingWindowOperator; Krishnamurthy, Wu, Franklin 2006 (shared paned aggregation).
"""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import SLICE, EventTimeWindows, SlicedAggregateSpec
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.integer_columns import are_in_order
from headrace.operators.columns.partial_aggregates import Partials
from headrace.operators.columns.window_assignment import (
    assign_windows,
    distinct_slices,
    slices_of,
    without_late,
)
from headrace.operators.columns.window_results import WindowResults, in_portions
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import (
    KEY_HASH_FIELD,
    ColumnarRows,
    FrozenTables,
    MergedRows,
    table_with_hashes,
)

_NAME: Final = "sliced-aggregates"
_FIRED: Final = "$fired"
"""Column with the event time up to which a row's windows had fired, on the subtask that owned it before a restart."""


class SlicedAggregateOperator(OneInputOperator):
    """Merges partial results per key and slice; fires a window when the watermark has passed its end.

    The output columns are those of WindowAggregateOperator, ordered by window and key; without window columns and
    timestamps if there is one window that ends with the input. A partial result is late if all its windows have fired:
    its rows are counted and dropped.
    """

    def __init__(self, spec: SlicedAggregateSpec) -> None:
        self._windows: EventTimeWindows = spec.aggregation.windows
        self._aggregation = spec.aggregation
        self._keys = list(spec.aggregation.key_columns)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        input_schema = data_schema(context.types.inputs[0].value_type)
        self._results = WindowResults(
            context.types.output,
            len(self._keys),
            are_timed=not self._windows.is_until_end_of_input,
        )
        self._partials = Partials(self._aggregation, input_schema)
        self._schema = input_schema.append(KEY_HASH_FIELD).append(pa.field(_FIRED, pa.int64()))
        self._slice_index = self._schema.get_field_index(SLICE)
        state = ColumnarRows(_NAME, self._schema, self._frozen)
        restored = state.restore(context.state)
        # Partial results; merged ones are in order of slices.
        self._rows = MergedRows(self._schema, restored, state.memory, self._size_of)
        self._buffer_bytes = context.state.row_buffer_bytes
        # The slices of all rows, ascending: a watermark checks them instead of the rows.
        self._held_slices = distinct_slices(pa.concat_tables(self._rows.tables))
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        last_due = self._windows.last_due(self.current_watermark)
        is_late = self._last_starts(slices_of(batch.columns())) <= last_due
        never = np.full(batch.num_rows, MIN_TIMESTAMP, dtype=np.int64)
        rows = table_with_hashes(batch, self._schema, pa.array(never))
        rows = without_late(rows, is_late, self._late_count)
        if rows.num_rows == 0:
            return
        self._rows.add(rows)
        self._held_slices = np.union1d(self._held_slices, distinct_slices(rows))
        if self._rows.is_merge_due:
            self._merge()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        before, self.current_watermark = self.current_watermark, timestamp_ms
        self._fire_between(before, timestamp_ms, output)
        output.emit_watermark(timestamp_ms)

    def end_keys(self, output: Output) -> None:
        # Small results of many keys are merged at once.
        if self._rows.size_bytes >= self._buffer_bytes:
            self._fire_between(self.current_watermark, MAX_WATERMARK, output)

    def _fire_between(self, before: int, now: int, output: Output) -> None:
        starts = self._due_starts(before, now)
        if len(starts):
            self._merge()
            self._fire(starts, output)
            self._forget(now)

    def _due_starts(self, before: int, now: int) -> Timestamps:
        """Return the windows with slices whose end the watermark has just passed, in order."""
        starts = assign_windows(self._held_slices, self._windows).starts
        is_due = (starts > self._windows.last_due(before)) & (starts <= self._windows.last_due(now))
        return np.unique(starts[is_due])

    def _fire(self, starts: Timestamps, output: Output) -> None:
        """Emit windows; all rows must be merged."""
        merged = self._rows.merged
        slices = slices_of(merged)
        begins = np.searchsorted(slices, starts, side="left").tolist()
        ends = np.searchsorted(slices, starts + self._windows.size, side="left").tolist()
        windows = (
            (start, merged.slice(begin, end - begin))
            for start, begin, end in zip(starts.tolist(), begins, ends, strict=True)
        )
        for portion in in_portions(windows, lambda window: window[1].num_rows):
            self._emit(portion, output)

    def _emit(self, windows: list[tuple[int, pa.Table]], output: Output) -> None:
        """Emit windows, each given by its start and its partial results."""
        counts = [partials.num_rows for _, partials in windows]
        starts = np.repeat([start for start, _ in windows], counts)
        # From here on the slice of a row is the start of its window, so that all windows are merged at once.
        partials = pa.concat_tables([partials for _, partials in windows])
        partials = partials.set_column(self._slice_index, SLICE, pa.array(starts))
        by = [SLICE, *self._keys]
        if self._windows.size > self._windows.slice_ms:
            partials = self._partials.merged(partials, by, (_FIRED,))
        last_ms = slices_of(partials) + (self._windows.size - 1)
        is_new = partials.column(_FIRED).to_numpy() < last_ms
        if not is_new.all():
            partials = partials.filter(pa.array(is_new))
        if not are_in_order(partials, by):
            partials = partials.sort_by([(name, "ascending") for name in by])
        starts = slices_of(partials)
        keys = [partials.column(name) for name in self._keys]
        aggregates = self._partials.results(partials, self._results.aggregate_fields)
        self._results.emit(keys, starts, starts + self._windows.size, aggregates, output)

    def _merge(self) -> None:
        """Merge all partial results of a key and slice, in order of slices."""
        if not self._rows.pending:
            return
        # Rows of one key have one hash.
        by = [SLICE, *self._keys]
        everything = pa.concat_tables(self._rows.tables)
        merged = self._partials.merged(everything, by, (_FIRED, KEY_HASH_COLUMN))
        merged = merged.select(self._schema.names)
        if not are_in_order(merged, [SLICE]):
            order = np.argsort(slices_of(merged), kind="stable")
            merged = merged.take(pa.array(order))
        self._rows.replace(merged.combine_chunks())

    def _size_of(self, partials: pa.Table) -> int:
        return partials.num_rows + self._partials.value_count(partials)

    def _forget(self, watermark: int) -> None:
        """Delete the slices all of whose windows have fired; all rows must be merged."""
        slices = slices_of(self._rows.merged)
        is_gone = self._last_starts(slices) <= self._windows.last_due(watermark)
        gone = int(np.count_nonzero(is_gone))
        if gone:
            # A copy of the remaining rows, as a view would keep the memory of all.
            kept = self._rows.merged.take(pa.array(np.arange(gone, len(slices))))
            self._rows.replace(kept)
            self._held_slices = distinct_slices(kept)

    def _last_starts(self, slices: Timestamps) -> Timestamps:
        """Return the start of the last window of each slice, or of an earlier window if it lies in none."""
        return window_starts(slices, self._windows.offset, self._windows.slide)

    def _frozen(self) -> FrozenTables:
        tables, watermark = self._rows.tables, self.current_watermark
        index = self._schema.get_field_index(_FIRED)

        def rows() -> list[pa.Table]:
            stored: list[pa.Table] = []
            for table in tables:
                fired = np.maximum(table.column(_FIRED).to_numpy(), watermark)
                table = table.set_column(index, self._schema.field(index), pa.array(fired))
                stored.append(self._partials.cut(table))
            return stored

        return rows
