"""Converts between values of a declared type and the JSON values that msgspec reads and writes.

As in Flink's JSON rows, a string may stand for a number, and a number for a string; msgspec's own typed decoding
refuses that.

Source: Flink JsonRowDeserializationSchema, JsonRowSerializationSchema, TimeFormats.
"""

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

import msgspec

from headrace.core.errors import ProgramError
from headrace.core.types.java_text import double_text
from headrace.core.types.rows import row_of
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    CollectionTypeInfo,
    DateTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    Types,
    field_values,
)

Conversion = Callable[[Any], Any]

BAD_VALUE: Final = (ValueError, TypeError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions of a conversion for a value that does not fit."""

_INTEGER_BITS: Final = {
    BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64,
}  # fmt: skip
_FLOAT_MAX: Final = 3.4028235677973362e38
"""The largest 32-bit float plus half of its last place: larger numbers become infinity."""
_JAVA_DIGITS_MIN: Final = 1e-3
_JAVA_DIGITS_END: Final = 1e7
"""Bounds between which Java writes numbers without an exponent, with the same digits as msgspec."""
_ENCODER: Final = msgspec.json.Encoder()


def json_reader(
    type_info: TypeInformation, *, needs_all_fields: bool, is_lenient: bool
) -> Conversion:
    """Return the function from parsed JSON to a value of the type; ProgramError for a type without JSON.

    A field that is missing is None, or with `needs_all_fields` a ValueError. A value that does not fit raises one of
    BAD_VALUE, or with `is_lenient` becomes None.
    """

    def make(inner: TypeInformation) -> Conversion:
        convert = _reader(inner, make, needs_all_fields)

        def nullable(value: Any) -> Any:
            if value is None:
                return None
            try:
                return convert(value)
            except BAD_VALUE:
                if is_lenient:
                    return None
                raise

        return nullable

    return make(type_info)


def json_writer(type_info: TypeInformation) -> Callable[[Any], bytes]:
    """Return the function from a value of the type to its JSON; ProgramError for a type without JSON."""
    convert = _nullable_writer(type_info)
    return lambda value: _ENCODER.encode(convert(value))


def holds_decimals(type_info: TypeInformation) -> bool:
    """Return whether numbers must be parsed exactly."""
    match type_info:
        case RowTypeInfo():
            return any(map(holds_decimals, type_info.field_types))
        case CollectionTypeInfo():
            return holds_decimals(type_info.element_type)
        case MapTypeInfo():
            return holds_decimals(type_info.value_type)
        case BasicTypeInfo():
            return type_info.basic_type is BasicType.BIG_DEC
        case _:
            return isinstance(type_info, BigDecimalTypeInfo)


def _reader(
    type_info: TypeInformation, make: Callable[[TypeInformation], Conversion], needs_all: bool
) -> Conversion:
    match type_info:
        case RowTypeInfo():
            return _row_reader(type_info, make, needs_all)
        case PrimitiveArrayTypeInfo() if _is_byte(type_info.element_type):
            return lambda value: base64.b64decode(value, validate=True)
        case CollectionTypeInfo():
            element = make(type_info.element_type)
            return lambda value: [element(item) for item in _as(list, value)]
        case MapTypeInfo():
            inner = make(_value_type_of(type_info))
            return lambda value: {key: inner(item) for key, item in _as(dict, value).items()}
        case DateTypeInfo():
            return lambda value: date.fromisoformat(_as(str, value))
        case TimeTypeInfo():
            return _read_time
        case TimestampTypeInfo():
            zone = None if type_info.time_zone is None else UTC
            return lambda value: datetime.fromisoformat(_utc(value)).replace(tzinfo=zone)
        case BigDecimalTypeInfo():
            return _read_decimal
        case BasicTypeInfo():
            return _basic_reader(type_info)
        case _:
            raise _without_json(type_info)


def _row_reader(
    type_info: RowTypeInfo, make: Callable[[TypeInformation], Conversion], needs_all: bool
) -> Conversion:
    names = type_info.field_names
    fields = [(name, make(inner)) for name, inner in zip(names, type_info.field_types, strict=True)]

    def read(value: Any) -> Any:
        given: dict[str, Any] = _as(dict, value)
        values: list[Any] = []
        for name, convert in fields:
            if needs_all and name not in given:
                raise ValueError(f"could not find field with name '{name}'")
            try:
                values.append(convert(given.get(name)))
            except BAD_VALUE as error:
                raise ValueError(f"field '{name}': {error}") from None
        return row_of(names, tuple(values))

    return read


def _basic_reader(type_info: BasicTypeInfo) -> Conversion:
    match type_info.basic_type:
        case BasicType.STRING | BasicType.CHAR:
            return _read_text
        case BasicType.BOOLEAN:
            return lambda value: value if isinstance(value, bool) else _is_true(value)
        case BasicType.FLOAT:
            return _read_float
        case BasicType.DOUBLE:
            return lambda value: float(_number_or_text(value))
        case BasicType.BIG_DEC:
            return _read_decimal
        case BasicType.BIG_INT:
            return lambda value: int(_number_or_text(value))
        case basic_type if basic_type in _INTEGER_BITS:
            bound = 1 << _INTEGER_BITS[basic_type] - 1
            return lambda value: _read_integer(value, bound)
        case _:
            raise _without_json(type_info)


def _read_integer(value: Any, bound: int) -> int:
    number = int(_number_or_text(value))
    if not -bound <= number < bound:
        raise ValueError(f"{number} is not within {-bound}..{bound - 1}")
    return number


def _read_float(value: Any) -> float:
    number = float(_number_or_text(value))
    if abs(number) > _FLOAT_MAX and math.isfinite(number):
        raise ValueError(f"{number} is too large for a float of 32 bits")
    return number


def _read_decimal(value: Any) -> Decimal:
    return Decimal(_number_or_text(value))


def _number_or_text(value: Any) -> Any:
    """Return a number unchanged, and a string without surrounding blanks."""
    if isinstance(value, bool | list | dict):
        raise ValueError(f"{_shown(value)} is not a number")
    return value.strip() if isinstance(value, str) else value


def _is_true(value: Any) -> bool:
    return _read_text(value).strip().lower() == "true"


def _read_text(value: Any) -> str:
    match value:
        case str():
            return value
        case float():
            return double_text(value)
        case Decimal():
            return str(value)
        case _:
            return _shown(value)


def _read_time(value: Any) -> time:
    found = time.fromisoformat(_utc(value))
    if found.microsecond:
        raise ValueError(f"{_shown(value)} has a fraction of a second, which the type cannot hold")
    return found


def _utc(value: Any) -> str:
    text: str = _as(str, value)
    if not text.endswith("Z"):
        raise ValueError(f"{_shown(value)} is not a time in UTC, which must end with Z")
    return text[:-1]


def _as(wanted: type[Any], value: Any) -> Any:
    if not isinstance(value, wanted):
        kind = {dict: "an object", list: "an array"}.get(wanted, "a text")
        raise ValueError(f"{_shown(value)} is not {kind}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _nullable_writer(type_info: TypeInformation) -> Conversion:
    """Return the function from a value of the type, or None, to its JSON value for msgspec."""
    convert = _writer(type_info)
    return lambda value: None if value is None else convert(value)


def _writer(type_info: TypeInformation) -> Conversion:
    match type_info:
        case RowTypeInfo():
            return _row_writer(type_info)
        case PrimitiveArrayTypeInfo() if _is_byte(type_info.element_type):
            return lambda value: base64.b64encode(bytes(value)).decode()
        case CollectionTypeInfo():
            element = _nullable_writer(type_info.element_type)
            return lambda value: [element(item) for item in value]
        case MapTypeInfo():
            inner = _nullable_writer(_value_type_of(type_info))
            return lambda value: {_as(str, key): inner(item) for key, item in value.items()}
        case DateTypeInfo():
            return lambda value: value.isoformat()
        case TimeTypeInfo() | TimestampTypeInfo():
            return _utc_text
        case BigDecimalTypeInfo():
            return _exact_decimal
        case BasicTypeInfo():
            return _basic_writer(type_info)
        case _:
            raise _without_json(type_info)


def _row_writer(type_info: RowTypeInfo) -> Conversion:
    names = type_info.field_names
    fields = [_nullable_writer(inner) for inner in type_info.field_types]

    def write(value: Any) -> dict[str, Any]:
        values = field_values(value, names)
        pairs = zip(names, fields, values, strict=True)
        return {name: convert(item) for name, convert, item in pairs}

    return write


def _basic_writer(type_info: BasicTypeInfo) -> Conversion:
    match type_info.basic_type:
        case BasicType.STRING | BasicType.CHAR:
            return str
        case BasicType.BOOLEAN:
            return bool
        case BasicType.FLOAT | BasicType.DOUBLE:
            return _java_number
        case BasicType.BIG_DEC:
            return _exact_decimal
        case BasicType.INSTANT:
            raise _without_json(type_info)
        case _:
            return int


def _exact_decimal(value: Any) -> msgspec.Raw:
    return msgspec.Raw(str(Decimal(value)).encode())


def _java_number(value: float) -> Any:
    """Return a number with the digits that Java writes; NaN and infinities, which JSON lacks, as strings."""
    if _JAVA_DIGITS_MIN <= abs(value) < _JAVA_DIGITS_END:
        return float(value)
    text = double_text(value)
    return msgspec.Raw(text.encode()) if math.isfinite(value) else text


def _utc_text(value: time | datetime) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    text = value.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if value.microsecond else text) + "Z"


def _is_byte(type_info: TypeInformation) -> bool:
    return type_info == Types.BYTE()


def _value_type_of(type_info: MapTypeInfo) -> TypeInformation:
    if type_info.key_type != Types.STRING():
        raise ProgramError(
            f"the keys of a JSON object are strings, so {type_info} cannot be written as JSON"
        )
    return type_info.value_type


def _without_json(type_info: TypeInformation) -> ProgramError:
    return ProgramError(
        f"values of type {type_info} cannot be written as JSON: declare fields of other types"
    )
