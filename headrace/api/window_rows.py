"""Whole rows that stay of their window, in two halves: before the exchange and behind it."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.api.data_stream import DataStream
from headrace.api.expressions import columns_of
from headrace.api.halves import in_halves
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
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
    return in_halves(
        stream,
        halves,
        columns.append(pa.field(SLICE, pa.int64())).append(pa.field(ROWS, pa.int64())),
        key_columns or (SLICE,),
        stream.get_type(),
        name=type(assigner).__name__,
        description=f"Window({assigner!r}, {called})",
    )


def check_order(field: pa.Field, is_ordered: Callable[[pa.DataType], bool], refusal: str) -> None:
    """Raise ProgramError, with `refusal` and the type of the column, where rows cannot be ordered by it."""
    if not is_ordered(field.type):
        raise ProgramError(f"{refusal}, but '{field.name}' is {field.type}")
