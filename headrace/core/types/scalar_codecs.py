"""Codecs of types without inner values: convert a list of Python values to one Arrow array and back.

Each codec first looks at the set of the values' exact classes, which costs one C loop. Values are normalised one by one
only if another class occurs, or Arrow refuses a value: numpy scalars become Python's, and a value of the wrong kind, or
too large for its type, raises ValueMismatch.
"""

import math
import operator
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Decimal
from numbers import Real
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa

from headrace.core.types.pickles import pickle_values, unpickle_values
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import BasicType, BigDecimalTypeInfo


class ValueMismatch(Exception):
    """Raised if a value does not fit its declared type; the text is the reason. Caught where the record is known."""


class ColumnCodec(Protocol):
    """Converts a list of values (None allowed) to one Arrow array of `arrow_type` and back."""

    arrow_type: pa.DataType

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Return the array; raises ValueMismatch or an error of Arrow if a value does not fit."""
        ...

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the Python values of an array of `arrow_type`."""
        ...


class PlainCodec:
    """Codec of values that Arrow itself converts, if they are of one of the `plain` classes."""

    def __init__(
        self,
        arrow_type: pa.DataType,
        plain: frozenset[type],
        normalise: Callable[[Any], Any],
    ) -> None:
        self.arrow_type = arrow_type
        self._plain = plain | {type(None)}
        self._normalise = normalise

    def encode(self, values: Sequence[Any]) -> pa.Array:
        if self._plain.issuperset(map(type, values)):
            try:
                return pa.array(values, type=self.arrow_type)
            except (pa.ArrowException, OverflowError):
                pass  # a number out of range, most likely
        normalise = self._normalise
        return pa.array(
            [None if value is None else normalise(value) for value in values],
            type=self.arrow_type,
        )

    def decode(self, array: pa.Array) -> list[Any]:
        return array.to_pylist()


class FloatCodec(PlainCodec):
    """Codec of 32-bit floats: refuses numbers that are too large, which Arrow would turn into infinities."""

    def encode(self, values: Sequence[Any]) -> pa.Array:
        array = super().encode(values)
        # Nulls are NaN here.
        is_infinite = np.isinf(array.to_numpy(zero_copy_only=False))
        for index in np.flatnonzero(is_infinite).tolist():
            if not math.isinf(values[index]):
                raise mismatch(
                    "a number that 32 bits can hold (Types.DOUBLE() has 64)", values[index]
                )
        return array


class TextCodec:
    """Codec of numbers of any size, stored as text."""

    arrow_type = pa.string()

    def __init__(self, normalise: Callable[[Any], Any], parse: Callable[[str], Any]) -> None:
        self._normalise = normalise
        self._parse = parse

    def encode(self, values: Sequence[Any]) -> pa.Array:
        normalise = self._normalise
        texts = [None if value is None else str(normalise(value)) for value in values]
        return pa.array(texts, type=self.arrow_type)

    def decode(self, array: pa.Array) -> list[Any]:
        parse = self._parse
        return [None if text is None else parse(text) for text in array.to_pylist()]


class InstantCodec:
    """Codec of instants, stored as a struct of seconds and nanoseconds."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def encode(self, values: Sequence[Any]) -> pa.Array:
        pairs = [None if value is None else _seconds_and_nanos(value) for value in values]
        return pa.array(pairs, type=self.arrow_type)

    def decode(self, array: pa.Array) -> list[Any]:
        return [
            None if pair is None else Instant(pair["seconds"], pair["nanos"])
            for pair in array.to_pylist()
        ]


class PickleCodec:
    """Codec of any value, stored as its pickle; None is pickled like other values, so the column has no nulls."""

    arrow_type = pa.binary()

    def encode(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(pickle_values(values), type=self.arrow_type)

    def decode(self, array: pa.Array) -> list[Any]:
        if array.null_count == 0:
            return unpickle_values(array.to_pylist())
        # Under a null row, fields are null without a pickle.
        pickles: list[bytes | None] = array.to_pylist()
        return [None if one is None else unpickle_values((one,))[0] for one in pickles]


def mismatch(expected: str, value: Any) -> ValueMismatch:
    """Return the error for a value of the wrong kind."""
    text = repr(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return ValueMismatch(f"expected {expected}, got {type(value).__name__} {shown}")


def _integer(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise mismatch("an integer", value) from None


def _bounded(bit_count: int) -> Callable[[Any], int]:
    half = 1 << (bit_count - 1)
    larger = "Types.BIG_INT() holds any" if bit_count == 64 else "Types.LONG() holds 64"

    def check(value: Any) -> int:
        number = _integer(value)
        if not -half <= number < half:
            raise ValueMismatch(f"{mismatch(f'an integer of {bit_count} bits', value)} ({larger})")
        return number

    return check


def _real(value: Any) -> float:
    if not isinstance(value, Real):
        raise mismatch("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise mismatch("a number that a float can hold", value) from None


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise mismatch("a boolean", value)
    return bool(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        return Decimal(value)
    raise mismatch("a decimal.Decimal", value)


def _instance_of(wanted: type[Any], expected: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise mismatch(expected, value)
        return value

    return check


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise mismatch("one character", value)
    return value


def _byte_string(value: Any) -> bytes:
    """Convert numbers in Java's range (from -128) or Python's range (to 255) to bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast(bytes, value))
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return bytes(_byte(item) & 0xFF for item in cast(Sequence[Any], value))
    raise mismatch("bytes", value)


def _byte(item: Any) -> int:
    number = _integer(item)
    if not -128 <= number <= 255:
        raise mismatch("an integer of 8 bits, -128 to 255", item)
    return number


def _seconds_and_nanos(value: Any) -> tuple[int, int]:
    if not isinstance(value, Instant):
        raise mismatch("an Instant", value)
    return value.seconds, value.nanos


def basic_codec(basic_type: BasicType, arrow_type: pa.DataType) -> ColumnCodec:
    """Return the codec of a basic type. It refuses numbers that are too large."""
    match basic_type:
        case BasicType.STRING:
            return PlainCodec(arrow_type, frozenset({str}), _instance_of(str, "a str"))
        case BasicType.CHAR:
            return PlainCodec(arrow_type, frozenset(), _character)
        case BasicType.BOOLEAN:
            return PlainCodec(arrow_type, frozenset({bool}), _boolean)
        case BasicType.BYTE | BasicType.SHORT | BasicType.INT | BasicType.LONG:
            return PlainCodec(arrow_type, frozenset({int}), _bounded(arrow_type.bit_width))
        case BasicType.FLOAT:
            return FloatCodec(arrow_type, frozenset({float, int}), _real)
        case BasicType.DOUBLE:
            return PlainCodec(arrow_type, frozenset({float, int}), _real)
        case BasicType.BIG_INT:
            return TextCodec(_integer, int)
        case BasicType.BIG_DEC:
            return TextCodec(_decimal, Decimal)
        case BasicType.INSTANT:
            return InstantCodec(arrow_type)


def date_codec(arrow_type: pa.DataType) -> ColumnCodec:
    """Return the codec of dates."""
    return PlainCodec(
        arrow_type, frozenset({date, datetime}), _instance_of(date, "a datetime.date")
    )


def time_codec(arrow_type: pa.DataType) -> ColumnCodec:
    """Return the codec of times of the day; digits below a millisecond are cut off."""
    return PlainCodec(arrow_type, frozenset({time}), _instance_of(time, "a datetime.time"))


def timestamp_codec(arrow_type: pa.DataType) -> ColumnCodec:
    """Return the codec of timestamps; an aware datetime for a type without time zone is stored as its UTC time."""
    return PlainCodec(
        arrow_type, frozenset({datetime}), _instance_of(datetime, "a datetime.datetime")
    )


def decimal_codec(arrow_type: pa.DataType, type_info: BigDecimalTypeInfo) -> ColumnCodec:
    """Return the codec of decimals of fixed scale; further digits are rounded half up, as by Flink."""
    quantum: Final = Decimal(1).scaleb(-type_info.scale)

    def rescale(value: Any) -> Decimal:
        return _decimal(value).quantize(quantum, rounding=ROUND_HALF_UP)

    return PlainCodec(arrow_type, frozenset({Decimal, int}), rescale)


def byte_string_codec(arrow_type: pa.DataType) -> ColumnCodec:
    """Return the codec of PRIMITIVE_ARRAY(BYTE)."""
    return PlainCodec(arrow_type, frozenset({bytes, bytearray}), _byte_string)
