"""Whole rows that stay of their window: the half before the exchange and the one behind it, whatever makes rows stay.

`row_selection.py` says what that may be. Source: Flink WindowRankOperator, with a buffer before the exchange.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import (
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
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.extreme_rows import ExtremeRowSelection
from headrace.operators.columns.group_codes import Codes, first_rows, group_codes
from headrace.operators.columns.hashed_rows import KEY_HASH_FIELD, table_with_hashes
from headrace.operators.columns.late_rows import without_late
from headrace.operators.columns.local_operator import LocalOperator
from headrace.operators.columns.loose_rows import are_enough_to_settle
from headrace.operators.columns.ranked_rows import RankedRowSelection
from headrace.operators.columns.row_selection import RowSelection
from headrace.operators.columns.slices import slices_of
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import ColumnarRows, FrozenTables


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
