"""Maps declared types to Arrow types and back; it handles schemas, not values."""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.types.basic_type_info import CollectionTypeInfo
from headrace.core.types.object_type_info import ObjectTypeInfo
from headrace.core.types.type_info import (
    BasicType,
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
    Types,
)

VALUE_COLUMN: Final = "value"
"""Name of the only column of streams whose records have no fields."""

BASIC_ARROW_TYPES: Final = {
    BasicType.STRING: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.CHAR: pa.string(),
    # Arrow's decimals end at 76 digits; text has no end and keeps the scale of each value.
    BasicType.BIG_INT: pa.string(),
    BasicType.BIG_DEC: pa.string(),
    # Nanoseconds in 64 bits would end in 2262.
    BasicType.INSTANT: pa.struct(
        [
            pa.field("seconds", pa.int64(), nullable=False),
            pa.field("nanos", pa.int32(), nullable=False),
        ]
    ),
}


@lru_cache(maxsize=1024)
def data_schema(type_info: TypeInformation) -> pa.Schema:
    """Return the columns of a stream of `type_info`.

    Rows and tuples have one column per field, under the field's name (`f0`, `f1`, … in tuples); every other type has
    the one column `value`, which for undeclared types is binary with a pickle per row.
    """
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return pa.schema(struct_fields(type_info))
    return pa.schema([pa.field(VALUE_COLUMN, arrow_type_of(type_info))])


def struct_fields(type_info: RowTypeInfo | TupleTypeInfo) -> list[pa.Field]:
    """Return the fields of a composite type. ValueError if names and types do not match."""
    names, types = type_info.field_names, type_info.field_types
    if len(names) != len(types) or not types:
        raise ValueError(f"{type_info} has {len(names)} names for {len(types)} types")
    if len(set(names)) != len(names):
        raise ValueError(f"{type_info} has two fields with the same name")
    return [
        pa.field(name, arrow_type_of(field_type))
        for name, field_type in zip(names, types, strict=True)
    ]


def object_fields(type_info: ObjectTypeInfo) -> list[pa.Field]:
    """Return the fields of an object, which are never null."""
    return [
        pa.field(name, arrow_type_of(field_type), nullable=False)
        for name, field_type in zip(type_info.field_names, type_info.field_types, strict=True)
    ]


def arrow_type_of(type_info: TypeInformation) -> pa.DataType:
    """Return the Arrow type of one value of `type_info`."""
    match type_info:
        case BasicTypeInfo():
            return BASIC_ARROW_TYPES[type_info.basic_type]
        case RowTypeInfo() | TupleTypeInfo():
            return pa.struct(struct_fields(type_info))
        case ObjectTypeInfo():
            return pa.struct(object_fields(type_info))
        case PrimitiveArrayTypeInfo() if is_byte(type_info.element_type):
            return pa.binary()
        case CollectionTypeInfo():
            return pa.list_(arrow_type_of(type_info.element_type))
        case MapTypeInfo():
            return pa.map_(arrow_type_of(type_info.key_type), arrow_type_of(type_info.value_type))
        case BigDecimalTypeInfo() if type_info.precision <= 38:
            return pa.decimal128(type_info.precision, type_info.scale)
        case BigDecimalTypeInfo():
            return pa.decimal256(type_info.precision, type_info.scale)
        case DateTypeInfo():
            return pa.date32()
        case TimeTypeInfo():
            return pa.time32("ms")
        case TimestampTypeInfo():
            return pa.timestamp("us", type_info.time_zone)
        case PickledBytesTypeInfo():
            return pa.binary()
        case _:
            raise TypeError(f"{type_info} cannot be the type of a stream")


def cast_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return `column` as the wanted type; ArrowInvalid for a value that does not fit, also for float32.

    Arrow refuses integers and times that are too large, but turns such floats into infinities.
    """
    if column.type == wanted:
        return column
    made = column.cast(wanted)
    if pa.types.is_float32(wanted) and pa.types.is_float64(column.type):
        has_grown = _is_infinite(made) & ~_is_infinite(column)
        if has_grown.any():
            value = column[int(has_grown.argmax())]
            raise pa.ArrowInvalid(f"Float value {value} is too large for 32 bits")
    return made


def _is_infinite(column: pa.Array) -> npt.NDArray[np.bool_]:
    # Nulls are NaN here.
    return np.isinf(column.to_numpy(zero_copy_only=False))


def is_byte(type_info: TypeInformation) -> bool:
    """Return whether the type is BYTE, whose arrays are stored as binary."""
    return isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.BYTE


def type_info_from_schema(schema: pa.Schema) -> RowTypeInfo:
    """Return the row type of a DataFrame's Arrow schema. TypeError names a column without a counterpart."""
    names: list[str] = list(schema.names)
    field_types: list[TypeInformation] = []
    for field in schema:
        try:
            field_types.append(type_info_of_arrow(field.type))
        except TypeError as error:
            raise TypeError(f"column '{field.name}': {error}") from None
    return Types.ROW_NAMED(names, field_types)


_TYPES_OF_ARROW: Final = {
    pa.bool_(): Types.BOOLEAN(),
    pa.int8(): Types.BYTE(),
    pa.int16(): Types.SHORT(),
    pa.uint8(): Types.SHORT(),
    pa.int32(): Types.INT(),
    pa.uint16(): Types.INT(),
    pa.int64(): Types.LONG(),
    pa.uint32(): Types.LONG(),
    pa.float16(): Types.FLOAT(),
    pa.float32(): Types.FLOAT(),
    pa.float64(): Types.DOUBLE(),
    pa.string(): Types.STRING(),
    pa.large_string(): Types.STRING(),
    pa.string_view(): Types.STRING(),
    pa.binary(): Types.PRIMITIVE_ARRAY(Types.BYTE()),
    pa.large_binary(): Types.PRIMITIVE_ARRAY(Types.BYTE()),
    pa.date32(): Types.SQL_DATE(),
    pa.date64(): Types.SQL_DATE(),
}


def type_info_of_arrow(arrow_type: pa.DataType) -> TypeInformation:
    """Return the declared type for one Arrow type; TypeError if there is none."""
    known = _TYPES_OF_ARROW.get(arrow_type)
    if known is not None:
        return known
    kinds = pa.types
    if kinds.is_timestamp(arrow_type):
        return TimestampTypeInfo(arrow_type.tz)
    if kinds.is_time(arrow_type):
        return Types.SQL_TIME()
    if kinds.is_decimal(arrow_type):
        return BigDecimalTypeInfo(arrow_type.precision, arrow_type.scale)
    if kinds.is_dictionary(arrow_type):
        return type_info_of_arrow(arrow_type.value_type)
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        return Types.LIST(type_info_of_arrow(arrow_type.value_type))
    if kinds.is_map(arrow_type):
        return Types.MAP(
            type_info_of_arrow(arrow_type.key_type), type_info_of_arrow(arrow_type.item_type)
        )
    if kinds.is_struct(arrow_type):
        return type_info_from_schema(pa.schema(list(arrow_type.fields)))
    raise TypeError(f"Arrow type {arrow_type} has no counterpart among the declared types")
