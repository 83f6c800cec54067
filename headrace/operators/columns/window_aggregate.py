"""WindowAggregateOperator: built-in aggregates over tumbling and sliding event-time windows, a batch at a time.

At a given watermark each pair of row and window is late (the window was removed, and there is no pair), allowed late
(the window has fired, and fires again for each row) or timely. All pairs of a window are of one class, so that the
classes are handled one after the other with the same results as row by row.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import EventTimeWindows
from headrace.functions.specs.operator_specs import WindowAggregateSpec
from headrace.functions.windowing.assigners import SlidingWindows, TumblingWindows
from headrace.metrics.names import NUM_LATE_RECORDS_DIVERTED, NUM_LATE_RECORDS_DROPPED
from headrace.operators.columns.accumulator_table import AccumulatorTable
from headrace.operators.columns.integer_columns import Codes, encoded, first_rows, group_codes
from headrace.operators.columns.window_aggregate_state import FiringWindow, WindowAggregateState
from headrace.operators.columns.window_assignment import (
    WindowPairs,
    assign_windows,
    require_times,
)
from headrace.operators.columns.window_results import WindowResults, in_portions
from headrace.operators.runtime.emission import RowEmitter
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output

_HELD_SLOTS: Final = 131_072
"""Number of pairs of key and window held in BATCH mode before those of ended keys are emitted: 60 MB with short keys.
"""


class WindowAggregateOperator(OneInputOperator):
    """Aggregates columns per key and window; fires when the watermark passes a window's end.

    Output columns: the key's columns, `window_start`, `window_end`, one per aggregate; rows ordered by window, then
    key, with the window's last millisecond as timestamp. Nulls are ignored as in SQL.
    """

    def __init__(self, spec: WindowAggregateSpec) -> None:
        assigner: SlidingWindows[Any] | TumblingWindows[Any] = spec.assigner
        slide = assigner.slide if isinstance(assigner, SlidingWindows) else assigner.size
        self._windows = EventTimeWindows(assigner.size, slide, assigner.offset)
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        spec = self._spec
        self._results = WindowResults(context.types.output, len(spec.key_columns))
        input_schema = data_schema(context.types.inputs[0].value_type)
        types = {field.name: field.type for field in input_schema}
        targets = [field.type for field in self._results.aggregate_fields]
        accumulators = AccumulatorTable(spec.aggregates, types, targets)
        key_fields = tuple(_plain_field(input_schema.field(name)) for name in spec.key_columns)
        self._state = WindowAggregateState(accumulators, key_fields, context.state)
        self._late_count = context.metrics.counter(
            NUM_LATE_RECORDS_DROPPED if spec.late_tag_id is None else NUM_LATE_RECORDS_DIVERTED
        )
        self._emitter = RowEmitter(context)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        times = require_times(batch, self.context.operator_name, self._windows.size)
        pairs = assign_windows(times, self._windows)
        live = pairs.where(pairs.starts > self._last_gone())
        if len(live.rows) < len(pairs.rows) or self._windows.size < self._windows.slide:
            self._handle_late(batch, times, live, output)
        if len(live.rows) == 0:
            return
        columns = batch.columns()
        key_codes, keys = _encode_keys(columns, self._spec.key_columns)
        last_fired = self._windows.last_due(self.current_watermark)
        is_fired = live.starts <= last_fired
        self._state.fold(columns, live.where(~is_fired), key_codes, keys)
        if is_fired.any():
            self._fold_and_fire(columns, live.where(is_fired), key_codes, keys, output)
            self._state.slots.mark_fired(last_fired)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.current_watermark = timestamp_ms
        self._fire_until(timestamp_ms, output)
        self._state.drop(self._last_gone())
        output.emit_watermark(timestamp_ms)

    def end_keys(self, output: Output) -> None:
        # Small results of many keys are given at once.
        if self._state.slots.live_slot_count >= _HELD_SLOTS:
            self._fire_until(MAX_WATERMARK, output)
            self._state.drop(self._windows.last_due(MAX_WATERMARK))

    def _fire_until(self, timestamp_ms: int, output: Output) -> None:
        due = self._state.slots.take_due(self._windows.last_due(timestamp_ms))
        for windows in in_portions(due, lambda window: len(window.keys)):
            self._emit(windows, output)

    def _last_gone(self) -> int:
        """Return the start of the last window that is past its end and the allowed lateness."""
        # In Python's integers, so that nothing overflows.
        return self._windows.last_due(self.current_watermark - self._spec.allowed_lateness_ms)

    def _handle_late(
        self, batch: RecordBatch, timestamps: Timestamps, live: WindowPairs, output: Output
    ) -> None:
        is_skipped = np.ones(batch.num_rows, dtype=np.bool_)
        is_skipped[live.rows] = False
        limit = max(self.current_watermark - self._spec.allowed_lateness_ms, MIN_TIMESTAMP)
        late = np.flatnonzero(is_skipped & (timestamps <= limit))
        if len(late) == 0:
            return
        self._late_count.inc(len(late))
        tag_id = self._spec.late_tag_id
        if tag_id is not None:
            self._emitter.emit_side(tag_id, batch.take(late).rows(), timestamps[late], output)

    def _fold_and_fire(
        self,
        columns: pa.RecordBatch,
        pairs: WindowPairs,
        key_codes: Codes,
        keys: Sequence[Any],
        output: Output,
    ) -> None:
        """Add each row to its window, which has fired, and fire the window again for the row's key."""
        for index in range(len(pairs.rows)):
            pair = WindowPairs(pairs.rows[index : index + 1], pairs.starts[index : index + 1])
            slots = self._state.fold(columns, pair, key_codes, keys).tolist()
            key = keys[int(key_codes[pair.rows[0]])]
            self._emit([FiringWindow(int(pair.starts[0]), [key], slots)], output)

    def _emit(self, windows: Sequence[FiringWindow], output: Output) -> None:
        starts = np.repeat(
            [window.start for window in windows], [len(window.keys) for window in windows]
        )
        keys = [
            pa.array(values, type=field.type)
            for values, field in zip(
                zip(*(key for window in windows for key in window.keys), strict=True),
                self._results.key_fields,
                strict=True,
            )
        ]
        ends = starts + self._windows.size
        self._results.emit(keys, starts, ends, self._state.results(windows), output)


def _encode_keys(
    columns: pa.RecordBatch, names: Sequence[str]
) -> tuple[Codes, list[tuple[Any, ...]]]:
    """Return each row's index into the distinct keys, and these as tuples of the key columns' values."""
    rows = pa.Table.from_batches([columns])
    if len(names) == 1:
        codes, values = encoded(rows.column(names[0]))
        return codes, [(value,) for value in values.to_pylist()]
    codes, count = group_codes(rows, names)
    distinct = rows.select(names).take(pa.array(first_rows(codes, count)))
    return codes, list(zip(*(column.to_pylist() for column in distinct.columns), strict=True))


def _plain_field(field: pa.Field) -> pa.Field:
    arrow_type = field.type
    return pa.field(
        field.name, arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    )
