"""Joins of two streams by whole batches: rows with one key, whenever they come, or rows with one key and window.

Source: Flink StreamingJoinOperator, WindowJoinOperator.
"""

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import (
    SLICE,
    RowJoinSpec,
    WindowRowJoinSpec,
    shared_key_columns,
)
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.integer_columns import Longs, Numbers
from headrace.operators.columns.matching import (
    FindableRows,
    Matches,
    MatchRun,
    Pairs,
    WantedNumbers,
    matching_rows,
)
from headrace.operators.columns.window_assignment import require_times, slices_of, without_late
from headrace.operators.columns.window_results import emit_table
from headrace.operators.runtime.operator import OperatorContext, Output, TwoInputOperator
from headrace.state.columnar_rows import (
    KEY_HASH_FIELD,
    ColumnarRows,
    FrozenTables,
    table_with_hashes,
)
from headrace.state.operator_state_handler import OperatorStateHandler

SIDES: Final = ("left-rows", "right-rows")
"""Names of the states of both sides, in snapshots."""
_TIME: Final = "$time"
_PAIRS_MAX: Final = 1 << 20
"""Limit of pairs that are made at once, unless one row alone has more."""
_PROBE_ROWS: Final = 65_536


class JoinedColumns:
    """Columns of the pairs of a join, and of the stored rows of each side.

    A pair has the columns of its left row, then those of its right row that are not `shared` with the left one. Stored
    rows have two more columns at the end: the hash of the key, and `time_column`.
    """

    def __init__(self, types: OperatorTypes, shared: Collection[str], time_column: str) -> None:
        self.kept_schemas: Final = [
            data_schema(batch_type.value_type)
            .append(KEY_HASH_FIELD)
            .append(pa.field(time_column, pa.int64()))
            for batch_type in types.inputs
        ]
        self._names: Final = data_schema(types.output.value_type).names
        left_names, right_names = (data_schema(each.value_type).names for each in types.inputs)
        self.of_sides: Final = (left_names, [name for name in right_names if name not in shared])
        """The columns of a left and of a right row that are part of a pair."""

    def table(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the pairs of each row of `left` with the row at the same position of `right`."""
        names = zip((left, right), self.of_sides, strict=True)
        columns = [column for side, own in names for column in side.select(own).columns]
        return pa.Table.from_arrays(columns, names=self._names).combine_chunks()


class RowJoinOperator(TwoInputOperator):
    """Joins each row with the earlier rows of the other stream; pairs are in order of both arrivals.

    A pair has the later timestamp of its two rows, or none if one of them has none. Rows are kept for later rows of the
    other stream, until that stream has ended.
    """

    minds_order_of_inputs = False

    def __init__(self, spec: RowJoinSpec) -> None:
        self._keys = (spec.left_keys, spec.right_keys)
        self._shared = shared_key_columns(spec.left_keys, spec.right_keys)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._sides: list[FindableRows] = []
        self._has_ended = [False, False]
        # Whether a row with a timestamp has come, for each side; unless both have, no pair has a timestamp.
        self._has_times = [False, False]
        self._columns = JoinedColumns(context.types, self._shared, _TIME)
        self._choose_numbers()
        for number, (name, schema) in enumerate(
            zip(SIDES, self._columns.kept_schemas, strict=True)
        ):
            stored = ColumnarRows(name, schema, lambda number=number: _frozen(self._sides[number]))
            tables = stored.restore(context.state)
            side = FindableRows(schema, stored.memory)
            self._sides.append(side)
            if tables:
                rows = pa.concat_tables(tables).combine_chunks()
                times: Timestamps = rows.column(_TIME).to_numpy()
                self._has_times[number] = bool((times != MIN_TIMESTAMP).any())
                side.add(MatchRun.of(self._numbers(number, rows), rows))

    def _choose_numbers(self) -> None:
        """Let rows be found by the key if it is one integer, else by its hash, followed by a comparison of keys."""
        columns = [keys[0] for keys in self._keys]
        schemas = self._columns.kept_schemas
        types = [schema.field(name).type for schema, name in zip(schemas, columns, strict=True)]
        if len(self._keys[0]) == 1 and all(map(pa.types.is_signed_integer, types)):
            self._number_columns = columns
            self._compared: list[list[tuple[str, str]]] = [[], []]
        else:
            self._number_columns = [KEY_HASH_COLUMN, KEY_HASH_COLUMN]
            left, right = self._keys
            self._compared = [
                list(zip(left, right, strict=True)),
                list(zip(right, left, strict=True)),
            ]

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._join(0, batch, output)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._join(1, batch, output)

    def end_keys(self, output: Output) -> None:
        for side in self._sides:
            side.clear()

    def end_input(self, input_number: int, output: Output) -> None:
        self._has_ended[input_number] = True
        self._sides[1 - input_number].clear()

    def _join(self, number: int, batch: RecordBatch, output: Output) -> None:
        side = self._sides[number]
        times = batch.timestamps
        if times is None:
            times = np.full(batch.num_rows, MIN_TIMESTAMP, dtype=np.int64)
        else:
            self._has_times[number] = True
        rows = table_with_hashes(batch, side.schema, pa.array(times))
        wanted = WantedNumbers(self._numbers(number, rows))
        self._probe(number, rows, wanted, output)
        if not self._has_ended[1 - number]:
            side.add(wanted.as_run(rows))

    def _probe(self, number: int, rows: pa.Table, wanted: WantedNumbers, output: Output) -> None:
        other = self._sides[1 - number].look_up(wanted)
        if rows.num_rows > 1 and other.count > _PAIRS_MAX:
            middle = rows.num_rows // 2
            for half in (rows.slice(0, middle), rows.slice(middle)):
                self._probe(number, half, WantedNumbers(self._numbers(number, half)), output)
            return
        pairs = other.find(rows, self._compared[number], self._needed(1 - number))
        if pairs is not None:
            self._emit(number, rows, pairs, output)

    def _numbers(self, number: int, rows: pa.Table) -> Numbers:
        """Return the numbers by which rows of a side are looked up, shape (num_rows,)."""
        numbers: Numbers = rows.column(self._number_columns[number]).to_numpy()
        return numbers

    def _needed(self, number: int) -> list[str]:
        """Return the columns of a side's rows that are needed to make pairs."""
        names = self._columns.of_sides[number]
        return [*names, _TIME] if all(self._has_times) else names

    def _emit(self, number: int, rows: pa.Table, pairs: Pairs, output: Output) -> None:
        own = rows.select(self._needed(number)).take(pa.array(pairs.probes))
        left, right = (own, pairs.found) if number == 0 else (pairs.found, own)
        table = self._columns.table(left, right)
        times = None
        if all(self._has_times):
            times = _times_of_pairs(left.column(_TIME).to_numpy(), right.column(_TIME).to_numpy())
        emit_table(table, times, self.context.types.output, output)


def _times_of_pairs(left: Timestamps, right: Timestamps) -> Timestamps | None:
    times: Timestamps = np.maximum(left, right)
    times[np.minimum(left, right) == MIN_TIMESTAMP] = MIN_TIMESTAMP
    return None if (times == MIN_TIMESTAMP).all() else times


def _frozen(side: FindableRows) -> FrozenTables:
    tables = side.tables
    return lambda: tables


class _Side:
    """Rows of windows that have not fired, in order of arrival."""

    def __init__(self, name: str, schema: pa.Schema, states: OperatorStateHandler) -> None:
        self.schema: Final = schema
        state = ColumnarRows(name, schema, self._frozen)
        restored = state.restore(states)
        self._memory: Final = state.memory
        # Tables, and the bytes of each.
        self._held: list[tuple[pa.Table, int]] = []
        for rows in restored:
            self.add(rows)

    def add(self, rows: pa.Table) -> None:
        """Add new rows, at least one."""
        self._held.append((rows, self._memory.add_rows(rows)))

    def take(self, last_start: int) -> pa.Table:
        """Return the rows of windows up to the one that begins at `last_start`, and keep the others."""
        due: list[pa.Table] = []
        kept: list[tuple[pa.Table, int]] = []
        for table, size_bytes in self._held:
            is_due = slices_of(table) <= last_start
            if is_due.all():
                due.append(table)
            elif not is_due.any():
                kept.append((table, size_bytes))
            else:
                due.append(table.filter(pa.array(is_due)))
                rest = table.filter(pa.array(~is_due))
                kept.append((rest, size_bytes * rest.num_rows // table.num_rows))
        self._held = kept
        self._memory.resize(sum(size_bytes for _, size_bytes in kept))
        return pa.concat_tables(due) if due else self.schema.empty_table()

    def _frozen(self) -> FrozenTables:
        tables = [table for table, _ in self._held]
        return lambda: tables


class WindowRowJoinOperator(TwoInputOperator):
    """Emits the pairs of a window when the watermark passes its last millisecond, which is their timestamp.

    Pairs are in order of windows, then of the left and the right row's arrival. Rows of windows that have fired are
    late: they are counted and dropped.
    """

    minds_order_of_inputs = False

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
            side = _Side(name, schema, context.state)
            self._sides.append(side)
        self._late_count = context.metrics.counter(NUM_LATE_RECORDS_DROPPED)

    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        self._keep(self._sides[0], batch)

    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        self._keep(self._sides[1], batch)

    def end_keys(self, output: Output) -> None:
        self._fire(MAX_WATERMARK, output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        self._fire(timestamp_ms, output)
        output.emit_watermark(timestamp_ms)

    def _fire(self, timestamp_ms: int, output: Output) -> None:
        last_due = self._windows.last_due(timestamp_ms)
        left, right = (side.take(last_due) for side in self._sides)
        if left.num_rows and right.num_rows:
            self._join(left, right, output)

    def _keep(self, side: _Side, batch: RecordBatch) -> None:
        times = require_times(batch, self.context.operator_name, self._windows.size)
        slices = window_starts(times, self._windows.offset, self._windows.size)
        is_late = slices <= self._windows.last_due(self.current_watermark)
        rows = table_with_hashes(batch, side.schema, pa.array(slices))
        rows = without_late(rows, is_late, self._late_count)
        if rows.num_rows:
            side.add(rows)

    def _join(self, left: pa.Table, right: pa.Table, output: Output) -> None:
        first = int(min(slices_of(left).min(), slices_of(right).min()))
        right = right.combine_chunks()
        run = MatchRun.of(self._numbers(right, first), right)
        # Windows one after the other; within each the left rows in order of arrival.
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
        """Return a number for each row: equal for rows of one key and window, and rarely equal for others."""
        windows = (slices_of(rows) - first) // self._windows.size
        hashes: Any = rows.column(KEY_HASH_COLUMN).to_numpy()
        return (windows << 32) ^ hashes.astype(np.int64)
