"""Selections of whole rows per window, in two phases: one before the exchange and one after it.

`rows_with_max` and `rows_with_min` select the rows with the largest or smallest value in each window.
`largest_rows` and `smallest_rows` select the first rows of each window in the order of some columns.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.api.columns.columnar_aggregates import in_two_phases
from headrace.api.columns.expressions import check_columns, columns_of
from headrace.api.streams.data_stream import DataStream
from headrace.api.streams.window_settings import one_slice_windows
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.functions.specs.columnar_specs import (
    ROWS,
    SLICE,
    ExtremeRows,
    ExtremeRowsSpec,
    LocalExtremeRowsSpec,
    LocalRankedRowsSpec,
    RankedRows,
    RankedRowsSpec,
)


def window_rows(
    stream: DataStream,
    key_columns: tuple[str, ...],
    phases: tuple[OperatorSpec, OperatorSpec],
    assigner: Any,
    called: str,
) -> DataStream:
    """Add both phases over `stream`, which is not keyed.

    Without key columns the windows are spread over the subtasks.
    """
    columns = columns_of(stream.get_type(), called)
    return in_two_phases(
        stream,
        phases,
        columns.append(pa.field(SLICE, pa.int64())).append(pa.field(ROWS, pa.int64())),
        key_columns or (SLICE,),
        stream.get_type(),
        name=type(assigner).__name__,
        description=f"Window({assigner!r}, {called})",
    )


def check_order(field: pa.Field, is_ordered: Callable[[pa.DataType], bool], refusal: str) -> None:
    """Raise ProgramError, with `refusal` and the column's type, if rows cannot be ordered by it."""
    if not is_ordered(field.type):
        raise ProgramError(f"{refusal}, but '{field.name}' is {field.type}")


def rows_with_extreme(
    stream: DataStream,
    key_columns: tuple[str, ...],
    assigner: Any,
    column: str,
    *,
    is_largest: bool,
) -> DataStream:
    """Return the rows with the largest or smallest value of each window. `stream` is not keyed."""
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


def ranked_rows(
    stream: DataStream,
    key_columns: tuple[str, ...],
    assigner: Any,
    count: int,
    columns: Sequence[str],
    *,
    is_largest: bool,
) -> DataStream:
    """Return the first rows of each window in an order. `stream` is not keyed."""
    called = "largest_rows" if is_largest else "smallest_rows"
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProgramError(f"{called} needs the number of rows to keep, at least 1, not {count!r}")
    if not columns:
        raise ProgramError(f"{called} needs a column to order by")
    windows = one_slice_windows(assigner, called)
    check_columns(columns, stream.get_type(), called)
    schema = columns_of(stream.get_type(), called)
    refusal = f"{called} orders by numbers, strings, times and booleans"
    for name in columns:
        check_order(schema.field(name), _are_ordered, refusal)
    wanted = RankedRows(windows, key_columns, tuple(columns), is_largest, count)
    return window_rows(
        stream,
        key_columns,
        (LocalRankedRowsSpec(wanted), RankedRowsSpec(wanted)),
        assigner,
        f"{called}({count}, {', '.join(columns)})",
    )


def _are_ordered(one: pa.DataType) -> bool:
    kinds = pa.types
    return (
        kinds.is_integer(one)
        or kinds.is_floating(one)
        or kinds.is_string(one)
        or kinds.is_boolean(one)
        or kinds.is_temporal(one)
    )
