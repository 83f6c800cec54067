"""Whole rows of the largest or smallest value in each window, in columns: `rows_with_max` and `rows_with_min`."""

from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.expressions import check_columns, columns_of
from headrace.api.keyed_stream import KeyedStream
from headrace.api.sliced_aggregations import aligned_tumbling_windows
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_mapping import type_info_from_schema
from headrace.core.types.type_info import Types
from headrace.functions.columnar_specs import (
    ROWS,
    SLICE,
    ExtremeRows,
    ExtremeRowsSpec,
    LocalExtremeRowsSpec,
)


def rows_with_extreme(
    stream: DataStream,
    key_columns: tuple[str, ...],
    assigner: Any,
    column: str,
    *,
    is_largest: bool,
) -> DataStream:
    """Add both halves over `stream`, which is not keyed; without key columns whole windows are spread over subtasks."""
    called = "rows_with_max" if is_largest else "rows_with_min"
    windows = aligned_tumbling_windows(assigner, called)
    check_columns((column,), stream.get_type(), called)
    columns = columns_of(stream.get_type(), called)
    _check_order(columns.field(column), called)
    wanted = ExtremeRows(windows, key_columns, column, is_largest)
    environment = stream.get_execution_environment()
    parts = columns.append(pa.field(SLICE, pa.int64())).append(pa.field(ROWS, pa.int64()))
    local = environment.add_operator(
        LocalExtremeRowsSpec(wanted),
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
        ExtremeRowsSpec(wanted),
        (keyed.transformation,),
        BatchType(stream.get_type()),
        name=type(assigner).__name__,
        description=f"Window({assigner!r}, {called}({column}))",
        is_function=True,
    )
    return DataStream(environment, operator)


def _check_order(field: pa.Field, called: str) -> None:
    kinds = pa.types
    is_ordered = kinds.is_signed_integer(field.type) or kinds.is_timestamp(field.type)
    if not is_ordered:
        raise ProgramError(
            f"{called} needs a column of integers or timestamps, but '{field.name}' is {field.type}"
        )
