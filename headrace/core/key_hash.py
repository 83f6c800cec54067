"""The 32-bit hash of a key, the same in every process: Java's `hashCode` for types that Java has.

Key groups are computed from it (`core.key_groups`), so it decides which subtask owns a key and may never change for
data that a snapshot may hold. Declared keys are hashed as Arrow arrays. Undeclared keys are hashed as Python values:
values that are equal in Python have the same hash (2, 2.0 and Decimal(2); one instant in two time zones) or are
refused, so that equal keys always reach the same subtask; strings and integers are hashed like declared ones. Two
decisions differ from Java, because equal keys must have equal hashes and Python compares `-0.0 == 0.0`: -0.0 is hashed
as 0.0, and NaN, which equals nothing, cannot be a key.

Source: java.lang `hashCode` of Integer, Long, Boolean, Double, String, BigInteger, Arrays; Flink Tuple, RowUtils.
"""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from numbers import Complex, Number
from pathlib import PurePath
from types import FunctionType
from typing import Any, Final
from uuid import UUID  # noqa: TID251  (to know the class: no id is made here)

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.types.rows import Row

Hashes = npt.NDArray[np.int32]
_ScalarHash = Callable[[Any], int]

_U32: Final = np.uint32
_MASK: Final = 0xFFFFFFFF
_HASH_OF_TRUE: Final = 1231
_HASH_OF_FALSE: Final = 1237
_KEY_SELECTOR: Final = "the key selector"
NULL_REASON: Final = "is null: give such records another key, or filter them out"
_NAN_REASON: Final = "is NaN, which equals no other key"
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1)  # naive: the offset is taken off by itself
_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1


class InvalidKeyError(HeadraceError):
    """Raised if a record's key is invalid: null, NaN, or of a type whose values do not compare."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, reason: str, origin: str = _KEY_SELECTOR) -> None:
        super().__init__(f"the key from {origin} {reason}")
        self.reason = reason
        self.origin = origin


def hash_keys(values: Sequence[Any], origin: str = _KEY_SELECTOR) -> Hashes:
    """Hash Python values, shape (len(values),); InvalidKeyError names `origin`.

    Values of one plain class are hashed as an array, all others one by one with the same result.
    """
    try:
        if type(None) in set(map(type, values)):
            raise InvalidKeyError(NULL_REASON)
        return _hash_objects(values).view(np.int32)
    except InvalidKeyError as error:
        raise InvalidKeyError(error.reason, origin) from None


def _hash_objects(values: Sequence[Any]) -> npt.NDArray[np.uint32]:
    classes = set(map(type, values))
    if len(classes) == 1:
        (cls,) = classes
        arrow_type = _ARROW_TYPES.get(cls)
        if arrow_type is not None:
            try:
                array = pa.array(values, type=arrow_type)
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                pass  # an integer beyond 64 bits, or half a surrogate pair
            else:
                return _hash_plain(array)
        elif cls is tuple and len(set(map(len, values))) == 1 and values[0]:
            return _combine([_hash_objects(field) for field in zip(*values, strict=True)])
    return np.array([_hash_of(value) for value in values], dtype=np.uint32)


def _hash_plain(array: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash undeclared strings and numbers, such that equal numbers of other classes have the same hash."""
    if pa.types.is_boolean(array.type):
        return array.to_numpy(zero_copy_only=False).astype(np.uint32)
    if not pa.types.is_floating(array.type):
        return _hash_values(array)
    values = array.to_numpy()
    hashes = _hash_floats(values)
    is_whole = np.floor(values) == values
    is_long = is_whole & (np.abs(values) < _LONG_MAX)
    hashes[is_long] = _fold_integers(values[is_long].astype(np.int64))
    for index in np.flatnonzero(is_whole & ~is_long).tolist():
        hashes[index] = _hash_of_number(float(values[index]))
    return hashes


def hash_key(value: Any) -> int:
    """Hash one Python value as `hash_keys` does, as an unsigned number of 32 bits. InvalidKeyError."""
    if value is None:
        raise InvalidKeyError(NULL_REASON)
    return _hash_of(value)


def hash_array(array: pa.Array, origin: str = "the key column") -> Hashes:
    """Hash the values of an Arrow array, shape (len(array),); InvalidKeyError names `origin`."""
    try:
        if array.null_count:
            raise InvalidKeyError(NULL_REASON)
        return _hash_values(array).view(np.int32)
    except InvalidKeyError as error:
        raise InvalidKeyError(error.reason, origin) from None


def _hash_values(array: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash an array without nulls."""
    kinds, arrow_type = pa.types, array.type
    if kinds.is_dictionary(arrow_type):
        # Indices are local to a batch: only decoded values may be hashed.
        return _hash_nullable(array.dictionary)[array.indices.to_numpy()]
    if kinds.is_string(arrow_type) or kinds.is_large_string(arrow_type):
        return _hash_texts(array)
    if kinds.is_boolean(arrow_type):
        truths = array.to_numpy(zero_copy_only=False)
        return np.where(truths, _U32(_HASH_OF_TRUE), _U32(_HASH_OF_FALSE))
    if kinds.is_integer(arrow_type):
        return _fold_integers(array.to_numpy())
    if kinds.is_floating(arrow_type):
        return _hash_floats(array.to_numpy())
    if kinds.is_date32(arrow_type) or kinds.is_time32(arrow_type):
        return _fold_integers(array.view(pa.int32()).to_numpy())
    if kinds.is_timestamp(arrow_type) or kinds.is_time64(arrow_type) or kinds.is_date64(arrow_type):
        return _fold_integers(array.view(pa.int64()).to_numpy())
    if kinds.is_struct(arrow_type):
        return _combine([_hash_nullable(field) for field in array.flatten()])
    return _hash_objects(array.to_pylist())


def _hash_nullable(array: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash a field inside a key, in which null is a value like others, with hash 0."""
    if not array.null_count:
        return _hash_values(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    hashes = np.zeros(len(array), dtype=np.uint32)
    hashes[valid] = _hash_values(array.drop_null())
    return hashes


def _combine(fields: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    combined = np.zeros(len(fields[0]), dtype=np.uint32)
    for hashes in fields:
        combined = combined * _U32(31) + hashes
    return combined


def _fold_integers(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Fold integers to 32 bits: an Integer is itself, a Long both halves."""
    if values.dtype.itemsize < 8:
        return values.astype(np.int64).astype(np.uint32)
    bits = values.view(np.uint64)
    return (bits ^ (bits >> np.uint64(32))).astype(np.uint32)


def _hash_floats(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    if np.isnan(values).any():
        raise InvalidKeyError(_NAN_REASON)
    positive = values + 0.0  # -0.0 becomes 0.0
    if positive.dtype.itemsize < 8:
        return positive.astype(np.float32).view(np.uint32)
    return _fold_integers(positive.view(np.int64))


def _hash_texts(array: pa.Array) -> npt.NDArray[np.uint32]:
    """Hash strings: the sum of code unit x 31^(code units after it), over UTF-16 code units."""
    wide = pa.types.is_large_string(array.type)
    _, offset_buffer, data_buffer = array.buffers()
    offset_type = np.int64 if wide else np.int32
    count = len(array)
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)[
        array.offset : array.offset + count + 1
    ]
    units = np.zeros(0, dtype=np.uint8)
    if data_buffer is not None:
        units = np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    if units.size and units.max() >= 0x80:
        encoded = [text.encode("utf-16-le") for text in array.to_pylist()]
        units = np.frombuffer(b"".join(encoded), dtype="<u2")
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum([len(text) // 2 for text in encoded], out=offsets[1:])
    return _polynomials(units.astype(np.uint32), offsets)


def _polynomials(
    units: npt.NDArray[np.uint32], offsets: npt.NDArray[Any]
) -> npt.NDArray[np.uint32]:
    """Evaluate one polynomial in 31 per slice of `units`; all at once, modulo 2^32."""
    lengths = np.diff(offsets)
    hashes = np.zeros(len(lengths), dtype=np.uint32)
    filled = lengths > 0
    if not filled.any():
        return hashes
    powers = np.ones(int(lengths.max()), dtype=np.uint32)
    np.cumprod(np.full(len(powers) - 1, 31, dtype=np.uint32), out=powers[1:], dtype=np.uint32)
    positions = np.repeat(offsets[1:], lengths) - np.arange(len(units)) - 1
    # Slices of no length would make reduceat answer with a neighbour's unit.
    hashes[filled] = np.add.reduceat(
        units * powers[positions], offsets[:-1][filled], dtype=np.uint32
    )
    return hashes


# From here on: one Python value at a time, results in [0, 2^32).


def _hash_of(value: Any) -> int:
    function = _SCALAR_HASHES.get(type(value))
    if function is not None:
        return function(value)
    if isinstance(type(value).__eq__, FunctionType) and not isinstance(value, _OF_LIBRARIES):
        return _hash_of_object(value)  # compares as the user says, even if it is a text or a tuple
    for kind, scalar_hash in _SCALAR_HASHES.items():
        if isinstance(value, kind):
            return scalar_hash(value)
    if isinstance(value, enum.Enum):
        return _hash_of_text(value.name)
    return _hash_of_object(value)


def _hash_of_integer(value: int) -> int:
    if _LONG_MIN <= value <= _LONG_MAX:
        return (value ^ (value >> 32)) & _MASK
    magnitude, combined = abs(value), 0
    for shift in range((magnitude.bit_length() - 1) // 32 * 32, -1, -32):
        combined = (combined * 31 + ((magnitude >> shift) & _MASK)) & _MASK
    return combined if value > 0 else -combined & _MASK


def _hash_of_number(value: Any) -> int:
    """Hash a number by its value, whatever its class: 2, 2.0 and Decimal(2) are one key to Python."""
    # A signaling NaN raises where it is compared.
    is_nan = value.is_nan() if isinstance(value, Decimal) else value != value
    if is_nan:
        raise InvalidKeyError(_NAN_REASON)
    real: Any = value.real if isinstance(value, Complex) and value.imag == 0 else value
    return _hash_of_real(real)


def _hash_of_real(value: Any) -> int:
    conversions: tuple[tuple[type, _ScalarHash], ...] = (
        (int, _hash_of_integer),
        (float, _hash_of_double),
    )
    for number_class, hash_converted in conversions:
        try:
            converted: Any = number_class(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if converted == value:
            return hash_converted(converted)
    # Python hashes numbers alike in every process, unlike texts.
    return _hash_of_integer(hash(value))


def _hash_of_double(value: float) -> int:
    return int(_hash_floats(np.array([value], dtype=np.float64))[0])


def _hash_of_text(value: str) -> int:
    combined = 0
    encoded = value.encode("utf-16-le", "surrogatepass")
    for low, high in zip(encoded[::2], encoded[1::2], strict=True):
        combined = (combined * 31 + (high << 8 | low)) & _MASK
    return combined


def _hash_of_bytes(value: bytes) -> int:
    combined = 1
    for byte in value:
        combined = (combined * 31 + (byte - 256 if byte > 127 else byte)) & _MASK
    return combined


def _hash_of_fields(values: Sequence[Any]) -> int:
    combined = 0
    for value in values:
        combined = (combined * 31 + _hash_of(value)) & _MASK
    return combined


def _hash_of_set(values: frozenset[Any]) -> int:
    return sum(_hash_of(value) for value in values) & _MASK


def _hash_of_datetime(value: datetime) -> int:
    """Hash an aware datetime by its instant, a naive one by its fields."""
    value = value.replace(fold=0)  # which does not count where datetimes of one zone are compared
    offset = value.utcoffset()
    if offset is None:
        return _hash_of_text(value.isoformat())
    return _hash_of_duration(value.replace(tzinfo=None) - _EPOCH - offset)


def _hash_of_time(value: time) -> int:
    value = value.replace(fold=0)
    offset = value.utcoffset()
    if offset is None:
        return _hash_of_text(value.isoformat())
    of_day = timedelta(
        hours=value.hour,
        minutes=value.minute,
        seconds=value.second,
        microseconds=value.microsecond,
    )
    return _hash_of_duration(of_day - offset)


def _hash_of_duration(value: timedelta) -> int:
    return _hash_of_integer(value // _MICROSECOND)


def _hash_of_numpy_time(value: Any) -> int:
    if np.isnat(value):
        raise InvalidKeyError("is NaT, which equals no other key")
    unit = "datetime64[us]" if isinstance(value, np.datetime64) else "timedelta64[us]"
    return _hash_of(value.astype(unit).item())


def _hash_of_path(value: PurePath) -> int:
    return _hash_of_text(value.as_posix().lower())  # lower: as paths of Windows compare


def _hash_of_object(value: Any) -> int:
    """Hash an object of a class that is known to compare by its fields: a data class with the equality it came with.

    Other classes may compare in any way, and their `__hash__` may differ between processes, as that of a string does.
    """
    cls: type = type(value)
    if cls.__hash__ is None:
        raise InvalidKeyError(f"is a {cls.__name__}, which is not hashable: use a tuple")
    if cls.__eq__ is object.__eq__:
        raise InvalidKeyError(f"is a {cls.__name__}, which has no __eq__ and __hash__ by value")
    if not _compares_by_fields(cls):
        raise InvalidKeyError(
            f"is a {cls.__name__}, whose own __eq__ and __hash__ may send equal keys to different subtasks: "
            "key by a tuple of the relevant fields, or make it a frozen dataclass",
        )
    fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
    return (31 * _hash_of_text(cls.__qualname__) + _hash_of_fields(fields)) & _MASK


@lru_cache(maxsize=1024)
def _compares_by_fields(cls: type) -> bool:
    """Return whether a class has the `__eq__` that `dataclass` writes, which has no file of its own."""
    code = getattr(cls.__eq__, "__code__", None)
    return dataclasses.is_dataclass(cls) and code is not None and code.co_filename == "<string>"


# Order matters for subclasses: datetime before date, numpy's durations before its integers.
_SCALAR_HASHES: Final[dict[type, _ScalarHash]] = {
    str: _hash_of_text,
    int: _hash_of_integer,
    bool: _hash_of_number,
    float: _hash_of_number,
    tuple: _hash_of_fields,
    Row: _hash_of_fields,
    bytes: _hash_of_bytes,
    frozenset: _hash_of_set,
    datetime: _hash_of_datetime,
    date: lambda value: _hash_of_integer(value.toordinal() - 719163),
    time: _hash_of_time,
    timedelta: _hash_of_duration,
    np.datetime64: _hash_of_numpy_time,
    np.timedelta64: _hash_of_numpy_time,
    np.bool_: _hash_of_number,
    Number: _hash_of_number,
    UUID: lambda value: _hash_of_integer(value.int),
    PurePath: _hash_of_path,
    type(None): lambda value: 0,
}

_ARROW_TYPES: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
}

_OF_LIBRARIES: Final = (Number, datetime, date, time, UUID, PurePath)
"""Classes of libraries whose values are compared by Python code: fractions, time stamps of pandas, ids, paths."""
