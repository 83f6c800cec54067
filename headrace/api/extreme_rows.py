"""Whole rows of the largest or smallest value in each window, in columns: `rows_with_max` and `rows_with_min`."""

from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.event_time_windows import one_slice_windows
from headrace.api.expressions import check_columns, columns_of
from headrace.api.window_rows import check_order, window_rows
from headrace.functions.columnar_specs import (
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
    """Add both halves over `stream`, which is not keyed."""
    called = "rows_with_max" if is_largest else "rows_with_min"
    windows = one_slice_windows(assigner, called)
    check_columns((column,), stream.get_type(), called)
    columns = columns_of(stream.get_type(), called)
    refusal = f"{called} needs a column of integers or timestamps"
    check_order(columns.field(column), _is_ordered, refusal)
    wanted = ExtremeRows(windows, key_columns, column, is_largest)
    return window_rows(
        stream,
        key_columns,
        (LocalExtremeRowsSpec(wanted), ExtremeRowsSpec(wanted)),
        assigner,
        f"{called}({column})",
    )


def _is_ordered(one: pa.DataType) -> bool:
    return pa.types.is_signed_integer(one) or pa.types.is_timestamp(one)
