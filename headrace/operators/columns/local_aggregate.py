"""Local phase of aggregates: holds rows until a vectorised step is worth it, and emits partial results.

`LocalOperator` is the base of all operators of this phase. It keeps nothing over a checkpoint: the results of its
rows are emitted before each barrier and each watermark. Source: Flink LocalSlicingWindowAggOperator.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.core.types.arrow_types import data_schema
from headrace.functions.specs.columnar_specs import (
    LAST,
    SLICE,
    START,
    EventTimeWindows,
    LocalAggregateSpec,
    LocalSessionAggregateSpec,
)
from headrace.functions.specs.operator_specs import ColumnAggregate
from headrace.functions.windows import window_starts
from headrace.operators.columns.partial_aggregates import Partials
from headrace.operators.columns.window_assignment import require_times
from headrace.operators.columns.window_results import emit_table
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output

HELD_ROWS_MAX: Final = 131_072
"""Number of rows per step: the fixed cost of a step, some hundred microseconds, is small then.

Columns fit the cache.
"""

_TIME: Final = "$time"
_EXTENT: Final = (ColumnAggregate("min", _TIME, START), ColumnAggregate("max", _TIME, LAST))


class HeldRows:
    """Data columns and timestamps of held rows, in order of arrival."""

    def __init__(self) -> None:
        self._columns: list[pa.RecordBatch] = []
        self._times: list[Timestamps] = []
        self.row_count = 0

    @property
    def are_enough(self) -> bool:
        """True if the rows should be taken now."""
        return self.row_count >= HELD_ROWS_MAX

    def add(self, columns: pa.RecordBatch, timestamps: Timestamps) -> None:
        """Append a batch."""
        self._columns.append(columns)
        self._times.append(timestamps)
        self.row_count += columns.num_rows

    def take(self) -> tuple[pa.Table, Timestamps]:
        """Return all rows (at least one batch), and hold none."""
        columns, self._columns = self._columns, []
        times, self._times = self._times, []
        self.row_count = 0
        all_times = times[0] if len(times) == 1 else np.concatenate(times)
        return pa.Table.from_batches(columns), all_times


class LocalOperator(OneInputOperator):
    """Base: emits the result of `reduced` for the rows of several batches, without timestamps."""

    def __init__(self, windows: EventTimeWindows) -> None:
        self.windows = windows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._held = HeldRows()

    @abstractmethod
    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        """Return fewer rows, with the output's columns, that represent `rows`; `times` has shape (num_rows,)."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        if self.windows.is_until_end_of_input:
            times = np.zeros(batch.num_rows, dtype=np.int64)
        else:
            times = require_times(batch, self.context.operator_name, self.windows.size)
        self._held.add(batch.columns(), times)
        if self._held.are_enough:
            self.emit_held(output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        # The window that lasts until the end of the input needs nothing before the last watermark.
        if timestamp_ms == MAX_WATERMARK or not self.windows.is_until_end_of_input:
            self.emit_held(output)
        super().process_watermark(timestamp_ms, output)

    def process_status(self, is_idle: bool, output: Output) -> None:
        # An idle input may stay idle: no later batch or watermark would send the held rows.
        self.emit_held(output)
        super().process_status(is_idle, output)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self.emit_held(output)

    def emit_held(self, output: Output) -> None:
        if self._held.row_count:
            made = self.reduced(*self._held.take()).combine_chunks()
            emit_table(made, None, self.context.types.output, output)

    def finish(self, output: Output) -> None:
        self.emit_held(output)


class LocalAggregateOperator(LocalOperator):
    """Emits one partial result per key and slice of the held rows, in no particular order.

    The number of partial results depends on how rows were cut into batches; the merged aggregates do not.
    """

    def __init__(self, spec: LocalAggregateSpec) -> None:
        super().__init__(spec.aggregation.windows)
        self._aggregation = spec.aggregation

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._partials = Partials(self._aggregation, data_schema(context.types.output.value_type))

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        slices = window_starts(times, self.windows.offset, self.windows.slice_ms)
        return self._partials.of_rows(rows, pa.array(slices))


class LocalSessionAggregateOperator(LocalOperator):
    """Emits one partial result per key and slice; no session is shorter than a slice.

    If a row may be late, all rows held with it are emitted one by one in order, as the rows before a late row, but not
    those after it, decide whether it is dropped.
    """

    def __init__(self, spec: LocalSessionAggregateSpec) -> None:
        super().__init__(spec.aggregation.sliced.windows)
        self._gap_ms = spec.aggregation.gap_ms
        sliced = spec.aggregation.sliced
        self._timed = replace(sliced, aggregates=(*sliced.aggregates, *_EXTENT))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        schema = self._timed.partial_schema(columns.append(pa.field(_TIME, pa.int64())))
        self._partials = Partials(self._timed, schema)
        self._output_names = data_schema(context.types.output.value_type).names

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        # A row that is not late here is not late after the exchange, as no later watermark has gone there before it.
        are_in_time = bool((times > self.current_watermark - self._gap_ms + 1).all())
        if are_in_time:
            slices = window_starts(times, self.windows.offset, self.windows.size)
        else:
            slices = np.arange(len(times), dtype=np.int64)
        rows = rows.append_column(_TIME, pa.array(times))
        partials = self._partials.of_rows(rows, pa.array(slices)).rename_columns(self._output_names)
        if not are_in_time:
            partials = partials.sort_by(SLICE)
        return partials
