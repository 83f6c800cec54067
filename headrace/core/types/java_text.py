"""Formats a typed record as Java prints it, for `print` and string sinks.

Undeclared records are printed by Python's `str`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from math import isinf, isnan
from typing import Any, Final

import numpy as np

from headrace.core.types.rows import KIND_TEXTS, Row
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    CollectionTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

TextFunction = Callable[[Any], str]

_DECIMAL_NOTATION: Final = range(-3, 7)  # powers of ten that Java writes without an exponent


@lru_cache(maxsize=1024)
def text_function(type_info: TypeInformation) -> TextFunction:
    """Return the function from a record of `type_info` to its text; get it once, then call it for each record."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return str
    return _or_null(_text_function(type_info))


def _or_null(function: TextFunction) -> TextFunction:
    return lambda value: "null" if value is None else function(value)


def _text_function(type_info: TypeInformation) -> TextFunction:
    match type_info:
        case BasicTypeInfo():
            return _BASIC_TEXTS[type_info.basic_type]
        case RowTypeInfo():
            return _row_text(type_info)
        case TupleTypeInfo():
            fields = _field_texts(type_info.field_types)
            return lambda value: f"({','.join(_texts(fields, value))})"
        case CollectionTypeInfo():
            return _list_text(_inner(type_info.element_type))
        case MapTypeInfo():
            return _map_text(_inner(type_info.key_type), _inner(type_info.value_type))
        case SqlTimeTypeInfo():
            return calendar_text
        case PickledBytesTypeInfo():
            return _object_text
        case _:
            return str


def _inner(type_info: TypeInformation) -> TextFunction:
    return _or_null(_text_function(type_info))


def _field_texts(field_types: Sequence[TypeInformation]) -> list[TextFunction]:
    return [_inner(field_type) for field_type in field_types]


def _texts(functions: Sequence[TextFunction], values: Sequence[Any]) -> list[str]:
    return [function(value) for function, value in zip(functions, values, strict=True)]


def _row_text(type_info: RowTypeInfo) -> TextFunction:
    fields, names = _field_texts(type_info.field_types), type_info.field_names

    def text(value: Any) -> str:
        kind = KIND_TEXTS[0]
        if isinstance(value, Row):
            kind = str(value.get_row_kind())
            value = value.get_fields_by_names(names)
        elif isinstance(value, Mapping):
            value = [value[name] for name in names]
        return f"{kind}[{', '.join(_texts(fields, value))}]"

    return text


def _list_text(element: TextFunction) -> TextFunction:
    def text(value: Any) -> str:
        items = map(_signed_byte, value) if isinstance(value, bytes | bytearray) else value
        return f"[{', '.join(map(element, items))}]"

    return text


def _map_text(key: TextFunction, value: TextFunction) -> TextFunction:
    def text(entries: Mapping[Any, Any]) -> str:
        pairs = (f"{key(k)}={value(v)}" for k, v in entries.items())
        return f"{{{', '.join(pairs)}}}"

    return text


def _object_text(value: Any) -> str:
    """Return the text of an undeclared value inside a declared one; bytes are Java's signed ones."""
    if isinstance(value, bytes | bytearray):
        return f"[{', '.join(str(_signed_byte(item)) for item in value)}]"
    return str(value)


def _signed_byte(item: int) -> int:
    return item - 256 if item > 127 else item


def boolean_text(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def double_text(value: float) -> str:
    """Return Java's text of a double: the shortest digits that identify the number, at least one after the point."""
    value = float(value)
    special = _special_text(value)
    if special is not None:
        return special
    shortest = repr(value)
    return _layout_number(*_digits_of(shortest if _digit_count(shortest) > 1 else f"{value:.1e}"))


def float_text(value: float) -> str:
    """Return Java's text of a 32-bit float."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    special = _special_text(float(single))
    if special is not None:
        return special
    shortest = np.format_float_scientific(single, unique=True, trim="-")
    enough = shortest if _digit_count(shortest) > 1 else f"{float(single):.1e}"
    return _layout_number(*_digits_of(enough))


def _special_text(value: float) -> str | None:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    return None


def _digit_count(text: str) -> int:
    return len(_digits_of(text)[1])


def _digits_of(text: str) -> tuple[str, str, int]:
    """Return sign, digits d1d2… without outer zeros, and the power of ten of d1."""
    number = Decimal(text)
    digits = "".join(map(str, number.as_tuple().digits))
    return "-" if number.is_signed() else "", digits.rstrip("0") or "0", number.adjusted()


def _layout_number(sign: str, digits: str, power: int) -> str:
    if power not in _DECIMAL_NOTATION:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole = digits[: power + 1].ljust(power + 1, "0")
    return f"{sign}{whole}.{digits[power + 1 :] or '0'}"


def decimal_text(value: Decimal | int) -> str:
    """Return Java's text of a BigDecimal: the scale is kept, tiny and negative-scale numbers take an exponent."""
    number = Decimal(value)
    return str(number.copy_abs() if number.is_zero() else number)


def calendar_text(value: date | time) -> str:
    """Return the text of a date, a time (whole seconds) or a timestamp (one digit of fraction at least)."""
    if isinstance(value, datetime):
        fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
        return f"{value.replace(microsecond=0, tzinfo=None).isoformat(' ')}.{fraction}"
    if isinstance(value, time):
        return value.strftime("%H:%M:%S")
    return value.isoformat()


def instant_text(value: Instant) -> str:
    """Return the ISO text in UTC, with as many groups of three fraction digits as needed."""
    days, second_of_day = divmod(value.seconds, 86_400)
    year, month, day = _civil_date(days)
    minutes, second = divmod(second_of_day, 60)
    hour, minute = divmod(minutes, 60)
    fraction = ""
    if value.nanos:
        fraction = f".{value.nanos:09d}"
        while fraction.endswith("000"):
            fraction = fraction[:-3]
    year_text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{year_text}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}Z"


def _civil_date(epoch_day: int) -> tuple[int, int, int]:
    """Return year, month and day of any day of the proleptic Gregorian calendar."""
    # Eras of 400 years all have the same number of days: counting them apart brings any year into datetime's range.
    era, day_of_era = divmod(epoch_day, 146_097)
    inside = date.fromordinal(date(1970, 1, 1).toordinal() + day_of_era)
    return inside.year + 400 * era, inside.month, inside.day


_BASIC_TEXTS: Final[dict[BasicType, TextFunction]] = {
    BasicType.STRING: str,
    BasicType.CHAR: str,
    BasicType.BYTE: str,
    BasicType.SHORT: str,
    BasicType.INT: str,
    BasicType.LONG: str,
    BasicType.BIG_INT: str,
    BasicType.BOOLEAN: boolean_text,
    BasicType.FLOAT: float_text,
    BasicType.DOUBLE: double_text,
    BasicType.BIG_DEC: decimal_text,
    BasicType.INSTANT: instant_text,
}
