"""Converts records between Python values and Arrow columns: the hot path of per-record functions."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import RecordTypeError
from headrace.core.types.arrow_types import (
    arrow_type_of,
    cast_column,
    is_byte,
    object_fields,
    struct_fields,
)
from headrace.core.types.basic_type_info import CollectionTypeInfo
from headrace.core.types.nested_codecs import (
    FieldsCodec,
    ListCodec,
    MapCodec,
    ObjectCodec,
    row_kinds,
    set_row_kinds,
)
from headrace.core.types.object_type_info import ObjectTypeInfo
from headrace.core.types.rows import Row
from headrace.core.types.scalar_codecs import (
    ColumnCodec,
    PickleCodec,
    basic_codec,
    byte_string_codec,
    date_codec,
    decimal_codec,
    time_codec,
    timestamp_codec,
)
from headrace.core.types.type_info import (
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DateTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

ROW_KIND_COLUMN: Final = "$row_kind"
"""Name of the int8 column of RowKind numbers that follows the data if a row is not a plain insert."""


def rows_to_columns(rows: Sequence[Any], type_info: TypeInformation) -> list[pa.Array]:
    """Return the arrays of `data_schema(type_info)` for `rows`, in that order, each of shape (num_rows,).

    If the type is a ROW and some row has another kind than INSERT, an int8 array with the numbers of the row kinds
    follows, to be named `$row_kind`; so the result has as many arrays as the schema has fields, or one more. Kinds of
    rows inside other values are not kept.

    RecordTypeError shows the first row that does not fit.
    """
    codec = _codec_of(type_info)
    try:
        if not isinstance(codec, FieldsCodec):
            return [codec.encode(rows)]
        arrays = codec.encode_fields(rows)
    except Exception as error:
        # User classes may raise anything while they are pickled; the search finds out which row it was.
        misfit = _misfit(rows, type_info, codec)
        if misfit is None:
            raise
        raise misfit from error
    if isinstance(type_info, RowTypeInfo):
        kinds = row_kinds(rows)
        if kinds is not None:
            arrays.append(kinds)
    return arrays


def columns_to_rows(batch: pa.RecordBatch, type_info: TypeInformation) -> list[Any]:
    """Return one Python value per row of `batch`: named Rows for ROW, tuples for TUPLE, else plain values.

    The data columns are the first ones, in the order of `data_schema(type_info)`; a column `$row_kind`, if present,
    sets the kinds of rows; all others are ignored. Columns of another Arrow type, such as those of DataFrames, are
    cast.
    """
    codec = _codec_of(type_info)
    if not isinstance(codec, FieldsCodec):
        return codec.decode(cast_column(batch.column(0), codec.arrow_type))
    rows = codec.decode_fields(
        [
            cast_column(batch.column(index), arrow_type)
            for index, arrow_type in enumerate(codec.field_types)
        ]
    )
    if isinstance(type_info, RowTypeInfo):
        kind_index = batch.schema.get_field_index(ROW_KIND_COLUMN)
        if kind_index >= 0:
            set_row_kinds(rows, batch.column(kind_index))
    return rows


def values_to_array(values: Sequence[Any], type_info: TypeInformation) -> pa.Array:
    """Convert any values, including None, to one array of `arrow_type_of(type_info)`; kinds of rows are not kept.

    RecordTypeError shows the first value that does not fit.
    """
    codec = _codec_of(type_info)
    try:
        return codec.encode(values)
    except Exception as error:
        misfit = _misfit(values, type_info, codec)
        if misfit is None:
            raise
        raise misfit from error


def array_to_values(array: pa.Array, type_info: TypeInformation) -> list[Any]:
    """Return the Python values of an array made by `values_to_array`."""
    codec = _codec_of(type_info)
    return codec.decode(cast_column(array, codec.arrow_type))


def kept_value(value: Any, type_info: TypeInformation, *, keeps_row_kind: bool) -> Any:
    """Return the value after a round trip through columns; `keeps_row_kind`: keep the kind if it is a row.

    RecordTypeError if it does not fit.
    """
    codec = _codec_of(type_info)
    try:
        kept = codec.decode(codec.encode([value]))[0]
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RecordTypeError(value, str(type_info), reason) from error
    if keeps_row_kind and isinstance(kept, Row) and isinstance(value, Row):
        kept.set_row_kind(value.get_row_kind())
    return kept


def _misfit(
    rows: Sequence[Any], type_info: TypeInformation, codec: ColumnCodec
) -> RecordTypeError | None:
    """Return the error for the first row that cannot be converted, or None if each can be converted alone."""
    for index, row in enumerate(rows):
        try:
            if isinstance(codec, FieldsCodec):
                codec.encode_fields([row])
            else:
                codec.encode([row])
        except Exception as error:
            return RecordTypeError(row, str(type_info), str(error) or type(error).__name__, index)
    return None


@lru_cache(maxsize=1024)
def _codec_of(type_info: TypeInformation) -> ColumnCodec:
    match type_info:
        case BasicTypeInfo():
            return basic_codec(type_info.basic_type, arrow_type_of(type_info))
        case RowTypeInfo() | TupleTypeInfo():
            return FieldsCodec(
                struct_fields(type_info),
                [_codec_of(field_type) for field_type in type_info.field_types],
                gives_rows=isinstance(type_info, RowTypeInfo),
            )
        case ObjectTypeInfo():
            field_codecs = [_codec_of(one) for one in type_info.field_types]
            fields = FieldsCodec(object_fields(type_info), field_codecs, gives_rows=False)
            return ObjectCodec(type_info.object_class, fields)
        case PrimitiveArrayTypeInfo() if is_byte(type_info.element_type):
            return byte_string_codec(arrow_type_of(type_info))
        case CollectionTypeInfo():
            return ListCodec(
                _codec_of(type_info.element_type),
                allows_none=not isinstance(type_info, PrimitiveArrayTypeInfo),
            )
        case MapTypeInfo():
            return MapCodec(
                _codec_of(type_info.key_type),
                _codec_of(type_info.value_type),
            )
        case BigDecimalTypeInfo():
            return decimal_codec(arrow_type_of(type_info), type_info)
        case DateTypeInfo():
            return date_codec(arrow_type_of(type_info))
        case TimeTypeInfo():
            return time_codec(arrow_type_of(type_info))
        case TimestampTypeInfo():
            return timestamp_codec(arrow_type_of(type_info))
        case PickledBytesTypeInfo():
            return PickleCodec()
        case _:
            raise TypeError(f"{type_info} cannot be the type of a stream")
