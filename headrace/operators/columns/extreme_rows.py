"""Whole rows with the largest or smallest value of their window: the half before the exchange and the one behind it.

Rows with the same value all stay, in order of arrival; a null is never the largest.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import (
    SLICE,
    ExtremeRows,
    ExtremeRowsSpec,
    LocalExtremeRowsSpec,
)
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.group_codes import group_codes
from headrace.operators.columns.local_operator import LocalOperator
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.state.columnar_rows import KEY_HASH, ColumnarRows, FrozenTables

_NAME: Final = "extreme-rows"
_LOOSE_ROWS_MIN: Final = 65_536


class LocalExtremeRowsOperator(LocalOperator):
    """Emits the rows that are extreme among those it held, with the start of their window in `$slice`.

    How many rows go out depends on how they were cut; which of them stay at the end does not.
    """

    def __init__(self, spec: LocalExtremeRowsSpec) -> None:
        self._rows = spec.rows

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        windows = self._rows.windows
        slices = window_starts(times, windows.offset, windows.size)
        kept = extreme_rows(rows.append_column(SLICE, pa.array(slices)), self._rows)
        return kept.cast(data_schema(self.context.types.output.value_type))


class ExtremeRowsOperator(OneInputOperator):
    """Emits the extreme rows of each window, with its last millisecond as timestamp, when the watermark passes that.

    Rows of windows that have fired are counted as late and dropped; of those that the half before the exchange had
    dropped already nobody knows whether they were.
    """

    def __init__(self, spec: ExtremeRowsSpec) -> None:
        self._rows = spec.rows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        input_schema = data_schema(context.types.inputs[0].value_type)
        self._schema = input_schema.append(pa.field(KEY_HASH, pa.int32()))
        self._state: list[pa.Table] = ColumnarRows(_NAME, self._schema, self._frozen).restore(
            context.state
        )
        self._settled_count = 0
        self._loose_count = sum(table.num_rows for table in self._state)
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        slices: Any = batch.columns().column(SLICE).to_numpy()
        is_late = slices <= self._rows.windows.last_due(self.current_watermark)
        if is_late.any():
            self._late_count.inc(int(np.count_nonzero(is_late)))
            batch = batch.filter(~is_late)
            if not batch.num_rows:
                # Tables of no rows would pile up: only rows bring the next settling near.
                return
        arrays = [*batch.columns().columns, pa.array(batch.key_hashes)]
        self._state.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._loose_count += batch.num_rows
        if self._loose_count >= max(_LOOSE_ROWS_MIN, self._settled_count):
            self._settle()

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        last_due = self._rows.windows.last_due(timestamp_ms)
        is_due = [bool((_slices(table) <= last_due).any()) for table in self._state]
        if any(is_due):
            self._settle()
            self._fire(last_due, output)
        output.emit_watermark(timestamp_ms)

    def _settle(self) -> None:
        """Keep only rows that are extreme among all."""
        rows = extreme_rows(pa.concat_tables(self._state), self._rows)
        self._state = [rows]
        self._settled_count, self._loose_count = rows.num_rows, 0

    def _fire(self, last_due: int, output: Output) -> None:
        (rows,) = self._state
        slices = _slices(rows)
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


def extreme_rows(rows: pa.Table, wanted: ExtremeRows) -> pa.Table:
    """Return the rows with the extreme value among those of equal key and `$slice`, in their order."""
    values = rows.column(wanted.column)
    if values.null_count:
        rows = rows.filter(values.is_valid())
        values = rows.column(wanted.column)
    if rows.num_rows == 0:
        return rows
    # Whatever the type is, its order is that of the integer behind it.
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    codes, count = group_codes(rows, [SLICE, *wanted.key_columns])
    limits = np.iinfo(np.int64)
    extremes = np.full(count, limits.min if wanted.is_largest else limits.max)
    fold = np.maximum if wanted.is_largest else np.minimum
    fold.at(extremes, codes, numbers)
    return rows.filter(pa.array(numbers == extremes[codes]))


def _slices(rows: pa.Table) -> npt.NDArray[np.int64]:
    slices: npt.NDArray[np.int64] = rows.column(SLICE).to_numpy()
    return slices
