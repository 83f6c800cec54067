"""Output of vectorised operators: tables as batches, and the results of windows as rows."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from headrace.core.record_batch import BatchType, RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.operators.runtime.operator import Output

TABLE_ROWS_MAX: Final = 65_536
"""Approximate maximum of rows that are created at once for windows that fire together."""

_Fired = TypeVar("_Fired")


def emit_table(
    table: pa.Table, times: Timestamps | None, batch_type: BatchType, output: Output
) -> None:
    """Emit the rows of a table, whose `times` have shape (num_rows,), as one batch per chunk.

    A table whose chunks were combined may still have several: one chunk holds at most 2 GB of texts.
    """
    begin = 0
    for columns in table.to_batches():
        end = begin + columns.num_rows
        own_times = None if times is None else times[begin:end]
        output.emit(RecordBatch.of_columns(batch_type, columns, own_times))
        begin = end


def in_portions(
    windows: Iterable[_Fired], row_count: Callable[[_Fired], int]
) -> Iterator[list[_Fired]]:
    """Yield windows that fire together in lists of about TABLE_ROWS_MAX rows."""
    portion: list[_Fired] = []
    count = 0
    for window in windows:
        portion.append(window)
        count += row_count(window)
        if count >= TABLE_ROWS_MAX:
            yield portion
            portion, count = [], 0
    if portion:
        yield portion


class WindowResults:
    """Emits one row per key and window: key columns, start and end of the window, aggregates.

    The timestamp of a row is the last millisecond of its window. Rows of the one window that lasts until the end of
    the input (`are_timed` is False) have neither window columns nor a timestamp.
    """

    def __init__(self, batch_type: BatchType, key_count: int, *, are_timed: bool = True) -> None:
        self._batch_type = batch_type
        self._schema = data_schema(batch_type.value_type)
        self._are_timed = are_timed
        fields = list(self._schema)
        first = key_count + (2 if are_timed else 0)
        self._window_fields: Final = fields[key_count:first]
        self.key_fields: Final = fields[:key_count]
        self.aggregate_fields: Final = fields[first:]

    def emit(
        self,
        keys: Sequence[pa.Array | pa.ChunkedArray],
        starts: Timestamps,
        ends: Timestamps,
        aggregates: Sequence[pa.Array | pa.ChunkedArray],
        output: Output,
    ) -> None:
        """Emit rows; every column, and `starts` and `ends` of the windows in epoch ms, have shape (num_rows,)."""
        bounds = [
            pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(field.type)
            for times, field in zip((starts, ends), self._window_fields, strict=False)
        ]
        arrays = [*keys, *bounds, *aggregates]
        table = pa.Table.from_arrays(arrays, schema=self._schema).combine_chunks()
        emit_table(table, ends - 1 if self._are_timed else None, self._batch_type, output)
