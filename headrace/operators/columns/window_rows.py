"""Whole rows that stay of their window: the half before the exchange and the one behind it, whatever makes rows stay.

Source: Flink WindowRankOperator, with a buffer before the exchange.

RowSelection: what makes rows stay of their window.

Whole rows with the largest or smallest value of their window.

Rows with the same value all stay, in order of arrival; a null is never the largest.

The first rows of each window in the order of some columns, whole: a top n, or the last row of a key.

Of rows that are equal in all these columns the one that came first is before the others; nulls and NaN come last.
Source: Flink AppendOnlyTopNFunction.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
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
from headrace.operators.columns.integer_groups import (
    Codes,
    Indexes,
    finer_codes,
    first_rows,
    group_codes,
)
from headrace.operators.columns.local_aggregate import LocalOperator
from headrace.operators.columns.sliced_aggregate import slices_of
from headrace.operators.columns.stored_rows import (
    KEY_HASH_FIELD,
    are_enough_to_settle,
    emit_table,
    table_with_hashes,
    without_late,
)
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import ColumnarRows, FrozenTables


class RowSelection(ABC):
    """Which rows stay. `state_name`: of what is kept, in snapshots."""

    state_name: ClassVar[str]

    @abstractmethod
    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        """Return which rows stay among those of equal key and slice, shape (num_rows,)."""

    def ordered(self, due: pa.Table) -> pa.Table:
        """Return rows that go out, in order of windows and then of arrival, in another order within each window."""
        return due


class ExtremeRowSelection(RowSelection):
    """The rows with the extreme value."""

    state_name = "extreme-rows"

    def __init__(self, wanted: ExtremeRows) -> None:
        self._wanted = wanted

    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        return are_extreme(rows, self._wanted, slice_codes, slice_count)


def are_extreme(
    rows: pa.Table, wanted: ExtremeRows, slice_codes: Codes, slice_count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows have the extreme value among those of equal key and `$slice`, shape (num_rows,)."""
    values = rows.column(wanted.column)
    is_extreme: npt.NDArray[np.bool_] = np.asarray(values.is_valid())
    if values.null_count:
        rows, slice_codes = rows.filter(pa.array(is_extreme)), slice_codes[is_extreme]
        values = rows.column(wanted.column)
    if rows.num_rows == 0:
        return is_extreme
    # Whatever the type is, its order is that of the integer behind it.
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    codes, count = finer_codes(rows, wanted.key_columns, slice_codes, slice_count)
    limits = np.iinfo(np.int64)
    extremes = np.full(count, limits.min if wanted.is_largest else limits.max)
    fold = np.maximum if wanted.is_largest else np.minimum
    fold.at(extremes, codes, numbers)
    is_extreme[is_extreme] = numbers == extremes[codes]
    return is_extreme


Places = npt.NDArray[np.int64]
"""For each row a number that is larger the earlier the row comes, shape (num_rows,)."""


class RankedRowSelection(RowSelection):
    """The first rows. Within a window the rows of a key come together, in their order."""

    state_name = "ranked-rows"

    def __init__(self, wanted: RankedRows) -> None:
        self._wanted = wanted

    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        return are_first(rows, self._wanted, slice_codes, slice_count)

    def ordered(self, due: pa.Table) -> pa.Table:
        if self._wanted.count == 1 or not due.num_rows:
            return due
        codes, _ = finer_codes(due, self._wanted.key_columns, *group_codes(due, [SLICE]))
        return due.take(pa.array(_in_order(codes, _places_by_column(due, self._wanted))))


def are_first(
    rows: pa.Table, wanted: RankedRows, slice_codes: Codes, slice_count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows are among the first `wanted.count` of equal key and slice, shape (num_rows,)."""
    codes, count = finer_codes(rows, wanted.key_columns, slice_codes, slice_count)
    if rows.num_rows == 0:
        return np.zeros(0, dtype=np.bool_)
    if wanted.count == 1:
        return _are_the_first(rows, wanted, codes, count)
    order = _in_order(codes, _places_by_column(rows, wanted))
    sorted_codes = codes[order]
    begins = np.searchsorted(sorted_codes, np.arange(count))
    ranks = np.arange(len(order)) - begins[sorted_codes]
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[order[ranks < wanted.count]] = True
    return is_first


def _are_the_first(
    rows: pa.Table, wanted: RankedRows, codes: Codes, count: int
) -> npt.NDArray[np.bool_]:
    """Return the one row of each group that comes first, without sorting."""
    left = np.arange(len(codes))
    for name in wanted.order_columns:
        if len(left) == count:
            break
        # Only rows that are equal so far: few, where the first column tells most of them apart.
        values = rows.column(name)
        chosen = values if len(left) == len(codes) else values.take(pa.array(left))
        places = _places(chosen, wanted.is_largest)
        largest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(largest, codes[left], places)
        left = left[places == largest[codes[left]]]
    is_first = np.zeros(len(codes), dtype=np.bool_)
    is_first[left[first_rows(codes[left], count)]] = True
    return is_first


def _in_order(codes: Codes, by_column: list[Places]) -> Indexes:
    """Return the rows by group, then by place, then as they came."""
    order: Indexes = np.lexsort((*(~places for places in reversed(by_column)), codes))
    return order


def _places_by_column(rows: pa.Table, wanted: RankedRows) -> list[Places]:
    return [_places(rows.column(name), wanted.is_largest) for name in wanted.order_columns]


def _places(values: pa.ChunkedArray, is_largest: bool) -> Places:
    kinds = pa.types
    is_integer = kinds.is_signed_integer(values.type) or kinds.is_timestamp(values.type)
    if is_integer and not values.null_count:
        # Whatever the type is, its order is that of the integer behind it. Not the negative one: the smallest has none.
        numbers: Places = values.cast(pa.int64()).to_numpy()
        return numbers if is_largest else ~numbers
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    order = "ascending" if is_largest else "descending"
    options = pc.RankOptions(sort_keys=order, tiebreaker="dense")
    ranks: Places = pc.call_function("rank", [values], options).to_numpy().astype(np.int64)
    # Arrow has its own place for what has none in the order: here it is behind all others.
    ranks[values.is_null(nan_is_null=True).to_numpy()] = 0
    return ranks


class LocalWindowRowsOperator(LocalOperator):
    """Emits the rows that stay among those it held, with the start of their window in `$slice`.

    How many rows go out depends on how they were cut; which of them stay at the end does not. `$rows` counts a row and
    those that were left out for it, so that none that was late is forgotten: its sum over a window is how many came in.
    Where none of a window stays, one of them goes out for the others.
    """

    def __init__(self, spec: LocalExtremeRowsSpec | LocalRankedRowsSpec) -> None:
        super().__init__(spec.rows.windows)
        self._selection = _selection_of(spec.rows)

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        slices = window_starts(times, self.windows.offset, self.windows.size)
        rows = rows.append_column(SLICE, pa.array(slices))
        codes, count = group_codes(rows, [SLICE])
        is_kept = self._selection.staying(rows, codes, count)
        counts = _rows_stood_for(codes, count, is_kept)
        kept = rows.append_column(ROWS, pa.array(counts)).filter(pa.array(counts > 0))
        return kept.cast(data_schema(self.context.types.output.value_type))


class WindowRowsOperator(OneInputOperator):
    """Emits the rows that stay of each window, with its last millisecond as timestamp, when the watermark passes that.

    They have none where there is one window that ends with the input.

    Rows of windows that have fired are counted as late and dropped, with those that the half before the exchange had
    left out for them.
    """

    def __init__(self, spec: ExtremeRowsSpec | RankedRowsSpec) -> None:
        self._windows = spec.rows.windows
        self._selection = _selection_of(spec.rows)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        self._input_schema = columns.append(KEY_HASH_FIELD)
        self._schema = pa.schema([field for field in self._input_schema if field.name != ROWS])
        self._state: list[pa.Table] = ColumnarRows(
            self._selection.state_name, self._schema, self._frozen
        ).restore(context.state)
        self._settled_count = 0
        self._loose_count = sum(table.num_rows for table in self._state)
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        is_late = slices_of(batch.columns()) <= self._windows.last_due(self.current_watermark)
        rows = table_with_hashes(batch, self._input_schema)
        rows = without_late(rows, is_late, self._late_count)
        if not rows.num_rows:
            # Tables of no rows would pile up: only rows bring the next settling near.
            return
        self._state.append(rows.select(self._schema.names))
        self._loose_count += rows.num_rows
        if are_enough_to_settle(self._loose_count, self._settled_count):
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        last_due = self._windows.last_due(timestamp_ms)
        is_due = [bool((slices_of(table) <= last_due).any()) for table in self._state]
        if any(is_due):
            self._settle()
            self._fire(last_due, output)
        output.emit_watermark(timestamp_ms)

    def _settle(self) -> None:
        """Keep only rows that stay among all."""
        rows = pa.concat_tables(self._state)
        rows = rows.filter(pa.array(self._selection.staying(rows, *group_codes(rows, [SLICE]))))
        self._state = [rows]
        self._settled_count, self._loose_count = rows.num_rows, 0

    def _fire(self, last_due: int, output: Output) -> None:
        (rows,) = self._state
        slices = slices_of(rows)
        order = np.argsort(slices, kind="stable")
        count = int(np.count_nonzero(slices <= last_due))
        due = self._selection.ordered(rows.take(pa.array(order[:count])))
        due = due.select(data_schema(self.context.types.output.value_type).names)
        last_ms = slices[order[:count]] + (self._windows.size - 1)
        times = None if self._windows.is_until_end_of_input else last_ms
        # In order of arrival, as the next windows' rows came.
        kept = rows.take(pa.array(np.sort(order[count:])))
        self._state, self._settled_count = [kept], kept.num_rows
        emit_table(due.combine_chunks(), times, self.context.types.output, output)

    def _frozen(self) -> FrozenTables:
        tables = list(self._state)
        return lambda: tables


def _selection_of(rows: ExtremeRows | RankedRows) -> RowSelection:
    return ExtremeRowSelection(rows) if isinstance(rows, ExtremeRows) else RankedRowSelection(rows)


def _rows_stood_for(
    codes: Codes, count: int, is_kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return of each row for how many of its group it stands, 0 where another one does; shape (num_rows,)."""
    kept = np.flatnonzero(is_kept)
    first_kept = first_rows(codes[kept], count)
    representatives = first_rows(codes, count)
    has_kept = first_kept >= 0
    representatives[has_kept] = kept[first_kept[has_kept]]
    counts = is_kept.astype(np.int64)
    left_out = np.bincount(codes, minlength=count) - np.bincount(codes[kept], minlength=count)
    counts[representatives] += left_out
    return counts
