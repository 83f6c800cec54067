"""Converts rows of state to JSON values, and JSON values to the state's own types.

A value that JSON cannot represent becomes a text: whole numbers that a browser would round, numbers like NaN, decimals,
times in ISO 8601, bytes as `0x` and hexadecimal digits. `values_of_json` accepts the same texts. Nothing is unpickled:
the bytes of a pickle stay bytes.
"""

import datetime
import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import DECODE_ERRORS, short_repr
from headrace.state_processor.errors import JsonValueError, StateProcessorError

EXACT_INTEGER_MAX: Final = 2**53 - 1
"""Greatest whole number that JSON readers with binary floating-point numbers do not round."""
TEXT_LENGTH_MAX: Final = 2_000
"""Maximum number of characters of one shown value; a longer one is cut."""
_NOT_SHOWABLE: Final = "(a value that cannot be shown)"
_NOT_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column as JSON values."""
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        # Times outside of Python's calendar, or with finer fractions than Python has.
        values = [_text_of(one) for one in column]
    return [_shown(one) for one in values]


def shortened(value: Any) -> tuple[Any, bool]:
    """Return a JSON value, or the beginning of its text if that is long; and whether it was cut."""
    if value is None or isinstance(value, (bool, int, float)):
        return value, False
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= TEXT_LENGTH_MAX:
        return value, False
    return f"{text[:TEXT_LENGTH_MAX]}… ({len(text)} characters)", True


def values_of_json(values: Sequence[Any], wanted: pa.DataType, what: str) -> pa.Array:
    """Return JSON values as a column of a type. JsonValueError, which calls them `what`, if one does not fit."""
    given = [_given(one, wanted, what) for one in values]
    try:
        return pa.array(given, wanted)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise JsonValueError(what, f"{wanted}", f"{error}") from None


def keys_in_text(text: str) -> tuple[Any, ...]:
    """Return the keys of a JSON list like `[3, 7]`. StateProcessorError if the text is not one."""
    try:
        keys = json.loads(text)
    except DECODE_ERRORS:
        keys = None
    if not isinstance(keys, list):
        raise StateProcessorError(f"{short_repr(text)} is not a JSON list of keys, such as [3, 7]")
    return tuple(keys)


def _text_of(scalar: pa.Scalar) -> Any:
    try:
        return str(scalar) if scalar.is_valid else None
    except (ValueError, OverflowError, pa.ArrowException):
        return _NOT_SHOWABLE


def _shown(value: Any) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= EXACT_INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) else _not_a_number(value)
        case bytes():
            return f"0x{value.hex()}"
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case dict():
            return {str(name): _shown(one) for name, one in value.items()}
        case list() | tuple():
            return [_shown(one) for one in value]
        case _:
            return str(value)


def _not_a_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _given(value: Any, wanted: pa.DataType, what: str) -> Any:
    """Return the Python value from which Arrow makes a value of the type."""
    kinds = pa.types
    if value is None:
        return None
    if kinds.is_struct(wanted):
        return _given_fields(value, wanted, what)
    if kinds.is_map(wanted):
        return _given_entries(value, wanted, what)
    if kinds.is_list(wanted) or kinds.is_large_list(wanted):
        if not isinstance(value, list):
            raise JsonValueError(what, "a list", short_repr(value))
        return [_given(one, wanted.value_type, f"{what}[]") for one in value]
    reader = _reader_of(wanted)
    if reader is None:
        raise JsonValueError(
            what, f"{wanted}, which cannot be represented in JSON", short_repr(value)
        )
    try:
        return reader(value)
    except (ValueError, TypeError, ArithmeticError):
        raise JsonValueError(what, f"{wanted}", short_repr(value)) from None


def _given_fields(value: Any, wanted: pa.DataType, what: str) -> dict[str, Any]:
    fields = {one.name: one.type for one in wanted}
    if not isinstance(value, dict) or set(value) != set(fields):
        raise JsonValueError(
            what, f"an object with the fields {', '.join(fields)}", short_repr(value)
        )
    return {name: _given(value[name], kind, f"{what}.{name}") for name, kind in fields.items()}


def _given_entries(value: Any, wanted: pa.DataType, what: str) -> list[tuple[Any, Any]]:
    is_list_of_pairs = isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 for one in value
    )
    if not is_list_of_pairs:
        raise JsonValueError(what, "a list of pairs of key and value", short_repr(value))
    return [
        (
            _given(key, wanted.key_type, f"{what}.key"),
            _given(item, wanted.item_type, f"{what}.value"),
        )
        for key, item in value
    ]


def _reader_of(wanted: pa.DataType) -> Callable[[Any], Any] | None:
    kinds = pa.types
    readers: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = [
        (kinds.is_boolean, lambda value: _instance(value, bool)),
        (kinds.is_integer, _integer),
        (kinds.is_floating, _float),
        (kinds.is_string, lambda value: _instance(value, str)),
        (kinds.is_large_string, lambda value: _instance(value, str)),
        (kinds.is_binary, _bytes),
        (kinds.is_large_binary, _bytes),
        (kinds.is_decimal, _decimal),
        (kinds.is_timestamp, datetime.datetime.fromisoformat),
        (kinds.is_date, datetime.date.fromisoformat),
        (kinds.is_time, datetime.time.fromisoformat),
    ]
    return next((reader for is_it, reader in readers if is_it(wanted)), None)


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        return int(value)
    return _instance(value, int)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        return _NOT_NUMBERS[value] if value in _NOT_NUMBERS else float(value)
    return float(value)


def _bytes(value: Any) -> bytes:
    text = _instance(value, str)
    if not text.startswith("0x"):
        raise ValueError
    return bytes.fromhex(text[2:])


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, (bool, float)):
        raise TypeError  # a binary fraction is no decimal
    found = decimal.Decimal(value)
    if not found.is_finite():
        raise ValueError
    return found
