"""LocalSessionAggregateOperator: aggregates what is of one session for certain before it goes through the exchange.

Source: the idea of Flink's LocalSlicingWindowAggOperator, with slices that no session is shorter than.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import Timestamps
from headrace.core.types.arrow_mapping import data_schema
from headrace.functions.columnar_specs import LAST, SLICE, START, LocalSessionAggregateSpec
from headrace.functions.window_specs import ColumnAggregate
from headrace.functions.windows import window_starts
from headrace.operators.columns.local_operator import LocalOperator
from headrace.operators.columns.partials import Partials
from headrace.operators.operator import OperatorContext

_TIME: Final = "$time"
_EXTENT: Final = (ColumnAggregate("min", _TIME, START), ColumnAggregate("max", _TIME, LAST))


class LocalSessionAggregateOperator(LocalOperator):
    """Emits one partial result per key and slice of what it held.

    Rows that may come too late go out one by one, and in their order all that were held with them: whether such a row
    is dropped depends on those before it, not on those behind it.
    """

    def __init__(self, spec: LocalSessionAggregateSpec) -> None:
        super().__init__(spec.aggregation.sliced.windows)
        self._gap_ms = spec.aggregation.gap_ms
        self._keys = list(spec.aggregation.key_columns)
        sliced = spec.aggregation.sliced
        self._timed = replace(sliced, aggregates=(*sliced.aggregates, *_EXTENT))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        columns = data_schema(context.types.inputs[0].value_type)
        schema = self._timed.partial_schema(columns.append(pa.field(_TIME, pa.int64())))
        self._partials = Partials(self._timed, schema)
        self._output_names = data_schema(context.types.output.value_type).names

    def reduced(self, rows: pa.Table, times: Timestamps) -> pa.Table:
        # What is not behind here is not late there, as nobody there is told of a later watermark before.
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
