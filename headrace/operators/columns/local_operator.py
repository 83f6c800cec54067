"""LocalOperator: the half before the exchange, which holds rows until they are worth a vectorised step.

Keeps nothing over a checkpoint: what it makes of its rows goes out before each barrier and each watermark.
Source: Flink LocalSlicingWindowAggOperator.
"""

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from headrace.core.elements import MAX_WATERMARK
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.functions.columnar_specs import EventTimeWindows
from headrace.operators.columns.emitted_tables import emit_table
from headrace.operators.columns.held_rows import HeldRows
from headrace.operators.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.row_times import require_times


class LocalOperator(OneInputOperator):
    """Emits what `reduced` makes of the rows it held; no timestamps. `windows`: what they are for."""

    def __init__(self, windows: EventTimeWindows) -> None:
        self.windows = windows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._held = HeldRows()

    @abstractmethod
    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        """Return fewer rows, of the output's columns, that stand for `rows`, whose `times` have shape (num_rows,)."""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        if self.windows.is_until_end_of_input:
            times = np.zeros(batch.num_rows, dtype=np.int64)
        else:
            times = require_times(batch, self.context.operator_name, self.windows.size)
        self._held.add(batch.columns(), times)
        if self._held.are_enough:
            self.emit_held(output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        # Whoever waits for the end alone is not moved by watermarks before.
        if timestamp_ms == MAX_WATERMARK or not self.windows.is_until_end_of_input:
            self.emit_held(output)
        super().process_watermark(timestamp_ms, output)

    def process_status(self, is_idle: bool, output: Output) -> None:
        # An input without a word may stay so: nobody else would send what it said last.
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
