"""Joins of two keyed streams by whole batches: `left.key_by("a").join_rows(right.key_by("b"))`."""

from typing import Any

from headrace.api.columns.expressions import columns_of
from headrace.api.streams.data_stream import DataStream, require_one_environment
from headrace.api.streams.keyed_stream import KeyedStream
from headrace.api.streams.window_settings import aligned_tumbling_windows
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.record_batch import BatchType
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import RowTypeInfo, TypeInformation
from headrace.functions.specs.columnar_specs import (
    RowJoinSpec,
    WindowRowJoinSpec,
    shared_key_columns,
)

_PURPOSE = "join_rows"


def join_rows(left: KeyedStream, right: KeyedStream, window: Any) -> DataStream:
    """Add the join, in windows if `window` is given; ProgramError if its column names would be ambiguous."""
    import pyarrow as pa

    require_one_environment("join_rows", left, right)
    for stream in (left, right):
        if not stream.key_columns:
            raise ProgramError(
                "join_rows needs streams keyed by the names of their columns: key_by('...')"
            )
    _require_keys_that_compare(left, right)
    shared = shared_key_columns(left.key_columns, right.key_columns)
    fields = [
        *columns_of(left.get_type(), _PURPOSE),
        *(field for field in columns_of(right.get_type(), _PURPOSE) if field.name not in shared),
    ]
    names = [field.name for field in fields]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ProgramError(
            f"the join would have two columns '{repeated[0]}': "
            f"rename one before, with select(…, col('{repeated[0]}').alias('...'))"
        )
    operator = left.get_execution_environment().add_operator(
        _spec(left, right, window),
        (left.transformation, right.transformation),
        BatchType(type_info_from_schema(pa.schema(fields))),
        description=f"JoinRows({' and '.join(left.key_columns)} = {' and '.join(right.key_columns)})",
        is_function=True,
    )
    return DataStream(left.get_execution_environment(), operator)


def _require_keys_that_compare(left: KeyedStream, right: KeyedStream) -> None:
    """Raise ProgramError if equal keys would not meet in one subtask, or if keys cannot be compared there."""
    import pyarrow as pa

    types = _key_types(left), _key_types(right)
    if types[0] != types[1]:
        raise ProgramError(
            f"join_rows needs keys of one type, but these are {left.get_key_type()} and {right.get_key_type()}"
        )
    for stream in (left, right):
        schema = columns_of(stream.get_type(), _PURPOSE)
        for name in stream.key_columns:
            if pa.types.is_nested(schema.field(name).type):
                raise ProgramError(
                    f"join_rows cannot compare the column '{name}', which holds rows, lists or maps: "
                    "key the streams by plain columns"
                )


def _key_types(stream: KeyedStream) -> tuple[TypeInformation, ...]:
    """Return the types of the key's columns; their names do not matter."""
    key_type = stream.get_key_type()
    if len(stream.key_columns) > 1 and isinstance(key_type, RowTypeInfo):
        return tuple(key_type.field_types)
    return (key_type,)


def _spec(left: KeyedStream, right: KeyedStream, window: Any) -> OperatorSpec:
    if window is None:
        return RowJoinSpec(left.key_columns, right.key_columns)
    windows = aligned_tumbling_windows(window, _PURPOSE, or_else=", or none")
    return WindowRowJoinSpec(windows, left.key_columns, right.key_columns)
