"""RowJoinOperator: pairs of rows of two streams with one key, found by whole batches; both sides are kept.

Source: Flink StreamingJoinOperator.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch, Timestamps
from headrace.functions.columnar_specs import RowJoinSpec, shared_key_columns
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.hashed_rows import table_with_hashes
from headrace.operators.columns.joined_columns import SIDES, JoinedColumns
from headrace.operators.columns.matching import FindableRows, MatchRun, Pairs, WantedNumbers
from headrace.operators.columns.ordered_integers import Numbers
from headrace.operators.operator import OperatorContext, Output, TwoInputOperator
from headrace.state.columnar_rows import ColumnarRows, FrozenTables

_TIME: Final = "$time"
_PAIRS_MAX: Final = 1 << 20
"""So many pairs, at most, are made at once, unless one row alone has more."""


class RowJoinOperator(TwoInputOperator):
    """Each row meets the rows of the other stream that came before it: by row, then in order of their arrival.

    A pair has the later one of its rows' timestamps, or none where one of them has none. Rows are kept for those of the
    other stream that are still to come: none, when that has ended.
    """

    def __init__(self, spec: RowJoinSpec) -> None:
        self._keys = (spec.left_keys, spec.right_keys)
        self._shared = shared_key_columns(spec.left_keys, spec.right_keys)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._sides: list[FindableRows] = []
        self._has_ended = [False, False]
        # Of each side: whether a row with a timestamp has come. Without, no pair has one, and none are looked at.
        self._has_times = [False, False]
        self._columns = JoinedColumns(context.types, self._shared, _TIME)
        self._find_by_what()
        for number, (name, schema) in enumerate(
            zip(SIDES, self._columns.kept_schemas, strict=True)
        ):
            side = FindableRows(schema)
            self._sides.append(side)
            stored = ColumnarRows(name, schema, lambda side=side: _as_they_are(side))
            tables = stored.restore(context.state)
            if tables:
                rows = pa.concat_tables(tables).combine_chunks()
                times: Timestamps = rows.column(_TIME).to_numpy()
                self._has_times[number] = bool((times != MIN_TIMESTAMP).any())
                side.add(MatchRun.of(self._numbers(number, rows), rows))

    def _find_by_what(self) -> None:
        """Rows are found by the key itself where it is one integer, which needs no second look, else by its hash."""
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
        """Return the numbers by which rows of a side are found, shape (num_rows,)."""
        numbers: Numbers = rows.column(self._number_columns[number]).to_numpy()
        return numbers

    def _needed(self, number: int) -> list[str]:
        """Return the columns of a side's rows of which a pair is made."""
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


def _as_they_are(side: FindableRows) -> FrozenTables:
    tables = side.tables
    return lambda: tables
