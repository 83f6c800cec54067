"""Encoding of RocksDB's rows: composite keys with equal bytes for equal keys, and values with their last access.

A composite key is the key group (one byte where there are at most 128, else two, big-endian), then the key and, in
states of windows, the namespace, each with its length before it, so that no entry is a prefix of another; then the map
key, or the position in a list. Undeclared keys that are equal in Python share one encoding, as they share one place in
a dict: True, 1 and 1.0 come back as 1, named tuples as tuples, decimals without trailing zeros, and times with a time
zone in UTC. A stored value is its last access (8 bytes, epoch ms) and a pickle.
Source: Flink CompositeKeySerializationUtils.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from numbers import Number
from types import FunctionType
from typing import Any, Final

import numpy as np

from headrace.core.key_groups import key_group_of
from headrace.core.key_hash import hash_key
from headrace.core.types.pickles import pickle_value, pickle_without_memory, unpickle_value
from headrace.core.types.rows import Row, row_of_parts, row_parts
from headrace.core.types.type_info import BasicType, BasicTypeInfo, TypeInformation
from headrace.functions.windows import TimeWindow
from headrace.state.backend import NO_KEY
from headrace.state.columns import is_opaque, key_groups
from headrace.state.restored_keyed_state import KeySpace
from headrace.state.ttl import NO_STAMP, TtlClock, TtlRules

_LENGTH: Final = struct.Struct(">I")
_POSITION: Final = struct.Struct(">Q")
_WINDOW: Final = struct.Struct(">qq")
_FLOAT: Final = struct.Struct(">d")
_PREFIXES_MAX: Final = 65_536
_MASK: Final = 0xFFFFFFFF
_MINUTE: Final = timedelta(minutes=1)
_LAST_MINUTE: Final = 24 * 60 - 1
FormOf = Callable[[Any], bytes]
_STAMP: Final = struct.Struct(">q")
STAMPS_VERSION: Final = "2"
"""Version of stored last accesses. In version 1, which snapshots do not name, -1 stood for none; now NO_STAMP does."""
_NO_STAMP_BEFORE: Final = _STAMP.pack(-1)
_NO_STAMP_NOW: Final = _STAMP.pack(NO_STAMP)


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a namespace, or of a key of a declared type: equal values of one class have equal bytes."""
    writer = _WRITERS.get(type(value))
    return _pickled(value) if writer is None else writer(value)


def equal_form(value: Any) -> bytes:
    """Return the bytes of a key of any class: values that are equal in Python have equal bytes, also numbers."""
    writer = _EQUAL_WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, Number | np.bool_):
        return _of_number(value)
    if not isinstance(type(value).__eq__, FunctionType):  # else it compares as its class says
        for base, writer_of_base in _BASE_WRITERS:
            if isinstance(value, base):
                return writer_of_base(value)
    return to_bytes(value)


def form_of_keys(key_type: TypeInformation) -> FormOf:
    """Return the function that encodes keys or map keys of a type; declared ones are restored as they were."""
    return equal_form if is_opaque(key_type) else to_bytes


def tells_all(value: Any) -> bool:
    """Return whether `from_bytes` restores a key with its class; 2.0 and True are restored as integers."""
    if type(value) is tuple:
        return all(map(tells_all, value))
    if type(value) in _TELLING:
        return True
    return type(value) not in _REWRITTEN and equal_form(value)[:1] == b"p"


def from_bytes(form: bytes) -> Any:
    """Return the value of encoded bytes."""
    tag, content = form[:1], form[1:]
    match tag:
        case b"n":
            return None
        case b"i":
            return int.from_bytes(content, "big", signed=True)
        case b"s":
            return content.decode("utf-8", "surrogatepass")
        case b"t":
            return tuple(map(from_bytes, _parts(content)))
        case b"r":
            return row_of_parts(*map(from_bytes, _parts(content)))
        case b"S":
            return frozenset(map(from_bytes, _parts(content)))
        case b"w":
            return TimeWindow(*_WINDOW.unpack(content))
        case b"f":
            return _FLOAT.unpack(content)[0]
        case b"b":
            return bytes(content)
        case b"B":
            return content == b"1"
        case _:
            return unpickle_value(content)


def _of_int(value: int) -> bytes:
    return b"i" + value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _of_float(value: float) -> bytes:
    return _of_int(int(value)) if value.is_integer() else b"f" + _FLOAT.pack(value)


def _of_decimal(value: Decimal) -> bytes:
    if value.is_finite() and value == int(value):
        return _of_int(int(value))
    if Decimal(float(value)) == value:
        return _of_float(float(value))
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a value that is not finite is encoded as a float"
    significant = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(significant)
    return _pickled(Decimal((sign, tuple(map(int, significant)), exponent)))


def _of_datetime(value: datetime) -> bytes:
    """Encode a datetime: aware datetimes are equal if they are the same instant, and `fold` does not count."""
    value = value.replace(fold=0)
    if value.utcoffset() is None:
        return _pickled(value)
    try:
        return _pickled(value.astimezone(UTC))
    except OverflowError:  # the first or the last day there is
        return _pickled(value)


def _of_time(value: time) -> bytes:
    """Encode a time: aware times are equal if their distances from midnight in UTC are, which may exceed a day."""
    value = value.replace(fold=0)
    offset = value.utcoffset()
    if offset is None:
        return _pickled(value)
    distance = datetime.combine(date.min, value.replace(tzinfo=None)) - datetime.min - offset
    minutes, rest = divmod(distance, _MINUTE)
    wall_minutes = min(max(minutes, 0), _LAST_MINUTE)
    wall = wall_minutes * _MINUTE + rest
    zone = UTC if wall == distance else timezone(wall - distance)
    return _pickled((datetime.min + wall).time().replace(tzinfo=zone))


def _of_number(value: Any) -> bytes:
    for number_class, form_of in _EXACT_NUMBERS:
        try:
            converted = number_class(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if converted == value:
            return form_of(converted)
    return to_bytes(value)


def _of_tuple(value: tuple[Any, ...]) -> bytes:
    return b"t" + _joined(map(to_bytes, value))


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def _parts(content: bytes) -> list[bytes]:
    parts: list[bytes] = []
    offset = 0
    while offset < len(content):
        (length,) = _LENGTH.unpack_from(content, offset)
        offset += _LENGTH.size
        parts.append(content[offset : offset + length])
        offset += length
    return parts


def _pickled(value: Any) -> bytes:
    return b"p" + pickle_without_memory(value)


_WRITERS: Final[dict[type, FormOf]] = {
    type(None): lambda value: b"n",
    bool: lambda value: b"B1" if value else b"B0",
    int: _of_int,
    float: _of_float,
    Decimal: _of_decimal,
    str: lambda value: b"s" + value.encode("utf-8", "surrogatepass"),
    bytes: lambda value: b"b" + value,
    tuple: _of_tuple,
    TimeWindow: lambda value: b"w" + _WINDOW.pack(value.start, value.end),
}
_EQUAL_WRITERS: Final[dict[type, FormOf]] = {
    **_WRITERS,
    bool: lambda value: _of_int(int(value)),
    tuple: lambda value: b"t" + _joined(map(equal_form, value)),
    Row: lambda value: b"r" + _joined(map(equal_form, row_parts(value))),
    frozenset: lambda value: b"S" + _joined(sorted(map(equal_form, value))),
    datetime: _of_datetime,
    time: _of_time,
}
# For classes of their own that compare as these do: named tuples, texts that are members of an Enum.
_BASE_WRITERS: Final[tuple[tuple[type, FormOf], ...]] = (
    (str, _WRITERS[str]),
    (bytes, _WRITERS[bytes]),
    (tuple, _EQUAL_WRITERS[tuple]),
    (frozenset, _EQUAL_WRITERS[frozenset]),
)
_REWRITTEN: Final = frozenset({Decimal, datetime, time})
_EXACT_NUMBERS: Final[tuple[tuple[Any, FormOf], ...]] = ((int, _of_int), (float, _of_float))
_TELLING: Final = frozenset({type(None), int, str, bytes, TimeWindow})


def position_bytes(position: int) -> bytes:
    """Return the bytes of a position in a list, in the order of positions."""
    return _POSITION.pack(position)


class CompositeKeys:
    """Builds composite keys, and caches the prefixes of the most recent keys."""

    def __init__(self, key_space: KeySpace) -> None:
        self._key_space = key_space
        self.group_size = 1 if key_space.max_parallelism <= 128 else 2
        self._hash_scalar = _scalar_hash(key_space.key_type)
        self._form_of = form_of_keys(key_space.key_type)
        self._known: dict[Any, bytes] = {}

    def of_key(self, key: Any) -> bytes:
        """Return the prefix of a key."""
        prefix = self._known.get(key)
        if prefix is None:
            form = self._form_of(key)
            prefix = self.group_bytes(self._group(key)) + _LENGTH.pack(len(form)) + form
            if len(self._known) >= _PREFIXES_MAX:
                self._known.clear()
            self._known[key] = prefix
        return prefix

    def of_entry(self, entry: Any, *, has_namespace: bool) -> bytes:
        """Return the prefix of an entry, which is a key or a pair of key and namespace."""
        if not has_namespace:
            return self.of_key(entry)
        if entry is NO_KEY:
            hash(entry)  # which says what is wrong
        form = to_bytes(entry[1])
        return self.of_key(entry[0]) + _LENGTH.pack(len(form)) + form

    def split(self, composite: bytes, *, has_namespace: bool) -> tuple[int, Any, bytes]:
        """Return the key group, the entry, and the rest of a composite key."""
        size = self.group_size
        group = int.from_bytes(composite[:size], "big")
        key, offset = _read_part(composite, size)
        if not has_namespace:
            return group, key, composite[offset:]
        namespace, offset = _read_part(composite, offset)
        return group, (key, namespace), composite[offset:]

    def group_bytes(self, group: int) -> bytes:
        """Return the first bytes of all keys of a key group."""
        return group.to_bytes(self.group_size, "big")

    def _group(self, key: Any) -> int:
        if type(key) in (str, int) and self._hash_scalar:
            return key_group_of(hash_key(key) & _MASK, self._key_space.max_parallelism)
        space = self._key_space
        return int(key_groups([key], space.key_type, space.max_parallelism)[0])


def _read_part(composite: bytes, offset: int) -> tuple[Any, int]:
    (length,) = _LENGTH.unpack_from(composite, offset)
    offset += _LENGTH.size
    return from_bytes(composite[offset : offset + length]), offset + length


def _scalar_hash(key_type: TypeInformation) -> bool:
    """Return whether texts and integers of the type are hashed one by one as in columns."""
    return is_opaque(key_type) or (
        isinstance(key_type, BasicTypeInfo)
        and key_type.basic_type in (BasicType.STRING, BasicType.LONG)
    )


def stored_form(value: Any, stamp_ms: int) -> bytes:
    """Return the stored form of a value."""
    return _STAMP.pack(stamp_ms) + pickle_value(value)


def stored_value(form: bytes) -> Any:
    """Return the value of a stored form."""
    return unpickle_value(memoryview(form)[_STAMP.size :])


def stored_stamp(form: bytes) -> int:
    """Return the last access of a stored form, or NO_STAMP."""
    return _STAMP.unpack_from(form)[0]


def restamped(form: bytes) -> bytes | None:
    """Return a stored form of version 1 in the present version; None if both are the same."""
    return _NO_STAMP_NOW + form[_STAMP.size :] if form.startswith(_NO_STAMP_BEFORE) else None


@dataclass(frozen=True)
class Lifetime:
    """A time to live and its clock."""

    rules: TtlRules
    clock: TtlClock

    def is_over(self, form: bytes, now_ms: int) -> bool:
        """Return whether a stored value has expired."""
        stamp_ms = stored_stamp(form)
        if stamp_ms == NO_STAMP:
            stamp_ms = self.clock.untimed_ms()
        return self.rules.is_expired(stamp_ms, now_ms)

    def stamp_over(self, table: Any, composite: bytes) -> int:
        """Return the last access for a value accessed now; in event time, records may come out of order."""
        access_ms = self.clock.access_ms()
        held = table.get(composite) if self.rules.is_event_time else None
        return access_ms if held is None else max(access_ms, stored_stamp(held))
