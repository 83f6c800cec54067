"""Copies records, so that an operator never sees changes that another operator makes to a record.

Most records are immutable (numbers, strings, tuples of such) and are their own copies; this check must cost almost
nothing, because every record passes it. Mutable records are copied as pickling would: an object that occurs twice in a
record occurs twice in its copy.

Source: Flink TypeSerializer.copy, CopyingChainingOutput.
"""

import copy
import dataclasses
import enum
import uuid  # noqa: TID251  (to know the class: no id is made here)
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from types import BuiltinFunctionType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Final

import numpy as np

from headrace.core.types.basic_type_info import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
)
from headrace.core.types.rows import Row, RowKind, copy_row, plain_values, set_row_values
from headrace.core.types.type_info import RowTypeInfo, TupleTypeInfo

UNCHANGING: Final[frozenset[type]] = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, range, Decimal, Fraction, date, datetime, time,
        timedelta, uuid.UUID, RowKind, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
        np.uint32, np.uint64, np.float16, np.float32, np.float64, np.datetime64, np.timedelta64,
    }
)  # fmt: skip
"""Classes with immutable values."""

_AS_THEY_ARE: Final = (
    enum.Enum,
    type,
    FunctionType,
    BuiltinFunctionType,
    # Not values at all: the check of the results reports them.
    GeneratorType,
    CoroutineType,
)

_VALUES_OF: Final = attrgetter("_values")  # iterating over a row would call Python code

Copy = Callable[[Any], Any]
_Memo = dict[int, Any]


def private_copy(record: Any) -> Any:
    """Return an equal record that shares nothing mutable with `record`.

    TypeError if a part of it cannot be copied, such as a lock or an open file.
    """
    cls = type(record)
    if cls in UNCHANGING:
        return record
    flat_copy = _FLAT_COPIES.get(cls)
    if flat_copy is not None:
        # A loop, because records have few fields: `issuperset(map(type, …))` takes twice as long for them.
        for field in _VALUES_OF(record) if cls is Row else record:
            if type(field) not in UNCHANGING:
                break
        else:
            if cls is not dict or UNCHANGING.issuperset(map(type, record.values())):
                return flat_copy(record)
    try:
        return _copier_of(cls)(record, {})
    except Exception as error:
        raise TypeError(
            f"a {cls.__name__} cannot be copied for the next function ({error}): emit plain values, or set "
            "'pipeline.object-reuse' if no function changes a record that it received or emitted"
        ) from error


def as_it_is(record: Any) -> Any:
    """Return `record` itself, as the copy of an immutable record, or of one that may be shared."""
    return record


def are_unchanging(records: Sequence[Any]) -> bool:
    """Return whether all records are plain immutable values, or all tuples of such; checks many records at once."""
    classes = set(map(type, records))
    if classes == {tuple}:
        return UNCHANGING.issuperset(map(type, chain.from_iterable(records)))
    return classes <= UNCHANGING


@dataclasses.dataclass(frozen=True)
class RecordCopies:
    """Copies the records of one stream by `copy`, except those of the classes `unchanging`, which need no copy.

    Hot loops test `type(record) in unchanging` themselves, and likewise a tuple's fields unless `unchanging` has tuples
    too: a call per record would be slow. `usual`, one of them, is the class of nearly all records of the declared type;
    comparing with it first is cheaper still.
    """

    unchanging: frozenset[type]
    copy: Copy
    usual: type | None = None

    @classmethod
    def of(cls, value_type: TypeInformation, *, reuses_objects: bool) -> "RecordCopies":
        """Choose the copier of a stream by its type, so that fewer checks remain for each record."""
        if reuses_objects or _is_plain(value_type):
            return cls(UNCHANGING | {tuple}, as_it_is, _usual_class(value_type))
        if isinstance(value_type, TupleTypeInfo) and all(map(_is_plain, value_type.field_types)):
            return cls(UNCHANGING | {tuple}, private_copy, tuple)
        if isinstance(value_type, RowTypeInfo) and all(map(_is_plain, value_type.field_types)):
            return cls(UNCHANGING, _taker_of_values(value_type.field_names))
        return cls(UNCHANGING, private_copy)


def _usual_class(value_type: TypeInformation) -> type | None:
    if not isinstance(value_type, BasicTypeInfo):
        return None
    texts = {BasicType.STRING: str, BasicType.CHAR: str, BasicType.BOOLEAN: bool}
    fractions = {BasicType.FLOAT: float, BasicType.DOUBLE: float, BasicType.BIG_DEC: Decimal}
    return {**texts, **fractions}.get(value_type.basic_type, int)


def is_unchanging_type(value_type: TypeInformation) -> bool:
    """Return whether values of the type, as read from columns, are immutable."""
    if isinstance(value_type, TupleTypeInfo):
        return all(map(is_unchanging_type, value_type.field_types))
    return _is_plain(value_type)


def _is_plain(value_type: TypeInformation) -> bool:
    if isinstance(value_type, BasicTypeInfo):
        return value_type.basic_type is not BasicType.INSTANT
    return isinstance(value_type, BigDecimalTypeInfo | SqlTimeTypeInfo)


def _taker_of_values(names: tuple[str, ...]) -> Copy:
    """Return a function that takes the values of rows as an immutable tuple, which becomes the same columns."""

    def take_values(record: Any) -> Any:
        values = plain_values(record, names) if type(record) is Row else None
        return private_copy(record) if values is None else values

    return take_values


_Copier = Callable[[Any, _Memo], Any]


def _copy_part(value: Any, memo: _Memo) -> Any:
    cls = type(value)
    return value if cls in UNCHANGING else _copier_of(cls)(value, memo)


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    known = memo.get(id(value))
    if known is not None:
        return known
    copied: list[Any] = []
    memo[id(value)] = copied  # before its items: one of them may be the list itself
    copied.extend([item if type(item) in UNCHANGING else _copy_part(item, memo) for item in value])
    return copied


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    known = memo.get(id(value))
    if known is not None:
        return known
    copied: dict[Any, Any] = {}
    memo[id(value)] = copied
    for key, item in value.items():
        copied[_copy_part(key, memo)] = item if type(item) in UNCHANGING else _copy_part(item, memo)
    return copied


def _copy_tuple(value: tuple[Any, ...], memo: _Memo) -> tuple[Any, ...]:
    if UNCHANGING.issuperset(map(type, value)):
        return value
    return tuple([_copy_part(item, memo) for item in value])


def _copy_row(value: Row, memo: _Memo) -> Row:
    known = memo.get(id(value))
    if known is not None:
        return known
    copied = memo[id(value)] = copy_row(value)
    set_row_values(copied, _copy_tuple(_VALUES_OF(value), memo))
    return copied


def _copy_if_it_can_change(value: Any, memo: _Memo) -> Any:
    """Copy frozen data classes, named tuples and frozen sets, unless everything in them is immutable."""
    parts = (
        value
        if isinstance(value, tuple | frozenset)
        else [getattr(value, field.name) for field in dataclasses.fields(value)]
    )
    return value if UNCHANGING.issuperset(map(type, parts)) else copy.deepcopy(value, memo)


def _copy_nothing(value: Any, memo: _Memo) -> Any:
    return value


@lru_cache(maxsize=1024)  # not forever: each unpickling may make a job's classes again
def _copier_of(cls: type) -> _Copier:
    known = _COPIERS.get(cls)
    if known is not None:
        return known
    if issubclass(cls, _AS_THEY_ARE) or cls in UNCHANGING:
        return _copy_nothing
    is_frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # pyright: ignore
    if is_frozen or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return _copy_if_it_can_change
    return copy.deepcopy


_FLAT_COPIES: Final[dict[type, Copy]] = {
    tuple: as_it_is,
    Row: copy_row,
    list: list.copy,
    dict: dict.copy,
}
"""Functions that copy containers of immutable values, by class."""

_COPIERS: Final[dict[type, _Copier]] = {
    list: _copy_list,
    dict: _copy_dict,
    tuple: _copy_tuple,
    Row: _copy_row,
    frozenset: _copy_if_it_can_change,
}
