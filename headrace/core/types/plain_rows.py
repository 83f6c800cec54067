"""Finds rows that a conversion to columns and back would leave unchanged, without making the columns.

Columns have a price per batch, even for few rows: if no operator needs them, such rows stay Python objects. The checks
are loops in C.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from headrace.core.types.round_trip_normalizer import integer_bounds
from headrace.core.types.rows import rows_of
from headrace.core.types.type_info import (
    BasicType,
    BasicTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

AsPlain = Callable[[Sequence[Any]], Sequence[Any] | None]
_ArePlain = Callable[[Sequence[Any]], bool]

_INT: Final = frozenset((int,))
_TEXT: Final = frozenset((str,))
_TUPLE: Final = frozenset((tuple,))
_CLASSES: Final = {BasicType.BOOLEAN: frozenset((bool,)), BasicType.DOUBLE: frozenset((float,))}


@lru_cache(maxsize=1024)
def plain_rows_of(value_type: TypeInformation) -> AsPlain | None:
    """Return what gives rows (at least one) as columns of this type give them back; None where it always could not.

    It gives None where only columns can tell.
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
    classes = _CLASSES.get(value_type.basic_type)
    return None if classes is None else lambda values: classes.issuperset(map(type, values))


def _are_texts(values: Sequence[Any]) -> bool:
    # Half a surrogate pair, a str that is no text, is not ASCII: columns look at all that is not.
    return _TEXT.issuperset(map(type, values)) and "".join(values).isascii()
