"""Operator state: handles, and snapshots that share nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.handles import OperatorStateMode
from headrace.core.types.time_values import Time
from headrace.core.types.type_info import Types
from headrace.functions.state import ListStateDescriptor, MapStateDescriptor
from headrace.functions.state_ttl import StateTtlConfig
from headrace.state.backend import StateAccessError
from headrace.state.operator_state_backend import FrozenOperatorState, OperatorStateBackend

SPLIT, UNION, BROADCAST = OperatorStateMode
LONGS = Types.LIST(Types.LONG())
OFFSETS = ListStateDescriptor("offsets", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
ANYTHING = ListStateDescriptor("anything", Types.PICKLED_BYTE_ARRAY())


def _list(name: str, *items: Any, mode: OperatorStateMode = SPLIT) -> FrozenOperatorState:
    return FrozenOperatorState(name, mode, items, LONGS)


def test_a_list_takes_items_and_gives_them_in_order() -> None:
    state = OperatorStateBackend().get_list_state(OFFSETS)
    state.add(1)
    state.add_all([2, 3])
    assert list(state.get()) == [1, 2, 3]
    state.update([7])
    assert list(state) == [7]
    state.clear()
    assert list(state.get()) == []


def test_what_a_list_gives_is_a_copy_of_the_list() -> None:
    state = OperatorStateBackend().get_list_state(OFFSETS)
    state.add(1)
    for item in state.get():
        state.add(item + 1)
    assert list(state.get()) == [1, 2]


def test_a_broadcast_state_is_a_map() -> None:
    state = OperatorStateBackend().get_broadcast_state(RULES)
    assert state.is_empty()
    state["a"] = 1
    state.put_all({"b": 2, "c": 3})
    del state["b"]
    state.remove("not there")
    assert (state["a"], state.get("b"), "c" in state) == (1, None, True)
    assert sorted(state.items()) == [("a", 1), ("c", 3)]
    assert (sorted(state), sorted(state.values())) == (["a", "c"], [1, 3])
    state.clear()
    assert state.is_empty()


def test_the_same_descriptor_gives_the_same_state() -> None:
    backend = OperatorStateBackend()
    again = ListStateDescriptor("offsets", Types.LONG())
    assert backend.get_list_state(OFFSETS) is backend.get_list_state(again)


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda backend: backend.get_union_list_state(OFFSETS), "is a SPLIT state already"),
        (
            lambda backend: backend.get_list_state(ListStateDescriptor("offsets", Types.STRING())),
            "use one descriptor for both",
        ),
        (
            lambda backend: backend.get_list_state(OFFSETS).add(None),
            "does not accept None as an element",
        ),
        (lambda backend: backend.get_list_state(OFFSETS).add("x"), "cannot hold 'x'"),
        (lambda backend: backend.get_broadcast_state(RULES).put("a", "x"), "cannot hold 'x'"),
        (lambda backend: backend.get_broadcast_state(RULES).put_all({1: 1}), "cannot hold 1"),
    ],
)
def test_misuse_of_a_state_is_told(ask: Callable[[Any], Any], text: str) -> None:
    backend = OperatorStateBackend()
    backend.get_list_state(OFFSETS)
    with pytest.raises(StateAccessError, match=text):
        ask(backend)


def test_a_refused_batch_of_items_changes_nothing() -> None:
    state: Any = OperatorStateBackend().get_list_state(OFFSETS)
    with pytest.raises(StateAccessError):
        state.add_all([1, "x"])
    assert list(state.get()) == []


def test_operator_state_has_no_time_to_live() -> None:
    descriptor = ListStateDescriptor("short-lived", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(StateAccessError, match="only keyed state has"):
        OperatorStateBackend().get_list_state(descriptor)


def test_what_was_frozen_does_not_see_later_changes() -> None:
    backend = OperatorStateBackend()
    held = [1]
    backend.get_list_state(ANYTHING).add(held)
    backend.get_broadcast_state(RULES).put("a", 1)
    frozen = backend.freeze()
    held.append(2)
    backend.get_list_state(ANYTHING).add("later")
    backend.get_broadcast_state(RULES).put("a", 2)
    assert [(state.name, state.mode, state.items) for state in frozen] == [
        ("anything", SPLIT, ([1],)),
        ("rules", BROADCAST, (("a", 1),)),
    ]
    assert frozen[1].type_info == Types.MAP(Types.STRING(), Types.LONG())


def test_what_was_restored_is_there_when_it_is_asked_for_and_shared_with_nobody() -> None:
    item = [1]
    frozen = [FrozenOperatorState("anything", UNION, (item,), ANYTHING.type_info)]
    first, second = OperatorStateBackend(), OperatorStateBackend()
    first.restore(frozen)
    second.restore(frozen)
    item.append("changed by the giver")
    next(iter(first.get_union_list_state(ANYTHING).get())).append(2)
    assert list(first.get_union_list_state(ANYTHING).get()) == [[1, 2]]
    assert list(second.get_union_list_state(ANYTHING).get()) == [[1]]


def test_a_restored_state_that_nobody_asks_for_stays_in_snapshots() -> None:
    backend = OperatorStateBackend()
    backend.restore([_list("old", 1), _list("offsets", 2)])
    backend.get_list_state(OFFSETS).add(3)
    assert {state.name: state.items for state in backend.freeze()} == {
        "old": (1,),
        "offsets": (2, 3),
    }


def test_a_state_cannot_be_restored_as_another_kind() -> None:
    backend = OperatorStateBackend()
    backend.restore([_list("offsets", 1, mode=UNION)])
    with pytest.raises(StateAccessError, match="is a UNION state already"):
        backend.get_list_state(OFFSETS)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=20), st.data())
def test_a_restored_backend_goes_on_where_the_frozen_one_was(
    writes: list[tuple[str, int]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(writes)))

    def write(backend: OperatorStateBackend, entries: list[tuple[str, int]]) -> None:
        for name, value in entries:
            backend.get_list_state(OFFSETS).add(value)
            backend.get_broadcast_state(RULES).put(name, value)

    whole, before, after = OperatorStateBackend(), OperatorStateBackend(), OperatorStateBackend()
    write(whole, writes)
    write(before, writes[:cut])
    after.restore(before.freeze())
    write(after, writes[cut:])
    assert {state.name: state.items for state in after.freeze()} == {
        state.name: state.items for state in whole.freeze()
    }
