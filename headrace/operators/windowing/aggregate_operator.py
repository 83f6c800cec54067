"""WindowAggregateOperator: built-in aggregates over tumbling and sliding event-time windows, a batch at a time.

With the watermark fixed, each pair of row and window is late (the window is gone: no pair), allowed late (it has
fired and fires again, per row) or normal; all pairs of a window are of one class, so classes are handled apart and
the results are those of handling row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.specs.operator_specs import WindowAggregateSpec
from headrace.functions.windowing.assigners import SlidingWindows, TumblingWindows
from headrace.functions.windows import window_starts
from headrace.metrics.names import NUM_LATE_RECORDS_DIVERTED, NUM_LATE_RECORDS_DROPPED
from headrace.operators.runtime.emission import RowEmitter
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.row_times import require_times, window_columns
from headrace.operators.windowing.aggregate_snapshots import AggregateSnapshots, KeyColumns
from headrace.operators.windowing.aggregates import WindowAggregates
from headrace.operators.windowing.slots import SlotTable

_EMIT_ROWS_MAX: Final = 8192

# (window start, keys in order, their slots)
_FiredWindow = tuple[int, Sequence[Any], Sequence[int]]


@dataclass(frozen=True)
class _Pairs:
    """Pairs of row and window: by row and, within a row, newest window first. Both of shape (pairs,)."""

    rows: npt.NDArray[np.int64]
    starts: Timestamps

    def where(self, mask: npt.NDArray[np.bool_]) -> "_Pairs":
        return self if mask.all() else _Pairs(self.rows[mask], self.starts[mask])


class WindowAggregateOperator(OneInputOperator):
    """Aggregates columns per key and window; fires when the watermark passes a window's end.

    Output columns: the key's columns, `window_start`, `window_end`, one per aggregate; rows ordered by window, then
    key, with the window's last millisecond as timestamp. Nulls are ignored as in SQL.
    """

    def __init__(self, spec: WindowAggregateSpec) -> None:
        assigner: SlidingWindows[Any] | TumblingWindows[Any] = spec.assigner
        self._spec = spec
        self._size: int = assigner.size
        self._slide: int = assigner.slide if isinstance(assigner, SlidingWindows) else assigner.size
        self._offset: int = assigner.offset
        self._lateness_ms = spec.allowed_lateness_ms
        self._windows_per_row = -(-self._size // self._slide)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        spec = self._spec
        self._output_schema = data_schema(context.types.output.value_type)
        input_schema = data_schema(context.types.inputs[0].value_type)
        types = {field.name: field.type for field in input_schema}
        targets = self._output_schema.types[len(spec.key_columns) + 2 :]
        self._aggregates = WindowAggregates(spec.aggregates, types, targets)
        self._slots = SlotTable()
        fields = (input_schema.field(name) for name in spec.key_columns)
        keys = KeyColumns(tuple(map(_plain_field, fields)), context.state.key_space)
        AggregateSnapshots(self._slots, self._aggregates, keys).restore(context.state)
        self._late_count = context.metrics.counter(
            NUM_LATE_RECORDS_DROPPED if spec.late_tag_id is None else NUM_LATE_RECORDS_DIVERTED
        )
        self._emitter = RowEmitter(context)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        times = require_times(batch, self.context.operator_name, self._size)
        pairs = self._assign(times)
        live = pairs.where(pairs.starts > self._last_start(self._lateness_ms))
        if len(live.rows) < len(pairs.rows) or self._size < self._slide:
            self._handle_late(batch, times, live, output)
        if len(live.rows) == 0:
            return
        columns = batch.columns()
        key_codes, keys = _encode_keys(columns, self._spec.key_columns)
        last_fired = self._last_start(0)
        is_fired = live.starts <= last_fired
        normal = live.where(~is_fired)
        self._fold(columns, normal, key_codes, keys)
        if is_fired.any():
            self._fold_and_fire(columns, live.where(is_fired), key_codes, keys, output)
            self._slots.mark_fired(last_fired)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        waiting: list[_FiredWindow] = []
        row_count = 0
        for window in self._slots.take_due(self._last_start(0)):
            waiting.append(window)
            row_count += len(window[1])
            if row_count >= _EMIT_ROWS_MAX:
                self._emit(waiting, output)
                waiting, row_count = [], 0
        self._emit(waiting, output)
        starts, slots = self._slots.drop(self._last_start(self._lateness_ms))
        self._aggregates.reset(starts, np.array(slots, dtype=np.int64))
        output.emit_watermark(timestamp_ms)

    def _last_start(self, lateness_ms: int) -> int:
        """Start of the last window that the watermark, less `lateness_ms`, has passed the end of."""
        # A window's last millisecond is start + size - 1. In Python's integers, so that nothing overflows.
        return max(self.current_watermark - lateness_ms - self._size + 1, MIN_TIMESTAMP)

    def _assign(self, timestamps: Timestamps) -> _Pairs:
        newest = window_starts(timestamps, self._offset, self._slide)
        rows = np.arange(len(timestamps), dtype=np.int64)
        count = self._windows_per_row
        if count == 1:
            starts = newest
        else:
            shifts = np.arange(count, dtype=np.int64) * self._slide
            starts = (newest[:, np.newaxis] - shifts).ravel()
            rows = np.repeat(rows, count)
        return _Pairs(rows, starts).where(starts > timestamps[rows] - self._size)

    def _handle_late(
        self, batch: RecordBatch, timestamps: Timestamps, live: _Pairs, output: Output
    ) -> None:
        is_skipped = np.ones(batch.num_rows, dtype=np.bool_)
        is_skipped[live.rows] = False
        limit = max(self.current_watermark - self._lateness_ms, MIN_TIMESTAMP)
        late = np.flatnonzero(is_skipped & (timestamps <= limit))
        if len(late) == 0:
            return
        self._late_count.inc(len(late))
        tag_id = self._spec.late_tag_id
        if tag_id is not None:
            self._emitter.emit_side(tag_id, batch.take(late).rows(), timestamps[late], output)

    def _fold(
        self,
        columns: pa.RecordBatch,
        pairs: _Pairs,
        key_codes: npt.NDArray[np.int64],
        keys: Sequence[Any],
    ) -> npt.NDArray[np.int64]:
        if len(pairs.rows) == 0:
            return pairs.rows
        slots = self._slots.slots_of(pairs.starts, key_codes[pairs.rows], keys)
        self._aggregates.grow(self._slots.capacity)
        self._aggregates.update(columns, pairs.rows, pairs.starts, slots)
        return slots

    def _fold_and_fire(
        self,
        columns: pa.RecordBatch,
        pairs: _Pairs,
        key_codes: npt.NDArray[np.int64],
        keys: Sequence[Any],
        output: Output,
    ) -> None:
        """Rows of windows that have fired: each is folded alone and fires its window again, for its key."""
        for index in range(len(pairs.rows)):
            pair = _Pairs(pairs.rows[index : index + 1], pairs.starts[index : index + 1])
            (slot,) = self._fold(columns, pair, key_codes, keys).tolist()
            key = keys[int(key_codes[pair.rows[0]])]
            self._emit([(int(pair.starts[0]), [key], [slot])], output)

    def _emit(self, windows: Sequence[_FiredWindow], output: Output) -> None:
        if not windows:
            return
        starts = np.repeat(
            [window[0] for window in windows], [len(window[1]) for window in windows]
        )
        keys = [key for window in windows for key in window[1]]
        slots = np.array([slot for window in windows for slot in window[2]], dtype=np.int64)
        fields = list(self._output_schema)
        arrays: list[pa.Array] = []
        for field, values in zip(fields, zip(*keys, strict=True), strict=False):
            arrays.append(pa.array(values, type=field.type))
        arrays += window_columns(starts, starts + self._size, fields[len(arrays) :])
        arrays.extend(self._aggregates.results([window[0] for window in windows], slots))
        columns = pa.RecordBatch.from_arrays(arrays, schema=self._output_schema)
        last_times = starts + (self._size - 1)
        output.emit(RecordBatch.of_columns(self.context.types.output, columns, last_times))


def _encode_keys(
    columns: pa.RecordBatch, names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """Return each row's index into the distinct keys, and these as tuples of the key columns' values."""
    codes = np.zeros(columns.num_rows, dtype=np.int64)
    values: list[list[Any]] = []
    for name in names:
        encoded = _dictionary(columns.column(name))
        values.append(encoded.dictionary.to_pylist())
        codes = codes * len(values[-1]) + encoded.indices.to_numpy()
    if len(names) == 1:
        return codes, [(value,) for value in values[0]]
    distinct = pa.array(codes).dictionary_encode()
    keys: list[tuple[Any, ...]] = []
    for code in distinct.dictionary.to_pylist():
        parts: list[Any] = []
        for column_values in reversed(values):
            code, index = divmod(code, len(column_values))
            parts.append(column_values[index])
        keys.append(tuple(reversed(parts)))
    return distinct.indices.to_numpy().astype(np.int64), keys


def _plain_field(field: pa.Field) -> pa.Field:
    if pa.types.is_dictionary(field.type):
        return pa.field(field.name, field.type.value_type)
    return pa.field(field.name, field.type)


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.dictionary_encode()
