"""States by key and by window, on either backend: kinds, names, and what is refused."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.rows import Row
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.record import AggregateFunction
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.backend import StateAccessError
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.typed_state import TypedStateBackend
from tests.unit.state.entries import total_entry_count

PICKLED = Types.PICKLED_BYTE_ARRAY()
VALUE = ValueStateDescriptor("value", Types.INT())
LIST = ListStateDescriptor("list", Types.INT())
MAP = MapStateDescriptor("map", Types.STRING(), Types.INT())
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.INT())


class _Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


MEAN = AggregatingStateDescriptor("mean", _Mean(), Types.PICKLED_BYTE_ARRAY())


class _Chosen:
    """The backend of the tests that run."""

    settings = Settings()
    scratch = ""
    opened: ClassVar[list[OperatorStateHandler]] = []


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"], autouse=True)
def chosen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    _Chosen.settings = Settings({"state.backend.type": request.param})
    _Chosen.scratch = str(tmp_path_factory.mktemp("states"))
    yield request.param
    while _Chosen.opened:
        _Chosen.opened.pop().close()


def _backend() -> TypedStateBackend[Any]:
    states = OperatorStateHandler(
        key_groups=range(128),
        max_parallelism=128,
        types=OperatorTypes((BatchType(PICKLED, PICKLED),), BatchType(PICKLED)),
        settings=_Chosen.settings,
        scratch=_Chosen.scratch,
    )
    _Chosen.opened.append(states)
    return states.create_keyed_backend()


def _state(descriptor: StateDescriptor) -> tuple[TypedStateBackend[Any], Any]:
    backend = _backend()
    return backend, backend.get_state(descriptor, backend.key_scope)


def test_a_value_belongs_to_its_key() -> None:
    backend, state = _state(VALUE)
    backend.set_current_key("a")
    assert state.value() is None
    state.update(1)
    backend.set_current_key("b")
    assert state.value() is None
    state.update(2)
    backend.set_current_key("a")
    assert state.value() == 1
    state.clear()
    assert state.value() is None


def test_updating_a_value_to_none_clears_it() -> None:
    backend, state = _state(VALUE)
    backend.set_current_key("a")
    state.update(1)
    state.update(None)
    assert backend.key_count("value") == 0


def test_a_list_keeps_the_order_of_adding() -> None:
    backend, state = _state(LIST)
    backend.set_current_key("a")
    assert list(state.get()) == []
    state.add(2)
    state.add_all([1, 3])
    assert list(state.get()) == [2, 1, 3]
    state.update([9])
    assert list(state.get()) == [9]
    state.update([])
    assert backend.key_count("list") == 0


def test_a_list_may_change_while_it_is_read() -> None:
    backend, state = _state(LIST)
    backend.set_current_key("a")
    state.add_all([1, 2])
    for value in state.get():
        state.add(value + 10)
    assert list(state.get()) == [1, 2, 11, 12]


@pytest.mark.parametrize("write", [lambda s: s.add(None), lambda s: s.update([1, None])])
def test_a_list_takes_no_none(write: Callable[[Any], None]) -> None:
    backend, state = _state(LIST)
    backend.set_current_key("a")
    with pytest.raises(StateAccessError, match="'list' does not accept None"):
        write(state)


def test_a_map_is_used_like_a_dict() -> None:
    backend, state = _state(MAP)
    backend.set_current_key("a")
    assert state.is_empty()
    state["x"] = 1
    state.put_all({"y": 2, "z": 3})
    assert state["x"] == 1 and "y" in state and state.get("?") is None
    del state["z"]
    state.remove("?")
    assert dict(state.items()) == {"x": 1, "y": 2}
    assert sorted(state) == sorted(state.keys()) == ["x", "y"]
    assert sorted(state.values()) == [1, 2]
    for key in state.keys():
        state.remove(key)
    assert state.is_empty()
    assert backend.key_count("map") == 0


def test_a_reducing_state_stores_the_first_value_and_folds_the_others() -> None:
    backend, state = _state(SUM)
    backend.set_current_key("a")
    assert state.get() is None
    state.add(1)
    state.add(2)
    assert state.get() == 3


def test_an_aggregating_state_computes_its_result_on_reading() -> None:
    backend, state = _state(MEAN)
    backend.set_current_key("a")
    assert state.get() is None
    state.add(1)
    state.add(2)
    assert state.get() == 1.5


@pytest.mark.parametrize("touch", [lambda s: s.value(), lambda s: s.update(1), lambda s: s.clear()])
def test_state_without_a_current_key_is_refused(touch: Callable[[Any], None]) -> None:
    _, state = _state(VALUE)
    with pytest.raises(StateAccessError, match="without a current key"):
        touch(state)


def test_a_name_means_one_kind_of_state() -> None:
    backend, state = _state(VALUE)
    assert backend.get_state(ValueStateDescriptor("value", Types.INT()), backend.key_scope) is state
    with pytest.raises(StateAccessError, match="'value' is already registered as value state"):
        backend.get_state(ListStateDescriptor("value", Types.INT()), backend.key_scope)
    with pytest.raises(StateAccessError, match="both per key and per window"):
        backend.get_state(VALUE, backend.window_scope)


def test_windows_of_a_key_are_merged_and_the_sources_removed() -> None:
    backend = _backend()
    for descriptor, add in ((LIST, "add"), (SUM, "add"), (MEAN, "add")):
        state: Any = backend.get_state(descriptor, backend.window_scope)
        for key in ("a", "b"):
            backend.set_current_key(key)
            for window, value in ((1, 10), (2, 20), (3, 40)):
                backend.set_current_namespace(window)
                getattr(state, add)(value)
        backend.set_current_key("a")
        backend.merge_namespaces(descriptor, 1, [2, 4])
        results = {}
        for key in ("a", "b"):
            backend.set_current_key(key)
            for window in (1, 2, 3):
                backend.set_current_namespace(window)
                results[key, window] = state.get()
        merged = {LIST: ([10, 20], []), SUM: (30, None), MEAN: (15.0, None)}[descriptor]
        assert (results["a", 1], results["a", 2]) == merged
        assert results["a", 3] == results["b", 3]
        assert results["b", 2] is not None


def test_values_cannot_be_merged() -> None:
    backend = _backend()
    backend.set_current_key("a")
    with pytest.raises(StateAccessError, match="cannot be merged"):
        backend.merge_namespaces(VALUE, 1, [2])


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["update", "clear", "read"]), st.integers(0, 9)
    )
)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(OPERATIONS)
def test_value_state_is_a_dict_by_key(operations: list[tuple[str, str, int]]) -> None:
    backend, state = _state(VALUE)
    model: dict[str, int] = {}
    for key, operation, value in operations:
        backend.set_current_key(key)
        if operation == "update":
            state.update(value)
            model[key] = value
        elif operation == "clear":
            state.clear()
            model.pop(key, None)
        assert state.value() == model.get(key)
    assert backend.key_count("value") == len(model)
    backend.close()


def test_a_list_state_is_iterated_over_its_values() -> None:
    backend, state = _state(LIST)
    backend.set_current_key("a")
    assert list(state) == []
    state.add_all([1, 2])
    assert [*state] == [1, 2]


FLAT = Types.TUPLE([Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("descriptor", "change", "text"),
    [
        (VALUE, lambda state: state.update("hello"), "'value' cannot hold 'hello': it is declared as Integer"),
        (VALUE, lambda state: state.update([1]), "'value' cannot hold"),
        (ValueStateDescriptor("pair", FLAT), lambda state: state.update(("a", "b")), "'pair' cannot hold"),
        (LIST, lambda state: state.add("a"), "'list' cannot hold 'a'"),
        (LIST, lambda state: state.add_all([1, "a"]), "'list' cannot hold 'a'"),
        (LIST, lambda state: state.update([1, "a"]), "'list' cannot hold 'a'"),
        (MAP, lambda state: state.put("a", "b"), "'map' cannot hold 'b'"),
        (MAP, lambda state: state.put(1.5, 1), "'map' cannot hold 1.5: it is declared as String"),
        (MAP, lambda state: state.put_all({"a": "b"}), "'map' cannot hold 'b'"),
        (MAP, lambda state: state.__setitem__("a", "b"), "'map' cannot hold 'b'"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_than_declared_is_refused(
    descriptor: StateDescriptor, change: Callable[[Any], None], text: str
) -> None:
    backend, state = _state(descriptor)
    backend.set_current_key("a")
    with pytest.raises(StateAccessError, match=text):
        change(state)
    assert total_entry_count(backend) == 0


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Types.DOUBLE(), 1.5),
        (Types.FLOAT(), 1.5),
        (Types.LONG(), -(2**63)),
        (FLAT, ("a", None)),
        (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1)),
        (Types.LIST(Types.INT()), [1]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a"),
        (Types.PICKLED_BYTE_ARRAY(), {1, 2j}),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 1)),
    ],
)
def test_a_value_that_fits_its_declared_type_is_kept_as_it_is(
    chosen: str, value_type: TypeInformation, value: Any
) -> None:
    backend, state = _state(ValueStateDescriptor("v", value_type))
    backend.set_current_key("a")
    state.update(value)
    held = state.value()
    assert (type(held), held) == (type(value), value)
    assert held is value or chosen == "rocksdb"


TYPED_MEAN = AggregatingStateDescriptor("mean", _Mean(), Types.TUPLE([Types.INT(), Types.INT()]))


@pytest.mark.parametrize("descriptor", [SUM, TYPED_MEAN])
def test_a_sum_that_leaves_its_declared_type_is_refused(descriptor: StateDescriptor) -> None:
    backend, state = _state(descriptor)
    backend.set_current_key("a")
    state.add(2**31 - 1)
    before = state.get()
    with pytest.raises(StateAccessError, match=rf"'{descriptor.get_name()}' cannot hold .*32 bits"):
        state.add(1)
    assert state.get() == before


def test_a_map_finds_what_it_keeps_under_another_form_of_the_key() -> None:
    backend, state = _state(MapStateDescriptor("m", Types.FLOAT(), Types.INT()))
    backend.set_current_key("a")
    state.put(0.1, 1)
    assert (state.get(0.1), state.contains(0.1), state.contains("x")) == (1, True, False)
    state.remove(0.1)
    assert state.is_empty()
