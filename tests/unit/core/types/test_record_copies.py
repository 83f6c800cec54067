"""Copies of records: equal to them, sharing nothing that can be changed, and none where nothing can be."""

import datetime
import enum
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.types.record_copies import (
    RecordCopies,
    are_unchanging,
    is_unchanging_type,
    private_copy,
)
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import Types


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass(frozen=True)
class Frozen:
    inner: Any


@dataclass
class Open:
    inner: list[Any] = field(default_factory=list[Any])


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "a",
        b"a",
        Decimal(1),
        datetime.date(2020, 1, 1),
        Colour.RED,
        np.int64(3),
        ("a", 1),
        ("a", Colour.RED, ("b", 2.0)),
        Pair(1, "b"),
        Frozen("a"),
        frozenset(["a"]),
        len,
    ],
)
def test_what_cannot_be_changed_is_its_own_copy(value: Any) -> None:
    copied = private_copy(value)
    assert copied == value
    if not isinstance(value, tuple):
        assert copied is value


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: inner,
        lambda inner: [inner],
        lambda inner: {"a": inner},
        lambda inner: ("a", inner),
        lambda inner: ("a", ("b", inner)),
        lambda inner: Row(a=inner),
        lambda inner: Row(Row(inner)),
        lambda inner: Pair(1, inner),
        lambda inner: Frozen(inner),
        lambda inner: Open(inner),
    ],
)
def test_a_list_anywhere_inside_is_another_one(make: Any) -> None:
    inner = [1]
    record = make(inner)
    copied = private_copy(record)
    assert copied == record
    inner.append(2)
    assert copied != record
    assert copied == make([1])


def test_other_mutable_values_are_copied() -> None:
    for record, change in (
        (np.zeros(2), lambda array: array.fill(1)),
        ({1}, lambda numbers: numbers.add(2)),
        (bytearray(b"a"), lambda text: text.extend(b"b")),
        (Row(a=1), lambda row: row.__setitem__("a", 2)),
    ):
        copied = private_copy(record)
        before = repr(copied)
        change(record)
        assert repr(copied) == before != repr(record)


def test_a_row_keeps_its_kind_and_names() -> None:
    row = Row(a=1, b=[2])
    row.set_row_kind(RowKind.DELETE)
    assert private_copy(row) == row


def test_what_is_one_object_inside_a_record_is_one_inside_its_copy() -> None:
    inner = [1]
    one, other = private_copy((inner, inner))
    assert one is other is not inner
    endless: list[Any] = []
    endless.append(endless)
    copied = private_copy(endless)
    assert copied[0] is copied is not endless


def test_what_cannot_be_copied_says_so() -> None:
    with pytest.raises(TypeError, match=r"lock cannot be copied .*pipeline\.object-reuse"):
        private_copy(threading.Lock())


ATOMS = st.one_of(st.none(), st.integers(), st.text(), st.booleans(), st.binary())
RECORDS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.lists(inner, max_size=3).map(lambda values: Row(*values)),
    ),
    max_leaves=8,
)


def mutables(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*map(mutables, value.values()))
    if isinstance(value, list | Row):
        return {id(value)}.union(*map(mutables, value))
    if isinstance(value, tuple):
        return set[int]().union(*map(mutables, value))
    return set()


@given(RECORDS)
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(record: Any) -> None:
    copied = private_copy(record)
    assert copied == record
    assert type(copied) is type(record)
    assert not mutables(copied) & mutables(record)


@given(st.lists(RECORDS, max_size=5))
def test_records_are_unchanging_only_if_none_can_be_changed(records: list[Any]) -> None:
    if are_unchanging(records):
        assert not set().union(*map(mutables, records))


def test_the_declared_type_decides_what_is_asked_for_each_record() -> None:
    flat = Types.TUPLE([Types.STRING(), Types.LONG()])
    assert is_unchanging_type(flat)
    assert tuple in RecordCopies.of(flat, reuses_objects=False).unchanging
    nested = Types.TUPLE([Types.LIST(Types.INT())])
    assert not is_unchanging_type(nested)
    assert tuple not in RecordCopies.of(nested, reuses_objects=False).unchanging
    assert not is_unchanging_type(Types.ROW([Types.INT()]))
    assert not is_unchanging_type(Types.PICKLED_BYTE_ARRAY())


def test_records_are_shared_where_objects_are_reused() -> None:
    copies = RecordCopies.of(Types.PICKLED_BYTE_ARRAY(), reuses_objects=True)
    record = [1]
    assert copies.copy(record) is record
