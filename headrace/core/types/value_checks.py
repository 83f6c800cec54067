"""Whether a value fits a declared type, asked for single values and so often that it must cost next to nothing.

What is of the very class that a type stands for fits; only other values are put to the conversion that decides for
streams. Lists and maps are not searched: that would cost more the more they hold.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

from headrace.core.types.arrow_mapping import rows_to_columns
from headrace.core.types.arrow_types import is_byte
from headrace.core.types.basic_type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    CollectionTypeInfo,
    DateTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from headrace.core.types.rows import Row, plain_values
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import RowTypeInfo, TupleTypeInfo

_CLASSES: Final[dict[BasicType, tuple[type, ...]]] = {
    BasicType.STRING: (str,),
    BasicType.BYTE: (int,),
    BasicType.BOOLEAN: (bool,),
    BasicType.SHORT: (int,),
    BasicType.INT: (int,),
    BasicType.LONG: (int,),
    BasicType.FLOAT: (float, int),
    BasicType.DOUBLE: (float, int),
    BasicType.CHAR: (str,),
    BasicType.BIG_INT: (int,),
    BasicType.BIG_DEC: (Decimal,),
    BasicType.INSTANT: (Instant,),
}

_NO_CLASSES: Final[frozenset[type]] = frozenset()


@dataclass(frozen=True)
class ValueCheck:
    """`type(value) in fitting` needs no more; else `refuse(value)` is asked: RecordTypeError if it does not fit."""

    fitting: frozenset[type]
    refuse: Callable[[Any], None]

    @classmethod
    def of(cls, value_type: TypeInformation) -> "ValueCheck":
        """Decide by the type what is asked of each value."""
        if isinstance(value_type, PickledBytesTypeInfo):
            return cls(_NO_CLASSES, _refuse_nothing)
        fits = _fit_of(value_type)

        def refuse(value: Any) -> None:
            if not fits(value):
                rows_to_columns([value], value_type)

        return cls(_classes_of(value_type), refuse)


def _refuse_nothing(value: Any) -> None:
    pass


def _classes_of(value_type: TypeInformation) -> frozenset[type]:
    """Classes all of whose values fit, as far as they are looked at."""
    match value_type:
        case BasicTypeInfo():
            return frozenset(_CLASSES[value_type.basic_type])
        case DateTypeInfo():
            return frozenset((date,))
        case TimeTypeInfo():
            return frozenset((time,))
        case TimestampTypeInfo():
            return frozenset((datetime,))
        case BigDecimalTypeInfo():
            return frozenset((Decimal,))
        case MapTypeInfo():
            return frozenset((dict,))
        case PrimitiveArrayTypeInfo() if is_byte(value_type.element_type):
            return frozenset((bytes,))
        case CollectionTypeInfo() if not isinstance(value_type, PrimitiveArrayTypeInfo):
            return frozenset((list,))
        case _:
            return _NO_CLASSES


def _fit_of(value_type: TypeInformation) -> Callable[[Any], bool]:
    """A quick answer; False means that the conversion is to be asked."""
    if isinstance(value_type, TupleTypeInfo | RowTypeInfo):
        return _fit_of_fields(value_type)
    if isinstance(value_type, PickledBytesTypeInfo):
        return lambda value: True
    classes = _classes_of(value_type) | {type(None)}
    return lambda value: type(value) in classes


def _fit_of_fields(value_type: TupleTypeInfo | RowTypeInfo) -> Callable[[Any], bool]:
    fields = [_fit_of(field_type) for field_type in value_type.field_types]
    count = len(fields)
    names = value_type.field_names

    def fits(value: Any) -> bool:
        values = plain_values(value, names) if type(value) is Row else value
        return (
            type(values) is tuple
            and len(values) == count
            and all(field_fits(field) for field_fits, field in zip(fields, values, strict=True))
        )

    return fits
