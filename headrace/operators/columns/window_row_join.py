"""WindowRowJoinOperator: pairs of rows of two streams with one key and window, made when the window ends."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch
from headrace.functions.columnar_specs import SLICE, WindowRowJoinSpec, shared_key_columns
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.hashed_rows import table_with_hashes
from headrace.operators.columns.joined_columns import SIDES, JoinedColumns
from headrace.operators.columns.matching import Matches, MatchRun, WantedNumbers, matching_rows
from headrace.operators.columns.ordered_integers import Longs
from headrace.operators.columns.slices import slices_of
from headrace.operators.operator import OperatorContext, Output, TwoInputOperator
from headrace.operators.row_times import require_times
from headrace.state.columnar_rows import ColumnarRows, FrozenTables

_PROBE_ROWS: Final = 65_536


class _Side:
    """Rows of windows that have not fired, in order of arrival."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema: Final = schema
        self.tables: list[pa.Table] = []

    def frozen(self) -> FrozenTables:
        tables = list(self.tables)
        return lambda: tables

    def take(self, last_start: int) -> pa.Table:
        """Return the rows of windows up to the one that begins at `last_start`, and keep the others."""
        due: list[pa.Table] = []
        kept: list[pa.Table] = []
        for table in self.tables:
            is_due = slices_of(table) <= last_start
            if is_due.all():
                due.append(table)
            elif not is_due.any():
                kept.append(table)
            else:
                due.append(table.filter(pa.array(is_due)))
                kept.append(table.filter(pa.array(~is_due)))
        self.tables = kept
        return pa.concat_tables(due) if due else self.schema.empty_table()


class WindowRowJoinOperator(TwoInputOperator):
    """Emits the pairs of a window, with its last millisecond as timestamp, when the watermark passes that.

    In order of windows, then of the left row's and the right row's arrival. Rows of windows that have fired are counted
    and dropped.
    """

    def __init__(self, spec: WindowRowJoinSpec) -> None:
        self._windows = spec.windows
        self._shared = shared_key_columns(spec.left_keys, spec.right_keys)
        self._keys = [
            (SLICE, SLICE),
            *zip(spec.left_keys, spec.right_keys, strict=True),
        ]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._sides: list[_Side] = []
        self._columns = JoinedColumns(context.types, self._shared, SLICE)
        for name, schema in zip(SIDES, self._columns.kept_schemas, strict=True):
            side = _Side(schema)
            side.tables = ColumnarRows(name, schema, side.frozen).restore(context.state)
            self._sides.append(side)
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._keep(self._sides[0], batch)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._keep(self._sides[1], batch)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        last_due = self._windows.last_due(timestamp_ms)
        left, right = (side.take(last_due) for side in self._sides)
        if left.num_rows and right.num_rows:
            self._join(left, right, output)
        output.emit_watermark(timestamp_ms)

    def _keep(self, side: _Side, batch: RecordBatch) -> None:
        times = require_times(batch, self.context.operator_name, self._windows.size)
        slices = window_starts(times, self._windows.offset, self._windows.size)
        is_late = slices <= self._windows.last_due(self.current_watermark)
        rows = table_with_hashes(batch, side.schema, pa.array(slices))
        if is_late.any():
            self._late_count.inc(int(np.count_nonzero(is_late)))
            rows = rows.filter(pa.array(~is_late))
        if rows.num_rows:
            side.tables.append(rows)

    def _join(self, left: pa.Table, right: pa.Table, output: Output) -> None:
        first = int(min(slices_of(left).min(), slices_of(right).min()))
        right = right.combine_chunks()
        run = MatchRun.of(self._numbers(right, first), right)
        # Windows one after the other; within each the left rows as they came.
        left = left.take(pa.array(np.argsort(slices_of(left), kind="stable")))
        numbers = self._numbers(left, first)
        for begin in range(0, left.num_rows, _PROBE_ROWS):
            probe = left.slice(begin, _PROBE_ROWS)
            wanted = WantedNumbers(numbers[begin : begin + _PROBE_ROWS])
            matches = matching_rows(wanted, probe, run, self._keys)
            if matches is not None:
                self._emit(probe, right, matches, output)

    def _emit(self, left: pa.Table, right: pa.Table, matches: Matches, output: Output) -> None:
        one = left.take(pa.array(matches.probes))
        found = right.select(self._columns.of_sides[1]).take(pa.array(matches.places))
        made = self._columns.table(one, found)
        times = slices_of(one) + (self._windows.size - 1)
        emit_table(made, times, self.context.types.output, output)

    def _numbers(self, rows: pa.Table, first: int) -> Longs:
        """Return a number for each row that is the same for rows of one key and window, and of few others."""
        windows = (slices_of(rows) - first) // self._windows.size
        hashes: Any = rows.column(KEY_HASH_COLUMN).to_numpy()
        return (windows << 32) ^ hashes.astype(np.int64)
