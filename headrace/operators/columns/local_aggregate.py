"""LocalAggregateOperator: aggregates what a subtask holds before it goes through the exchange.

Source: Flink LocalSlicingWindowAggOperator.
"""

import pyarrow as pa

from headrace.core.record_batch import Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import LocalAggregateSpec
from headrace.functions.windows import window_starts
from headrace.operators.columns.local_operator import LocalOperator
from headrace.operators.columns.partials import Partials
from headrace.operators.operator import OperatorContext


class LocalAggregateOperator(LocalOperator):
    """Emits one partial result per key and slice of what it held, in no particular order.

    How many partial results there are depends on how rows were cut; what they merge to does not.
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
