"""Whole rows of the largest or smallest value in each window, in columns: `rows_with_max` and `rows_with_min`."""

from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.expressions import check_columns, columns_of
from headrace.api.sliced_aggregations import one_slice_windows
from headrace.api.window_rows import window_rows
from headrace.core.errors import ProgramError
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
    _check_order(columns.field(column), called)
    wanted = ExtremeRows(windows, key_columns, column, is_largest)
    return window_rows(
        stream,
        key_columns,
        (LocalExtremeRowsSpec(wanted), ExtremeRowsSpec(wanted)),
        assigner,
        f"{called}({column})",
    )


def _check_order(field: pa.Field, called: str) -> None:
    kinds = pa.types
    is_ordered = kinds.is_signed_integer(field.type) or kinds.is_timestamp(field.type)
    if not is_ordered:
        raise ProgramError(
            f"{called} needs a column of integers or timestamps, but '{field.name}' is {field.type}"
        )
