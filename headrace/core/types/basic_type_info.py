"""TypeInformation, the declared type of records, and the types without fields.

A type information is a small immutable value: it compares, hashes, prints and pickles by its structure. `arrow_mapping`
converts values to Arrow columns.
"""

import enum
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final

from headrace.core.types.time_values import Instant

_MICROS_PER_SECOND: Final = 1_000_000


@lru_cache(maxsize=1024)
def _made_once(cls: type["TypeInformation"], *parts: Any) -> "TypeInformation":
    """Return the one instance for these parts, also when unpickling: caches then find it without comparing parts."""
    return cls(*parts)


class TypeInformation:
    """The declared type of a stream's records, a state's values or a key."""

    __slots__ = ("_hash", "_text")
    _hash: int

    def __init__(self, text: str) -> None:
        self._text = text

    def parts(self) -> tuple[Any, ...]:
        """Return the values that distinguish types of the same class; also the constructor's arguments."""
        return ()

    def need_conversion(self) -> bool:
        """Return whether Python values differ from their internal form."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Convert a Python value to its internal form: dates to days, times to microseconds, rows to tuples."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Convert an internal value to a Python value."""
        return obj

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TypeInformation):
            return NotImplemented
        return type(self) is type(other) and self.parts() == other.parts()

    def __hash__(self) -> int:
        # Kept, because caches per type are asked once per batch and a row type may be deep.
        try:
            return self._hash
        except AttributeError:
            self._hash = hash((type(self), self.parts()))
            return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_once, (type(self), *self.parts())

    def __repr__(self) -> str:
        return self._text


class BasicType(enum.Enum):
    """The types without structure, with their names."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo(TypeInformation):
    """Type of a number, a string or a boolean."""

    __slots__ = ("basic_type",)

    def __init__(self, basic_type: BasicType) -> None:
        super().__init__(basic_type.value)
        self.basic_type = basic_type

    def parts(self) -> tuple[Any, ...]:
        return (self.basic_type,)

    @staticmethod
    def STRING_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.STRING]

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.BOOLEAN]

    @staticmethod
    def BYTE_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.BYTE]

    @staticmethod
    def SHORT_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.SHORT]

    @staticmethod
    def INT_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.INT]

    @staticmethod
    def LONG_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.LONG]

    @staticmethod
    def FLOAT_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.FLOAT]

    @staticmethod
    def DOUBLE_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.DOUBLE]

    @staticmethod
    def CHAR_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.CHAR]

    @staticmethod
    def BIG_INT_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.BIG_INT]

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.BIG_DEC]

    @staticmethod
    def INSTANT_TYPE_INFO() -> "BasicTypeInfo":
        return _BASIC_TYPES[BasicType.INSTANT]


class InstantTypeInfo(BasicTypeInfo):
    """Type of points in time, stored as (seconds, nanoseconds)."""

    __slots__ = ()

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Instant | None) -> tuple[int, int] | None:
        return None if obj is None else (obj.seconds, obj.nanos)

    def from_internal_type(self, obj: tuple[int, int] | None) -> Instant | None:
        return None if obj is None else Instant(obj[0], obj[1])


_BASIC_TYPES: Final = {
    basic: InstantTypeInfo(basic) if basic is BasicType.INSTANT else BasicTypeInfo(basic)
    for basic in BasicType
}


class BigDecimalTypeInfo(TypeInformation):
    """Type of decimals of a fixed precision and scale, such as a DataFrame's decimal column."""

    __slots__ = ("precision", "scale")

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(f"Decimal({precision}, {scale})")
        self.precision = precision
        self.scale = scale

    def parts(self) -> tuple[Any, ...]:
        return self.precision, self.scale


class SqlTimeTypeInfo(TypeInformation):
    """Base class of the calendar types."""

    __slots__ = ()

    @staticmethod
    def DATE() -> "DateTypeInfo":
        return DateTypeInfo()

    @staticmethod
    def TIME() -> "TimeTypeInfo":
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> "TimestampTypeInfo":
        return TimestampTypeInfo()


class DateTypeInfo(SqlTimeTypeInfo):
    """Type of `datetime.date`, stored as days since 1970-01-01."""

    __slots__ = ()
    EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

    def __init__(self) -> None:
        super().__init__("DateTypeInfo")

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: date | None) -> int | None:
        return None if obj is None else obj.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, obj: int | None) -> date | None:
        return None if obj is None else date.fromordinal(obj + self.EPOCH_ORDINAL)


def _local_offset_micros() -> int:
    offset = datetime.fromtimestamp(0).astimezone().utcoffset()
    return 0 if offset is None else offset // timedelta(microseconds=1)


class TimeTypeInfo(SqlTimeTypeInfo):
    """Type of `datetime.time`, stored as microseconds of the day in UTC; a naive time is in the local zone."""

    __slots__ = ()
    EPOCH_ORDINAL = _local_offset_micros()

    def __init__(self) -> None:
        super().__init__("TimeTypeInfo")

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: time | None) -> int | None:
        if obj is None:
            return None
        offset = self.EPOCH_ORDINAL
        if obj.tzinfo is not None:
            offset = (obj.utcoffset() or timedelta()) // timedelta(microseconds=1)
        seconds = (obj.hour * 60 + obj.minute) * 60 + obj.second
        return seconds * _MICROS_PER_SECOND + obj.microsecond - offset

    def from_internal_type(self, obj: int | None) -> time | None:
        if obj is None:
            return None
        seconds, micros = divmod(obj + self.EPOCH_ORDINAL, _MICROS_PER_SECOND)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return time(hour % 24, minute, second, micros)


class TimestampTypeInfo(SqlTimeTypeInfo):
    """Type of `datetime.datetime`, stored as microseconds since the epoch; a naive one is in the local zone.

    With a `time_zone` the values are aware datetimes of that zone, like the timestamps of DataFrames.
    """

    __slots__ = ("time_zone",)

    def __init__(self, time_zone: str | None = None) -> None:
        super().__init__(f"TimestampTypeInfo({time_zone})" if time_zone else "TimestampTypeInfo")
        self.time_zone = time_zone

    def parts(self) -> tuple[Any, ...]:
        return (self.time_zone,)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: datetime | None) -> int | None:
        if obj is None:
            return None
        seconds = int(obj.replace(microsecond=0).timestamp())
        return seconds * _MICROS_PER_SECOND + obj.microsecond

    def from_internal_type(self, obj: int | None) -> datetime | None:
        if obj is None:
            return None
        seconds, micros = divmod(obj, _MICROS_PER_SECOND)
        return datetime.fromtimestamp(seconds).replace(microsecond=micros)


class PickledBytesTypeInfo(TypeInformation):
    """Type of any Python object, as a pickle; the type of streams that declare none."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("PickledByteArrayTypeInfo")


class CollectionTypeInfo(TypeInformation):
    """Base of the types of arrays and lists: an `element_type`, and elements converted one by one."""

    __slots__ = ("element_type",)

    def __init__(self, text: str, element_type: TypeInformation) -> None:
        super().__init__(f"{text}<{element_type}>")
        self.element_type = element_type

    def parts(self) -> tuple[Any, ...]:
        return (self.element_type,)

    @property
    def elem_type(self) -> TypeInformation:
        return self.element_type

    def need_conversion(self) -> bool:
        return self.element_type.need_conversion()

    def to_internal_type(self, obj: Sequence[Any] | None) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return [self.element_type.to_internal_type(item) for item in obj]

    def from_internal_type(self, obj: Sequence[Any] | None) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        return [self.element_type.from_internal_type(item) for item in obj]


class PrimitiveArrayTypeInfo(CollectionTypeInfo):
    """Type of a list of numbers or booleans without None; `bytes` if the elements are BYTE."""

    __slots__ = ()

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__("PrimitiveArrayTypeInfo", element_type)


class BasicArrayTypeInfo(CollectionTypeInfo):
    """Type of a list of basic values or None."""

    __slots__ = ()

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__("BasicArrayTypeInfo", element_type)


class ObjectArrayTypeInfo(CollectionTypeInfo):
    """Type of a list of values of any type or None."""

    __slots__ = ()

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__("ObjectArrayTypeInfo", element_type)


class ListTypeInfo(CollectionTypeInfo):
    """Type of a list of values of any type or None."""

    __slots__ = ()

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__("ListTypeInfo", element_type)


class MapTypeInfo(TypeInformation):
    """Type of a dict with keys of one type and values of another."""

    __slots__ = ("key_type", "value_type")

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        super().__init__(f"MapTypeInfo<{key_type_info}, {value_type_info}>")
        self.key_type = key_type_info
        self.value_type = value_type_info

    def parts(self) -> tuple[Any, ...]:
        return self.key_type, self.value_type

    def need_conversion(self) -> bool:
        return self.key_type.need_conversion() or self.value_type.need_conversion()

    def to_internal_type(self, obj: dict[Any, Any] | None) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type.to_internal_type, self.value_type.to_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def from_internal_type(self, obj: dict[Any, Any] | None) -> Any:
        if obj is None or not self.need_conversion():
            return obj
        key, value = self.key_type.from_internal_type, self.value_type.from_internal_type
        return {key(k): value(v) for k, v in obj.items()}


def basic_type_info(basic_type: BasicType) -> TypeInformation:
    """Return the one instance for `basic_type`."""
    return _BASIC_TYPES[basic_type]
