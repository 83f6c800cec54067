"""Reduce and rolling aggregations in BATCH mode: one result per key, once all its records were folded.

Source: Flink BatchGroupedReduceOperator.
"""

from typing import Any

import numpy as np

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import RecordBatch
from headrace.operators.record.reduce import ReduceOperator, RollingAggregationOperator
from headrace.operators.runtime.operator import Output


class BatchReduceOperator(ReduceOperator):
    """Emits the fold of a key's records, with the timestamp of the last one, when the key ends."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        # By key, in the order in which keys began: those of one batch, which end together.
        self._last: dict[Any, tuple[Any, int]] = {}

    def _emit_results(self, rows: list[Any], batch: RecordBatch, output: Output) -> None:
        times = [MIN_TIMESTAMP] * batch.num_rows
        if batch.timestamps is not None:
            times = batch.timestamps.tolist()
        self._last.update(zip(batch.keys(), zip(rows, times, strict=True), strict=True))

    def end_keys(self, output: Output) -> None:
        results, self._last = list(self._last.values()), {}
        self._backend.forget_keys()
        if results:
            times = np.array([time for _, time in results], dtype=np.int64)
            is_timed = bool((times != MIN_TIMESTAMP).any())
            self._emitter.emit([row for row, _ in results], times if is_timed else None, output)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self.end_keys(output)
        super().process_watermark(timestamp_ms, output)


class BatchRollingAggregationOperator(BatchReduceOperator, RollingAggregationOperator):
    """Emits the sum, min, max, min_by or max_by of a key's records when the key ends."""
