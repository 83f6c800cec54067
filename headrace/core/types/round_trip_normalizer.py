"""Normalises values as an Arrow round trip would, in Python for values of the usual classes.

A state keeps values of its declared type in their normal form: the form that a snapshot restores. So a state reads the
same whether or not there was a failure since a value was put in.

A keeper is a function that returns the normal form of a value, or UNSURE if the conversion to columns and back must
decide: for unusual classes, and for values that do not fit. A keeper is called for each value and must cost almost
nothing.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from headrace.core.types.arrow_mapping import kept_value
from headrace.core.types.arrow_types import is_byte
from headrace.core.types.basic_type_info import (
    BasicType,
    BasicTypeInfo,
    CollectionTypeInfo,
    DateTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from headrace.core.types.object_type_info import ObjectTypeInfo
from headrace.core.types.rows import Row, row_of, rows_of
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import (
    RowTypeInfo,
    TupleTypeInfo,
)

Keeper = Callable[[Any], Any]

UNSURE: Final = object()

_BIT_COUNTS: Final = {
    BasicType.BYTE: 8,
    BasicType.SHORT: 16,
    BasicType.INT: 32,
    BasicType.LONG: 64,
    # Carried as text, and Python makes none of more than 4300 digits.
    BasicType.BIG_INT: 14_000,
}
_CLASSES: Final = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: Decimal,
}
_FLOAT: Final = struct.Struct("<f")
"""Struct of a 32-bit float in standard form; the native form turns floats that are too large into infinities."""
_NANOS_PER_SECOND: Final = 1_000_000_000
_NO_BOUNDS: Final = (1, 0)
AsPlain = Callable[[Sequence[Any]], Sequence[Any] | None]
_ArePlain = Callable[[Sequence[Any]], bool]
_INT: Final = frozenset((int,))
_TEXT: Final = frozenset((str,))
_TUPLE: Final = frozenset((tuple,))
_PLAIN_CLASSES: Final = {
    BasicType.BOOLEAN: frozenset((bool,)),
    BasicType.DOUBLE: frozenset((float,)),
}


def unchanged_class(value_type: TypeInformation) -> type | None:
    """Return the class whose values are all kept unchanged, or None if the type has none."""
    if isinstance(value_type, BasicTypeInfo):
        return _CLASSES.get(value_type.basic_type)
    if isinstance(value_type, ObjectTypeInfo):
        return value_type.object_class
    return date if isinstance(value_type, DateTypeInfo) else None


def integer_bounds(value_type: TypeInformation) -> tuple[int, int] | None:
    """Return the lowest and the highest int that are kept unchanged, for types of integers."""
    if not isinstance(value_type, BasicTypeInfo) or value_type.basic_type not in _BIT_COUNTS:
        return None
    half = 1 << (_BIT_COUNTS[value_type.basic_type] - 1)
    return -half, half - 1


def keeper_of(value_type: TypeInformation, *, keeps_row_kind: bool = False) -> Keeper:
    """Return the keeper of a type; None is kept as None. Kinds of rows inside other values are never kept."""
    bounds = integer_bounds(value_type)
    if bounds is not None:
        return _integer_keeper(*bounds)
    usual = unchanged_class(value_type)
    if usual is not None:
        return _class_keeper(usual)
    match value_type:
        case PickledBytesTypeInfo():
            return lambda value: value
        case BasicTypeInfo():
            return _or_none(_BASIC_KEEPERS[value_type.basic_type])
        case TimeTypeInfo():
            return _or_none(_keep_time)
        case TimestampTypeInfo() if value_type.time_zone is None:
            return _or_none(_keep_timestamp)
        case PrimitiveArrayTypeInfo() if is_byte(value_type.element_type):
            return _class_keeper(bytes)
        case CollectionTypeInfo():
            allows_none = not isinstance(value_type, PrimitiveArrayTypeInfo)
            return _list_keeper(value_type.element_type, allows_none=allows_none)
        case MapTypeInfo():
            return _map_keeper(value_type)
        case RowTypeInfo():
            return _row_keeper(value_type, keeps_kind=keeps_row_kind)
        case TupleTypeInfo():
            return _tuple_keeper(value_type)
        case _:
            return _or_none(lambda value: UNSURE)


def _or_none(keep: Keeper) -> Keeper:
    return lambda value: None if value is None else keep(value)


def _class_keeper(usual: type) -> Keeper:
    return lambda value: value if value is None or type(value) is usual else UNSURE


def _integer_keeper(lowest: int, highest: int) -> Keeper:
    def keep(value: Any) -> Any:
        fits = value is None or (type(value) is int and lowest <= value <= highest)
        return value if fits else UNSURE

    return keep


def _keep_float(value: Any) -> Any:
    if type(value) is not float:
        return UNSURE
    try:
        kept = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return UNSURE
    return value if kept == value else kept


def _keep_character(value: Any) -> Any:
    is_one = type(value) is str and len(value) == 1 and not "\ud800" <= value <= "\udfff"
    return value if is_one else UNSURE


def _keep_instant(value: Any) -> Any:
    if type(value) is not Instant or type(value.seconds) is not int or type(value.nanos) is not int:
        return UNSURE
    fits = -(1 << 63) <= value.seconds < 1 << 63 and 0 <= value.nanos < _NANOS_PER_SECOND
    return value if fits else UNSURE


def _keep_time(value: Any) -> Any:
    if type(value) is not time or value.tzinfo is not None or value.fold:
        return UNSURE
    finer = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - finer) if finer else value


def _keep_timestamp(value: Any) -> Any:
    is_plain = type(value) is datetime and value.tzinfo is None and not value.fold
    return value if is_plain else UNSURE


_BASIC_KEEPERS: Final[dict[BasicType, Keeper]] = {
    BasicType.FLOAT: _keep_float,
    BasicType.CHAR: _keep_character,
    BasicType.INSTANT: _keep_instant,
}


def _all_kept(values: Sequence[Any], keepers: Sequence[Keeper]) -> Sequence[Any] | None:
    """Return `values` itself if all are kept unchanged, else their normal forms, or None if one is UNSURE."""
    for keep, value in zip(keepers, values, strict=False):  # as many, and `strict` takes time
        if keep(value) is not value:
            break
    else:
        return values
    return _unless_unsure(
        values, [keep(value) for keep, value in zip(keepers, values, strict=True)]
    )


def _unless_unsure(values: Sequence[Any], kept: list[Any]) -> Sequence[Any] | None:
    is_same = True
    for value, form in zip(values, kept, strict=True):
        if form is not value:
            if form is UNSURE:
                return None
            is_same = False
    return values if is_same else kept


def _plain_test(value_type: TypeInformation) -> Callable[[Sequence[Any]], bool]:
    """Return a test whether all values (without None) are kept unchanged: True only if C loops can decide it."""
    usual, bounds = unchanged_class(value_type), integer_bounds(value_type)
    if bounds is None:
        classes = frozenset[type | None]((usual,))
        return lambda values: classes.issuperset(map(type, values))
    lowest, highest = bounds
    only_int = frozenset((int,))

    def are_plain(values: Sequence[Any]) -> bool:
        if not values:
            return True
        return only_int.issuperset(map(type, values)) and (
            lowest <= min(values) and max(values) <= highest
        )

    return are_plain


def _list_keeper(element_type: TypeInformation, *, allows_none: bool) -> Keeper:
    keep_element, are_plain = keeper_of(element_type), _plain_test(element_type)

    def keep(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list and type(value) is not tuple:
            return UNSURE
        values: Sequence[Any] = value
        if not are_plain(values):
            kept = _unless_unsure(values, list(map(keep_element, values)))
            if kept is None or (not allows_none and None in values):
                return UNSURE
            values = kept
        return values if type(values) is list else list(values)

    return keep


def _map_keeper(value_type: MapTypeInfo) -> Keeper:
    keep_key, are_plain_keys = keeper_of(value_type.key_type), _plain_test(value_type.key_type)
    keep_value, are_plain = keeper_of(value_type.value_type), _plain_test(value_type.value_type)

    def keep(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict or None in value:
            return UNSURE
        keys, values = list(value), list(value.values())
        if are_plain_keys(keys) and are_plain(values):
            return value
        kept_keys = _unless_unsure(keys, list(map(keep_key, keys)))
        kept_values = _unless_unsure(values, list(map(keep_value, values)))
        if kept_keys is None or kept_values is None:
            return UNSURE
        if kept_keys is keys and kept_values is values:
            return value
        return dict(zip(kept_keys, kept_values, strict=True))

    return keep


def _tuple_keeper(value_type: TupleTypeInfo) -> Keeper:
    keepers = [keeper_of(field_type) for field_type in value_type.field_types]
    count = len(keepers)

    def keep(value: Any) -> Any:
        if value is None:
            return None
        if (type(value) is not tuple and type(value) is not list) or len(value) != count:
            return UNSURE
        kept = _all_kept(value, keepers)
        if kept is None:
            return UNSURE
        return kept if type(kept) is tuple else tuple(kept)

    return keep


def _row_keeper(value_type: RowTypeInfo, *, keeps_kind: bool) -> Keeper:
    keepers = [keeper_of(field_type) for field_type in value_type.field_types]
    names, count = value_type.field_names, len(keepers)

    def keep(value: Any) -> Any:
        if value is None:
            return None
        fields, kind, values = names, 0, value
        if type(value) is Row:
            fields, kind, values = value._fields, value._kind, value._values  # pyright: ignore[reportPrivateUsage]
        elif type(value) is not tuple and type(value) is not list:
            return UNSURE
        if len(values) != count or (fields is not None and fields != names):
            return UNSURE
        kept = _all_kept(values, keepers)
        if kept is None:
            return UNSURE
        if kept is values and type(value) is Row and fields == names and (keeps_kind or not kind):
            return value
        row = row_of(names, tuple(kept))
        if keeps_kind:
            row._kind = kind  # pyright: ignore[reportPrivateUsage]
        return row

    return keep


@dataclass(frozen=True)
class RoundTripNormalizer:
    """Normaliser of a type. Values of the classes `fitting` and ints from `lowest` to `highest` are kept unchanged.

    Hot paths test these conditions themselves. For all other values `keep(value)` returns the normal form, often the
    value itself, or raises RecordTypeError if the value does not fit. None is kept as None.
    """

    fitting: frozenset[type]
    lowest: int
    highest: int
    keep: Callable[[Any], Any]

    @classmethod
    def of(cls, value_type: TypeInformation, *, is_key: bool = False) -> "RoundTripNormalizer":
        """Return the normaliser of a type. Snapshots keep the kinds of rows, except in keys."""
        if isinstance(value_type, PickledBytesTypeInfo):
            return cls(frozenset(), *_NO_BOUNDS, _keep_anything)
        usual = unchanged_class(value_type)
        fitting = frozenset[type]() if usual is None else frozenset((usual,))
        bounds = integer_bounds(value_type) or _NO_BOUNDS
        keeps_row_kind = isinstance(value_type, RowTypeInfo) and not is_key
        keep_usual = keeper_of(value_type, keeps_row_kind=keeps_row_kind)

        def keep(value: Any) -> Any:
            kept = keep_usual(value)
            if kept is not UNSURE:
                return kept
            return kept_value(value, value_type, keeps_row_kind=keeps_row_kind)

        return cls(fitting, *bounds, keep)

    @property
    def keeps_all(self) -> bool:
        """Return whether every value is kept unchanged, because the type is not declared."""
        return self.keep is _keep_anything


def _keep_anything(value: Any) -> Any:
    return value


@lru_cache(maxsize=1024)
def plain_rows_of(value_type: TypeInformation) -> AsPlain | None:
    """Return the function from rows (at least one) to their form after a round trip, or None if there is no fast way.

    The function returns None if the conversion through columns must decide.
    """
    if not isinstance(value_type, TupleTypeInfo | RowTypeInfo):
        are_plain = _test_of(value_type)
        return None if are_plain is None else lambda rows: rows if are_plain(rows) else None
    tests = [_test_of(field_type) for field_type in value_type.field_types]
    known = [test for test in tests if test is not None]
    if not known or len(known) < len(tests):
        return None
    are_tuples = _tuple_test(known)
    if isinstance(value_type, TupleTypeInfo):
        return lambda rows: rows if are_tuples(rows) else None
    names = value_type.field_names
    return lambda rows: rows_of(names, rows) if are_tuples(rows) else None


def _tuple_test(tests: Sequence[_ArePlain]) -> _ArePlain:
    widths = {len(tests)}

    def are_plain(rows: Sequence[Any]) -> bool:
        if not _TUPLE.issuperset(map(type, rows)) or set(map(len, rows)) != widths:
            return False
        columns = zip(*rows, strict=True)
        return all(test(values) for test, values in zip(tests, columns, strict=True))

    return are_plain


def _test_of(value_type: TypeInformation) -> _ArePlain | None:
    bounds = integer_bounds(value_type)
    if bounds is not None:
        lowest, highest = bounds
        return lambda values: (
            _INT.issuperset(map(type, values)) and lowest <= min(values) and max(values) <= highest
        )
    if not isinstance(value_type, BasicTypeInfo):
        return None
    if value_type.basic_type is BasicType.STRING:
        return _are_texts
    classes = _PLAIN_CLASSES.get(value_type.basic_type)
    return None if classes is None else lambda values: classes.issuperset(map(type, values))


def _are_texts(values: Sequence[Any]) -> bool:
    # Half a surrogate pair is a str but not valid text; it is not ASCII, and columns check all other strings.
    return _TEXT.issuperset(map(type, values)) and "".join(values).isascii()
