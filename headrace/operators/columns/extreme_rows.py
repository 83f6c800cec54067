"""Whole rows with the largest or smallest value of their window: the half before the exchange and the one behind it.

Rows with the same value all stay, in order of arrival; a null is never the largest.
"""

from typing import Final

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
)
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.group_codes import Codes, finer_codes, group_codes
from headrace.operators.columns.local_operator import LocalOperator
from headrace.operators.columns.slices import slices_of
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import KEY_HASH, ColumnarRows, FrozenTables

_NAME: Final = "extreme-rows"
_LOOSE_ROWS_MIN: Final = 65_536


class LocalExtremeRowsOperator(LocalOperator):
    """Emits the rows that are extreme among those it held, with the start of their window in `$slice`.

    How many rows go out depends on how they were cut; which of them stay at the end does not. `$rows` counts a row and
    those that were left out for it, so that none that was late is forgotten: its sum over a window is how many came in.
    Where all are null, one of them goes out for the others.
    """

    def __init__(self, spec: LocalExtremeRowsSpec) -> None:
        self._rows = spec.rows

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        windows = self._rows.windows
        slices = window_starts(times, windows.offset, windows.size)
        rows = rows.append_column(SLICE, pa.array(slices))
        codes, count = group_codes(rows, [SLICE])
        is_kept = are_extreme(rows, self._rows, codes, count)
        counts = _rows_stood_for(codes, count, is_kept)
        kept = rows.append_column(ROWS, pa.array(counts)).filter(pa.array(counts > 0))
        return kept.cast(data_schema(self.context.types.output.value_type))


class ExtremeRowsOperator(OneInputOperator):
    """Emits the extreme rows of each window, with its last millisecond as timestamp, when the watermark passes that.

    Rows of windows that have fired are counted as late and dropped, with those that the half before the exchange had
    left out for them.
    """

    def __init__(self, spec: ExtremeRowsSpec) -> None:
        self._rows = spec.rows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        input_schema = data_schema(context.types.inputs[0].value_type)
        self._row_names = [name for name in input_schema.names if name != ROWS]
        kept_fields = [input_schema.field(name) for name in self._row_names]
        self._schema = pa.schema([*kept_fields, pa.field(KEY_HASH, pa.int32())])
        self._state: list[pa.Table] = ColumnarRows(_NAME, self._schema, self._frozen).restore(
            context.state
        )
        self._settled_count = 0
        self._loose_count = sum(table.num_rows for table in self._state)
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        columns = batch.columns()
        slices = slices_of(columns)
        is_late = slices <= self._rows.windows.last_due(self.current_watermark)
        if is_late.any():
            counts: npt.NDArray[np.int64] = columns.column(ROWS).to_numpy()
            self._late_count.inc(int(counts[is_late].sum()))
            batch = batch.filter(~is_late)
            if not batch.num_rows:
                # Tables of no rows would pile up: only rows bring the next settling near.
                return
        columns = batch.columns().select(self._row_names)
        arrays = [*columns.columns, pa.array(batch.key_hashes)]
        self._state.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._loose_count += batch.num_rows
        if self._loose_count >= max(_LOOSE_ROWS_MIN, self._settled_count):
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        last_due = self._rows.windows.last_due(timestamp_ms)
        is_due = [bool((slices_of(table) <= last_due).any()) for table in self._state]
        if any(is_due):
            self._settle()
            self._fire(last_due, output)
        output.emit_watermark(timestamp_ms)

    def _settle(self) -> None:
        """Keep only rows that are extreme among all."""
        rows = pa.concat_tables(self._state)
        is_extreme = are_extreme(rows, self._rows, *group_codes(rows, [SLICE]))
        rows = rows.filter(pa.array(is_extreme))
        self._state = [rows]
        self._settled_count, self._loose_count = rows.num_rows, 0

    def _fire(self, last_due: int, output: Output) -> None:
        (rows,) = self._state
        slices = slices_of(rows)
        order = np.argsort(slices, kind="stable")
        count = int(np.count_nonzero(slices <= last_due))
        due = rows.take(pa.array(order[:count])).select(self._output_names())
        times = slices[order[:count]] + (self._rows.windows.size - 1)
        # In order of arrival, as the next windows' rows came.
        kept = rows.take(pa.array(np.sort(order[count:])))
        self._state, self._settled_count = [kept], kept.num_rows
        emit_table(due.combine_chunks(), times, self.context.types.output, output)

    def _output_names(self) -> list[str]:
        return data_schema(self.context.types.output.value_type).names

    def _frozen(self) -> FrozenTables:
        tables = list(self._state)
        return lambda: tables


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


def _rows_stood_for(
    codes: Codes, count: int, is_kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return of each row for how many of its group it stands, 0 where another one does; shape (num_rows,)."""
    kept = np.flatnonzero(is_kept)
    speakers = np.full(count, -1)
    # Of several values for one group numpy takes the last, so from behind: the first that is kept.
    speakers[codes[kept[::-1]]] = kept[::-1]
    for silent in np.flatnonzero(speakers < 0):
        speakers[silent] = np.argmax(codes == silent)
    counts = is_kept.astype(np.int64)
    left_out = np.bincount(codes, minlength=count) - np.bincount(codes[kept], minlength=count)
    counts[speakers] += left_out
    return counts
