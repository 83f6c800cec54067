"""Selection of whole rows per window: the rows with an extreme value, or the first rows in some order.

Both phases are here: `LocalWindowRowsOperator` before the exchange drops rows that cannot be selected, and
`WindowRowsOperator` after it emits the selected rows when the watermark has passed the end of their window. A
`RowSelection` is the rule.
Source: Flink WindowRankOperator, AppendOnlyTopNFunction, with a local phase as of LocalSlicingWindowAggOperator.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.elements import MAX_WATERMARK
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import (
    ROWS,
    SLICE,
    ExtremeRows,
    ExtremeRowsSpec,
    LocalExtremeRowsSpec,
    LocalRankedRowsSpec,
    RankedRows,
    RankedRowsSpec,
)
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.integer_columns import (
    Codes,
    Indexes,
    finer_codes,
    first_rows,
    group_codes,
)
from headrace.operators.columns.local_aggregate import LocalOperator
from headrace.operators.columns.window_assignment import slices_of, without_late
from headrace.operators.columns.window_results import emit_table
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import (
    KEY_HASH_FIELD,
    ColumnarRows,
    FrozenTables,
    MergedRows,
    table_with_hashes,
)

Ranks = npt.NDArray[np.int64]
"""A number for each row, larger for rows that come earlier in the order, shape (num_rows,)."""


class RowSelection(ABC):
    """Rule that selects the rows of a window. `state_name`: name of their state in snapshots."""

    state_name: ClassVar[str]

    @abstractmethod
    def are_selected(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        """Return whether each row is selected among those of its key and slice, shape (num_rows,)."""

    def ordered(self, due: pa.Table) -> pa.Table:
        """Return rows to be emitted, given by window and arrival, in their final order within each window."""
        return due


class ExtremeRowSelection(RowSelection):
    """Selects the rows with the largest or smallest value of their window, all of several equal ones; never a null."""

    state_name = "extreme-rows"

    def __init__(self, wanted: ExtremeRows) -> None:
        self._wanted = wanted

    def are_selected(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        values = rows.column(self._wanted.column)
        is_extreme: npt.NDArray[np.bool_] = np.asarray(values.is_valid())
        if values.null_count:
            rows, slice_codes = rows.filter(pa.array(is_extreme)), slice_codes[is_extreme]
            values = rows.column(self._wanted.column)
        if rows.num_rows == 0:
            return is_extreme
        # Every type that is allowed here has the order of its integers.
        numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
        codes, count = finer_codes(rows, self._wanted.key_columns, slice_codes, slice_count)
        limits = np.iinfo(np.int64)
        extremes = np.full(count, limits.min if self._wanted.is_largest else limits.max)
        fold = np.maximum if self._wanted.is_largest else np.minimum
        fold.at(extremes, codes, numbers)
        is_extreme[is_extreme] = numbers == extremes[codes]
        return is_extreme


class RankedRowSelection(RowSelection):
    """Selects the first rows of a window in the order of some columns: a top n, or the last row of each key.

    Of equal rows the one that arrived first is first; nulls and NaN come last. Within a window, rows are emitted by key
    and in their order.
    """

    state_name = "ranked-rows"

    def __init__(self, wanted: RankedRows) -> None:
        self._wanted = wanted

    def are_selected(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        return are_first(rows, self._wanted, slice_codes, slice_count)

    def ordered(self, due: pa.Table) -> pa.Table:
        if self._wanted.count == 1 or not due.num_rows:
            return due
        codes, _ = finer_codes(due, self._wanted.key_columns, *group_codes(due, [SLICE]))
        return due.take(pa.array(_in_order(codes, _ranks_by_column(due, self._wanted))))


def are_first(
    rows: pa.Table, wanted: RankedRows, slice_codes: Codes, slice_count: int
) -> npt.NDArray[np.bool_]:
    """Return whether each row is among the first `wanted.count` of its key and slice, shape (num_rows,)."""
    codes, count = finer_codes(rows, wanted.key_columns, slice_codes, slice_count)
    if rows.num_rows == 0:
        return np.zeros(0, dtype=np.bool_)
    if wanted.count == 1:
        return _are_the_first(rows, wanted, codes, count)
    order = _in_order(codes, _ranks_by_column(rows, wanted))
    sorted_codes = codes[order]
    begins = np.searchsorted(sorted_codes, np.arange(count))
    ranks = np.arange(len(order)) - begins[sorted_codes]
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[order[ranks < wanted.count]] = True
    return is_first


def _are_the_first(
    rows: pa.Table, wanted: RankedRows, codes: Codes, count: int
) -> npt.NDArray[np.bool_]:
    """Return whether each row is the first of its group; nothing is sorted."""
    left = np.arange(len(codes))
    for name in wanted.order_columns:
        if len(left) == count:
            break
        # Only rows that are equal so far: few if the first column has many values.
        values = rows.column(name)
        chosen = values if len(left) == len(codes) else values.take(pa.array(left))
        ranks = _ranks(chosen, wanted.is_largest)
        largest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(largest, codes[left], ranks)
        left = left[ranks == largest[codes[left]]]
    is_first = np.zeros(len(codes), dtype=np.bool_)
    is_first[left[first_rows(codes[left], count)]] = True
    return is_first


def _in_order(codes: Codes, by_column: list[Ranks]) -> Indexes:
    """Return the rows ordered by group, then by rank, then by arrival."""
    order: Indexes = np.lexsort((*(~ranks for ranks in reversed(by_column)), codes))
    return order


def _ranks_by_column(rows: pa.Table, wanted: RankedRows) -> list[Ranks]:
    return [_ranks(rows.column(name), wanted.is_largest) for name in wanted.order_columns]


def _ranks(values: pa.ChunkedArray, is_largest: bool) -> Ranks:
    kinds = pa.types
    is_integer = kinds.is_signed_integer(values.type) or kinds.is_timestamp(values.type)
    if is_integer and not values.null_count:
        # Inverted, not negated: the smallest integer has no negative.
        numbers: Ranks = values.cast(pa.int64()).to_numpy()
        return numbers if is_largest else ~numbers
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    order = "ascending" if is_largest else "descending"
    options = pc.RankOptions(sort_keys=order, tiebreaker="dense")
    ranks: Ranks = pc.call_function("rank", [values], options).to_numpy().astype(np.int64)
    # Nulls and NaN come last, whatever rank Arrow gave them.
    ranks[values.is_null(nan_is_null=True).to_numpy()] = 0
    return ranks


class LocalWindowRowsOperator(LocalOperator):
    """Emits the selected rows of those it held, with the start of their window in `$slice`.

    The number of emitted rows depends on how they were cut into batches; the final selection does not. `$rows`
    counts a row and the dropped rows that it represents, so that late rows are counted in full: the sum over a window
    is the number of its input rows. If no row of a window is selected, one of them is emitted to represent the others.
    """

    def __init__(self, spec: LocalExtremeRowsSpec | LocalRankedRowsSpec) -> None:
        super().__init__(spec.rows.windows)
        self._selection = _selection_of(spec.rows)

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        slices = window_starts(times, self.windows.offset, self.windows.size)
        rows = rows.append_column(SLICE, pa.array(slices))
        codes, count = group_codes(rows, [SLICE])
        is_kept = self._selection.are_selected(rows, codes, count)
        counts = _rows_stood_for(codes, count, is_kept)
        kept = rows.append_column(ROWS, pa.array(counts)).filter(pa.array(counts > 0))
        return kept.cast(data_schema(self.context.types.output.value_type))


class WindowRowsOperator(OneInputOperator):
    """Emits the selected rows of a window when the watermark passes its last millisecond, which is their timestamp.

    Rows of the one window that lasts until the end of the input have no timestamp. Rows of windows that have fired are
    late: they are counted, with the dropped rows that they represent, and dropped.
    """

    def __init__(self, spec: ExtremeRowsSpec | RankedRowsSpec) -> None:
        self._windows = spec.rows.windows
        self._selection = _selection_of(spec.rows)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        self._input_schema = columns.append(KEY_HASH_FIELD)
        self._schema = pa.schema([field for field in self._input_schema if field.name != ROWS])
        state = ColumnarRows(self._selection.state_name, self._schema, self._frozen)
        restored = state.restore(context.state)
        self._rows = MergedRows(self._schema, restored, state.memory)
        self._buffer_bytes = context.state.row_buffer_bytes
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        is_late = slices_of(batch.columns()) <= self._windows.last_due(self.current_watermark)
        rows = table_with_hashes(batch, self._input_schema)
        rows = without_late(rows, is_late, self._late_count)
        if not rows.num_rows:
            return
        self._rows.add(rows.select(self._schema.names))
        if self._rows.is_merge_due:
            self._merge()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        last_due = self._windows.last_due(timestamp_ms)
        if any(bool((slices_of(table) <= last_due).any()) for table in self._rows.tables):
            self._merge()
            self._fire(last_due, output)
        output.emit_watermark(timestamp_ms)

    def end_keys(self, output: Output) -> None:
        # Small results of many keys are merged at once.
        if self._rows.size_bytes >= self._buffer_bytes:
            self._merge()
            self._fire(self._windows.last_due(MAX_WATERMARK), output)

    def _merge(self) -> None:
        """Merge all rows and keep only the selected ones."""
        rows = pa.concat_tables(self._rows.tables)
        codes, count = group_codes(rows, [SLICE])
        self._rows.replace(rows.filter(pa.array(self._selection.are_selected(rows, codes, count))))

    def _fire(self, last_due: int, output: Output) -> None:
        """Emit the windows up to `last_due`; all rows must be merged."""
        rows = self._rows.merged
        slices = slices_of(rows)
        order = np.argsort(slices, kind="stable")
        count = int(np.count_nonzero(slices <= last_due))
        due = self._selection.ordered(rows.take(pa.array(order[:count])))
        due = due.select(data_schema(self.context.types.output.value_type).names)
        last_ms = slices[order[:count]] + (self._windows.size - 1)
        times = None if self._windows.is_until_end_of_input else last_ms
        # The others stay in order of arrival.
        self._rows.replace(rows.take(pa.array(np.sort(order[count:]))))
        emit_table(due.combine_chunks(), times, self.context.types.output, output)

    def _frozen(self) -> FrozenTables:
        tables = self._rows.tables
        return lambda: tables


def _selection_of(rows: ExtremeRows | RankedRows) -> RowSelection:
    return ExtremeRowSelection(rows) if isinstance(rows, ExtremeRows) else RankedRowSelection(rows)


def _rows_stood_for(
    codes: Codes, count: int, is_kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the number of rows of its group that each row represents, shape (num_rows,); 0 for a dropped row."""
    kept = np.flatnonzero(is_kept)
    first_kept = first_rows(codes[kept], count)
    representatives = first_rows(codes, count)
    has_kept = first_kept >= 0
    representatives[has_kept] = kept[first_kept[has_kept]]
    counts = is_kept.astype(np.int64)
    left_out = np.bincount(codes, minlength=count) - np.bincount(codes[kept], minlength=count)
    counts[representatives] += left_out
    return counts
