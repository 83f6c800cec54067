"""`Types`, the factory for declared types, and the types with fields: rows and tuples.

All type informations can be imported from here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from headrace.core.types.basic_type_info import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    CollectionTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    basic_type_info,
)
from headrace.core.types.rows import Row, row_of

__all__ = [
    "Types",
    "TypeInformation",
    "BasicType",
    "BasicTypeInfo",
    "InstantTypeInfo",
    "BigDecimalTypeInfo",
    "SqlTimeTypeInfo",
    "DateTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "PickledBytesTypeInfo",
    "CollectionTypeInfo",
    "PrimitiveArrayTypeInfo",
    "BasicArrayTypeInfo",
    "ObjectArrayTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "RowTypeInfo",
    "TupleTypeInfo",
    "field_values",
]

MAX_TUPLE_ARITY: Final = 25  # Flink's Tuple25 is its widest


class RowTypeInfo(TypeInformation):
    """Type of rows with named fields: `f0`, `f1`, … without given names."""

    __slots__ = ("field_names", "field_types", "_names_given")

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        self.field_types = tuple(field_types)
        self._names_given = field_names is not None
        self.field_names = tuple(
            (f"f{index}" for index in range(len(self.field_types)))
            if field_names is None
            else field_names
        )
        texts = map(str, self.field_types)
        if self._names_given:
            pairs = zip(self.field_names, texts, strict=False)
            texts = (f"{name}: {text}" for name, text in pairs)
        super().__init__(f"RowTypeInfo({', '.join(texts)})")

    def parts(self) -> tuple[Any, ...]:
        return self.field_types, self.field_names

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTypeInfo, (self.field_types, self.field_names if self._names_given else None)

    def get_field_names(self) -> list[str]:
        return list(self.field_names)

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of the field; ValueError if there is no such field."""
        if field_name not in self.field_names:
            raise ValueError(f"no field '{field_name}' in {self}")
        return self.field_names.index(field_name)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        """Return the internal values of a Row, tuple, list, dict or object with such attributes."""
        if obj is None:
            return None
        values = zip(self.field_types, field_values(obj, self.field_names), strict=True)
        return tuple(field_type.to_internal_type(value) for field_type, value in values)

    def from_internal_type(self, obj: Any) -> Row | None:
        if obj is None or isinstance(obj, Row):
            return obj
        values = zip(self.field_types, cast(Sequence[Any], obj), strict=True)
        return row_of(
            self.field_names,
            tuple(field_type.from_internal_type(value) for field_type, value in values),
        )


def field_values(obj: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """Return the fields of a Row, sequence, mapping or object with such attributes, in the order of `names`."""
    if isinstance(obj, Row):
        return obj.get_fields_by_names(names)
    if isinstance(obj, Sequence):
        return cast(Sequence[Any], obj)
    if isinstance(obj, Mapping):
        mapping = cast(Mapping[str, Any], obj)
        return [mapping.get(name) for name in names]
    return [getattr(obj, name, None) for name in names]


class TupleTypeInfo(TypeInformation):
    """Type of Python tuples of fixed length."""

    __slots__ = ("field_types",)

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self.field_types = tuple(field_types)
        super().__init__(f"TupleTypeInfo({', '.join(map(str, self.field_types))})")

    def parts(self) -> tuple[Any, ...]:
        return (self.field_types,)

    @property
    def field_names(self) -> tuple[str, ...]:
        """Return `f0`, `f1`, …: the names of the columns."""
        return tuple(f"f{index}" for index in range(len(self.field_types)))

    def get_field_types(self) -> list[TypeInformation]:
        return list(self.field_types)

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        values = zip(self.field_types, cast(Sequence[Any], obj), strict=True)
        return tuple(field_type.to_internal_type(value) for field_type, value in values)

    def from_internal_type(self, obj: Any) -> tuple[Any, ...] | None:
        if obj is None:
            return None
        values = zip(self.field_types, cast(Sequence[Any], obj), strict=True)
        return tuple(field_type.from_internal_type(value) for field_type, value in values)


class Types:
    """Factory of type informations.

    Numbers too large for BYTE, SHORT, INT, LONG or FLOAT raise RecordTypeError; BIG_INT takes any integer.

    Example:
        >>> Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
        RowTypeInfo(name: String, age: Integer)
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`."""
        return basic_type_info(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of an 8-bit `int`."""
        return basic_type_info(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return basic_type_info(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of a 16-bit `int`."""
        return basic_type_info(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of a 32-bit `int`."""
        return basic_type_info(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of a 64-bit `int`."""
        return basic_type_info(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of a 32-bit `float`."""
        return basic_type_info(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of a 64-bit `float`."""
        return basic_type_info(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of a `str` of one character."""
        return basic_type_info(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of an `int` of any size."""
        return basic_type_info(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of a `decimal.Decimal` of any precision."""
        return basic_type_info(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of an `Instant`."""
        return basic_type_info(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of a `datetime.date`."""
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of a `datetime.time`, kept to the millisecond."""
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of a `datetime.datetime`, kept to the microsecond."""
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any Python object, stored as a pickle."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of a `Row` with fields f0, f1 and so on."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """Return the type of a `Row` with named fields."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Return the type of a `tuple` of at most 25 fields."""
        if len(field_types) > MAX_TUPLE_ARITY:
            raise ValueError(
                f"a tuple type has at most {MAX_TUPLE_ARITY} fields, not {len(field_types)}: use Types.ROW"
            )
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """Return the type of a `list` of numbers or booleans without None; `bytes` for BYTE elements."""
        if not isinstance(element_type, BasicTypeInfo) or element_type.basic_type in NOT_PRIMITIVE:
            raise TypeError(f"{element_type} is not a primitive type: use Types.BASIC_ARRAY")
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """Return the type of a `list` of basic values or None."""
        if not isinstance(element_type, BasicTypeInfo):
            raise TypeError(f"{element_type} is not a basic type: use Types.OBJECT_ARRAY")
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """Return the type of a `list` of values of any type or None."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """Return the type of a `dict`."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """Return the type of a `list` of values of any type or None."""
        return ListTypeInfo(element_type_info)


NOT_PRIMITIVE: Final = frozenset(
    {BasicType.STRING, BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT}
)
