"""Column types that Spark's formats can store: checked when a sink is made, as Spark reports errors only on writing."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from headrace.core.types.arrow_types import data_schema
from headrace.core.types.basic_type_info import CollectionTypeInfo
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

_DECIMAL_DIGITS_MAX: Final = 38


def unwritable_column(value_type: TypeInformation, spark_format: str) -> str | None:
    """Return what Spark cannot write of records of `value_type` in `spark_format`, and what to do; None for nothing.

    Of formats that Spark does not bring only what holds for all is known. Found by writing every type to each.
    """
    schema = data_schema(value_type)
    for column in schema:
        for part in _parts(column.type):
            if pa.types.is_time(part):
                return (
                    f"column '{column.name}' holds a time of day, which Spark does not read from the staged files: "
                    "make it a string or a number of milliseconds"
                )
            if pa.types.is_decimal(part) and part.precision > _DECIMAL_DIGITS_MAX:
                return (
                    f"column '{column.name}' has {part.precision} digits, and Spark's decimals have at most "
                    f"{_DECIMAL_DIGITS_MAX}: declare fewer, or make it a string"
                )
    if spark_format.lower() == "csv":
        for column in schema:
            if pa.types.is_nested(column.type):
                return (
                    f"column '{column.name}' is of type {column.type}, and CSV holds single values only: make it a "
                    "string, or write parquet, orc or json"
                )
    if spark_format.lower() == "text" and schema.types != [pa.string()]:
        return f"text files hold a single column of strings, and there is {_listed(schema)}"
    return None


def columns_that_become_strings(value_type: TypeInformation) -> list[str]:
    """Return the names of the columns that hold numbers of any size, which no type of Spark's does."""
    if isinstance(value_type, RowTypeInfo | TupleTypeInfo):
        named = zip(value_type.field_names, value_type.field_types, strict=True)
        return [name for name, field_type in named if _is_unbounded(field_type)]
    return list(data_schema(value_type).names) if _is_unbounded(value_type) else []


def _is_unbounded(field_type: TypeInformation) -> bool:
    match field_type:
        case BasicTypeInfo():
            return field_type.basic_type in (BasicType.BIG_INT, BasicType.BIG_DEC)
        case RowTypeInfo() | TupleTypeInfo():
            return any(_is_unbounded(one) for one in field_type.field_types)
        case CollectionTypeInfo():
            return _is_unbounded(field_type.element_type)
        case MapTypeInfo():
            return _is_unbounded(field_type.key_type) or _is_unbounded(field_type.value_type)
        case _:
            return False


def _parts(arrow_type: Any) -> Iterator[Any]:
    yield arrow_type
    for index in range(arrow_type.num_fields):
        yield from _parts(arrow_type.field(index).type)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"'{column.name}' ({column.type})" for column in schema)
