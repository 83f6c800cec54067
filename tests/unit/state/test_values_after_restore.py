"""Values of a state are the same before and after a snapshot, or are refused."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.basic_type_info import BigDecimalTypeInfo, TimestampTypeInfo
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.time_values import Instant
from headrace.core.types.type_info import (
    CollectionTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.backend import StateAccessError, StateNotStorableError
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.testing.operator_harness import MemorySnapshots, snapshot

PICKLED = Types.PICKLED_BYTE_ARRAY()
KEY = "k"
SAVEPOINT = CheckpointOptions(kind=SnapshotKind.SAVEPOINT)
FLAT = Types.TUPLE([Types.STRING(), Types.INT()])
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


class Pair(NamedTuple):
    """What fits FLAT, and is no plain tuple."""

    name: str
    number: int


def _states(
    backend: str, scratch: str, restored: OperatorSubtaskState | None = None
) -> OperatorStateHandler:
    return OperatorStateHandler(
        key_groups=range(128),
        max_parallelism=128,
        types=OperatorTypes((BatchType(PICKLED, PICKLED),), BatchType(PICKLED)),
        settings=Settings({"state.backend.type": backend}),
        scratch=scratch,
        restored=restored,
        restored_checkpoint_id=None if restored is None else 1,
        reader=MemorySnapshots(),
    )


def _before_and_after(
    backend: str,
    scratch: str,
    descriptor: StateDescriptor,
    put: Callable[[Any], None],
    read: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """What is read of a state after `put`, and once more after a savepoint and a restore."""
    states = _states(backend, scratch)
    restored: OperatorStateHandler | None = None
    try:
        keyed = states.create_keyed_backend()
        state = keyed.get_state(descriptor, keyed.key_scope)
        keyed.set_current_key(KEY)
        put(state)
        before = read(state)
        restored = _states(backend, scratch, snapshot(states, options=SAVEPOINT))
        keyed = restored.create_keyed_backend()
        state = keyed.get_state(descriptor, keyed.key_scope)
        keyed.set_current_key(KEY)
        return before, read(state)
    finally:
        states.close()
        if restored is not None:
            restored.close()


def _told(value: Any) -> Any:
    """Values with their classes, so that 1, 1.0 and True differ, and nan equals nan."""
    if isinstance(value, Row):
        return Row, list(value.as_dict()), value.get_row_kind(), _told(list(value))
    if isinstance(value, list | tuple):
        return type(value), [_told(item) for item in value]
    if isinstance(value, dict):
        return dict, [(_told(key), _told(item)) for key, item in value.items()]
    return type(value), repr(value)


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("states"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value_type", "given_value", "kept"),
    [
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.FLOAT(), 16777217, 16777216.0),
        (Types.DOUBLE(), 1, 1.0),
        (Types.DOUBLE(), 2**60 + 1, float(2**60)),
        (Types.LONG(), np.int64(3), 3),
        (Types.INT(), True, 1),
        (Types.BIG_DEC(), 5, Decimal(5)),
        (BigDecimalTypeInfo(5, 2), Decimal("1.005"), Decimal("1.01")),
        (Types.SQL_TIME(), time(1, 2, 3, 4567), time(1, 2, 3, 4000)),
        (Types.SQL_DATE(), datetime(2020, 1, 2, 3), date(2020, 1, 2)),
        (Types.SQL_TIMESTAMP(), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), datetime(2019, 12, 31, 22)),
        (Types.LIST(Types.INT()), (1, 2), [1, 2]),
        (Types.LIST(Types.DOUBLE()), [1, 2.5], [1.0, 2.5]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [1, 255], b"\x01\xff"),
        (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": 0.1}, {"a": 0.10000000149011612}),
        (FLAT, ["a", 1], ("a", 1)),
        (FLAT, Pair("a", 1), ("a", 1)),
        (PERSON, ("a", 1), Row(name="a", age=1)),
        (PERSON, Row("a", 1), Row(name="a", age=1)),
        (PERSON, Row(age=1, name="a"), Row(name="a", age=1)),
        (PERSON, {"age": 1, "name": "a"}, Row(name="a", age=1)),
        (PERSON, Row.of_kind(RowKind.DELETE, "a", 1), Row.of_kind(RowKind.DELETE, name="a", age=1)),
        (Types.TUPLE([PERSON]), (Row.of_kind(RowKind.DELETE, "a", 1),), (Row(name="a", age=1),)),
    ],
)  # fmt: skip
def test_a_value_takes_its_declared_form_at_once(
    backend: str, scratch: str, value_type: TypeInformation, given_value: Any, kept: Any
) -> None:
    before, after = _before_and_after(
        backend,
        scratch,
        ValueStateDescriptor("v", value_type),
        lambda state: state.update(given_value),
        lambda state: state.value(),
    )
    assert _told(before) == _told(kept)
    assert _told(after) == _told(kept)


@pytest.mark.parametrize(
    ("value_type", "value", "reason"),
    [
        (Types.BYTE(), 128, "declared as Byte, expected an integer of 8 bits, got int 128"),
        (Types.SHORT(), -(2**15) - 1, "expected an integer of 16 bits"),
        (Types.INT(), 2**31, "expected an integer of 32 bits"),
        (Types.LONG(), 2**63, "expected an integer of 64 bits"),
        (Types.CHAR(), "ab", "expected one character, got str 'ab'"),
        (Types.CHAR(), "", "expected one character"),
        (Types.LIST(Types.LONG()), ["x"], "ListTypeInfo<Long>, expected an integer, got str 'x'"),
        (Types.LIST(Types.INT()), [1, 2**31], "expected an integer of 32 bits"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 2**40}, "expected an integer of 32 bits"),
        (Types.MAP(Types.STRING(), Types.INT()), {1: 1}, "expected a str, got int 1"),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}, "expected no None among the keys"),
        (FLAT, ("a", 2**31), "field 'f1': expected an integer of 32 bits"),
        (FLAT, ("a",), "expected 2 fields, got 1"),
        (PERSON, Row(name="a", age="b"), "field 'age': expected an integer, got str 'b'"),
        (PERSON, Row(name="a"), "no field"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None], "expected no None"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2**31], "expected an integer of 32 bits"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [256], "expected an integer of 8 bits"),
        (Types.BASIC_ARRAY(Types.STRING()), ["a", 1], "expected a str, got int 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_the_state_named(
    backend: str, scratch: str, value_type: TypeInformation, value: Any, reason: str
) -> None:
    states = _states(backend, scratch)
    keyed = states.create_keyed_backend()
    state: Any = keyed.get_state(ValueStateDescriptor("names", value_type), keyed.key_scope)
    keyed.set_current_key(KEY)
    with pytest.raises(StateAccessError) as refused:
        state.update(value)
    assert "state 'names' cannot hold" in str(refused.value)
    assert reason in str(refused.value)
    assert state.value() is None
    states.close()


def test_what_was_changed_behind_the_states_back_is_named_when_it_is_stored(scratch: str) -> None:
    states = _states("hashmap", scratch)
    keyed = states.create_keyed_backend()
    state: Any = keyed.get_state(
        ValueStateDescriptor("names", Types.LIST(Types.LONG())), keyed.key_scope
    )
    keyed.set_current_key(KEY)
    state.update([1])
    state.value().append("x")
    with pytest.raises(StateNotStorableError) as told:
        snapshot(states)
    assert not told.value.recoverable
    assert str(told.value).startswith(
        "operator 'operator' keeps state that cannot be stored: record [1, 'x'] (in state 'names') does not fit its "
        "declared type ListTypeInfo<Long>"
    )
    states.close()


def test_what_cannot_be_pickled_is_named_when_it_is_stored(scratch: str) -> None:
    states = _states("hashmap", scratch)
    items = states.operator_state.get_list_state(ListStateDescriptor("files", PICKLED))
    items.add(number for number in [1])
    with pytest.raises(StateNotStorableError, match=r"\(in state 'files'\)"):
        snapshot(states)
    states.close()


SCALARS: list[TypeInformation] = [
    Types.STRING(), Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(),
    Types.DOUBLE(), Types.CHAR(), Types.BIG_INT(), Types.BIG_DEC(), Types.INSTANT(), Types.SQL_DATE(),
    Types.SQL_TIME(), Types.SQL_TIMESTAMP(), TimestampTypeInfo("UTC"), BigDecimalTypeInfo(5, 2),
]  # fmt: skip
TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
ZONES = st.none() | st.just(UTC)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.sampled_from([128, 2**15, 2**31, 2**63, -(2**63), -(2**31), 2**70]),
    st.integers(-200, 200),
    st.floats(),
    st.decimals(allow_nan=False, places=3, min_value=-2000, max_value=2000),
    st.builds(np.int64, st.integers(-200, 200)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(Instant, st.integers(-(2**64), 2**64), st.integers(0, 2**31)),
    st.dates(),
    st.times(timezones=ZONES),
    st.datetimes(timezones=ZONES),
    st.binary(max_size=3),
    st.builds(Pair, TEXTS, st.integers(0, 2**32)),
)


def _types(depth: int) -> st.SearchStrategy[TypeInformation]:
    scalars = st.sampled_from(SCALARS)
    if depth == 0:
        return scalars
    inner = _types(depth - 1)
    primitive = st.sampled_from(
        [Types.BYTE(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.BOOLEAN()]
    )
    fields = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        scalars,
        inner.map(Types.LIST),
        inner.map(Types.OBJECT_ARRAY),
        primitive.map(Types.PRIMITIVE_ARRAY),
        st.builds(Types.MAP, scalars, inner),
        fields.map(Types.TUPLE),
        fields.map(Types.ROW),
    )


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, max_size=2)
    return st.one_of(
        few,
        few.map(tuple),
        few.map(lambda fields: Row(*fields)),
        few.map(lambda fields: Row.of_kind(RowKind.DELETE, **{f"f{i}": v for i, v in enumerate(fields)})),
        st.dictionaries(VALUES, inner, max_size=2),
    )  # fmt: skip


def _near(value_type: TypeInformation) -> st.SearchStrategy[Any]:
    """Values that often fit: of any class, in the shape of the type."""
    anything = VALUES | st.none()
    if isinstance(value_type, TupleTypeInfo | RowTypeInfo):
        fields = st.tuples(*map(_near, value_type.field_types))
        return st.one_of(fields, fields.map(list), fields.map(lambda one: Row(*one)))
    if isinstance(value_type, CollectionTypeInfo):
        return st.lists(_near(value_type.element_type), max_size=3)
    if isinstance(value_type, MapTypeInfo):
        return st.dictionaries(VALUES, _near(value_type.value_type), max_size=2)
    return anything


def _with_value(value_type: TypeInformation) -> st.SearchStrategy[tuple[TypeInformation, Any]]:
    values = st.one_of(_near(value_type), st.recursive(VALUES, _nested, max_leaves=4))
    return st.tuples(st.just(value_type), values)


TYPED: st.SearchStrategy[tuple[TypeInformation, Any]] = _types(2).flatmap(_with_value)
ACCESSES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "value": (
        lambda value_type: ValueStateDescriptor("s", value_type),
        lambda state, value: state.update(value),
        lambda state: state.value(),
    ),
    "list": (
        lambda value_type: ListStateDescriptor("s", value_type),
        lambda state, value: state.add(value),
        lambda state: list(state.get()),
    ),
    "map value": (
        lambda value_type: MapStateDescriptor("s", PICKLED, value_type),
        lambda state, value: state.put("a", value),
        lambda state: list(state.items()),
    ),
    "map key": (
        lambda value_type: MapStateDescriptor("s", value_type, Types.LONG()),
        lambda state, value: state.put(value, 1),
        lambda state: list(state.items()),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("access", ACCESSES)
@settings(deadline=None, max_examples=60)
@given(typed=TYPED)
def test_any_value_reads_the_same_before_and_after_a_snapshot_or_is_refused(
    backend: str, scratch: str, access: str, typed: tuple[TypeInformation, Any]
) -> None:
    value_type, value = typed
    describe, put, read = ACCESSES[access]
    try:
        before, after = _before_and_after(
            backend, scratch, describe(value_type), lambda state: put(state, value), read
        )
    except StateAccessError as refused:
        assert "state 's'" in str(refused)
    except TypeError as unhashable:
        assert access == "map key" and "unhashable" in str(unhashable)
    else:
        assert _told(before) == _told(after)
