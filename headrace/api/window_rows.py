"""Whole rows that stay of their window, in two halves: before the exchange and behind it."""

from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.expressions import columns_of
from headrace.api.keyed_stream import KeyedStream
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_mapping import type_info_from_schema
from headrace.core.types.type_info import Types
from headrace.functions.columnar_specs import ROWS, SLICE


def window_rows(
    stream: DataStream,
    key_columns: tuple[str, ...],
    halves: tuple[OperatorSpec, OperatorSpec],
    assigner: Any,
    called: str,
) -> DataStream:
    """Add both halves over `stream`, which is not keyed; without key columns whole windows are spread over subtasks."""
    columns = columns_of(stream.get_type(), called)
    environment = stream.get_execution_environment()
    parts = columns.append(pa.field(SLICE, pa.int64())).append(pa.field(ROWS, pa.int64()))
    local = environment.add_operator(
        halves[0],
        (stream.transformation,),
        BatchType(type_info_from_schema(parts)),
        like=stream.transformation,
    )
    kept = DataStream(environment, local)
    if key_columns:
        keyed = kept.key_by(*key_columns)
    else:
        keyed = KeyedStream(kept, None, (SLICE,), Types.LONG())
    operator = environment.add_operator(
        halves[1],
        (keyed.transformation,),
        BatchType(stream.get_type()),
        name=type(assigner).__name__,
        description=f"Window({assigner!r}, {called})",
        is_function=True,
    )
    return DataStream(environment, operator)
