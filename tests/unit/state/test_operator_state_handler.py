"""Snapshots of an operator's states: what is read back, by whom, at which parallelism."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateTable
from headrace.core.barriers import CheckpointOptions
from headrace.core.key_groups import key_group_range, key_groups_of
from headrace.core.key_hash import hash_keys
from headrace.core.types.rows import Row, RowKind
from headrace.core.types.type_info import Types
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headrace.functions.windows import GlobalWindow, TimeWindow
from headrace.state.evolution import StateIncompatibleError
from headrace.testing.operator_harness import snapshot, write_frozen
from tests.unit.state.entries import total_entry_count
from tests.unit.state.new_states import MAX_PARALLELISM, PICKLED, states_of

VALUE = ValueStateDescriptor("value", Types.LONG())
LIST = ListStateDescriptor("list", Types.STRING())
MAP = MapStateDescriptor("map", Types.STRING(), PICKLED)


def merged(parts: Sequence[OperatorSubtaskState]) -> OperatorSubtaskState:
    return OperatorSubtaskState(tuple(chunk for part in parts for chunk in part.chunks))


def test_every_kind_of_state_is_read_back() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    scope = backend.key_scope
    handles: list[Any] = [backend.get_state(one, scope) for one in (VALUE, LIST, MAP)]
    total: Any = backend.get_state(
        ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()), scope
    )
    for key in ("a", "b"):
        backend.set_current_key(key)
        handles[0].update(len(key))
        handles[1].add_all([key, "x"])
        handles[2].put_all({"p": 1, "q": None})
        total.add(3)
        total.add(4)

    restored = states_of(snapshot(states)).create_keyed_backend()
    scope = restored.key_scope
    again: list[Any] = [restored.get_state(one, scope) for one in (VALUE, LIST, MAP)]
    total = restored.get_state(
        ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG()), scope
    )
    for key in ("a", "b"):
        restored.set_current_key(key)
        assert again[0].value() == 1
        assert list(again[1].get()) == [key, "x"]
        assert dict(again[2].items()) == {"p": 1, "q": None}
        assert total.get() == 7
    assert total_entry_count(restored) == 8


def test_later_changes_do_not_show_in_a_frozen_state() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(MAP, backend.key_scope)
    backend.set_current_key("a")
    state.put("p", ["old"])
    frozen = states.freeze(1, CheckpointOptions())
    state.get("p").append("new")
    state.put("q", 1)
    backend.set_current_key("b")
    state.put("p", 2)
    restored = states_of(write_frozen(frozen)).create_keyed_backend()
    again: Any = restored.get_state(MAP, restored.key_scope)
    restored.set_current_key("a")
    assert dict(again.items()) == {"p": ["old"]}
    assert restored.key_count("map") == 1


@pytest.mark.parametrize("window", [TimeWindow(0, 10), GlobalWindow.get()])
def test_windows_are_namespaces(window: Any) -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(VALUE, backend.window_scope)
    backend.set_current_key("a")
    backend.set_current_namespace(window)
    state.update(5)
    restored = states_of(snapshot(states)).create_keyed_backend()
    again: Any = restored.get_state(VALUE, restored.window_scope)
    restored.set_current_key("a")
    restored.set_current_namespace(window)
    assert again.value() == 5


def test_each_new_subtask_takes_the_keys_that_the_exchange_sends_to_it() -> None:
    keys = [f"user-{number}" for number in range(200)]
    groups = key_groups_of(hash_keys(keys), MAX_PARALLELISM).tolist()
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(VALUE, backend.key_scope)
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        state.update(number)
    taken = snapshot(states)
    parts: list[OperatorSubtaskState] = []
    for index in range(3):
        own = states_of(taken, parallelism=3, subtask_index=index)
        restored = own.create_keyed_backend()
        again: Any = restored.get_state(VALUE, restored.key_scope)
        key_groups = key_group_range(index, 3, MAX_PARALLELISM)
        held = 0
        for number, (key, group) in enumerate(zip(keys, groups, strict=True)):
            restored.set_current_key(key)
            assert again.value() == (number if group in key_groups else None)
            held += group in key_groups
        assert restored.key_count("value") == held
        parts.append(snapshot(own))
    back = states_of(merged(parts)).create_keyed_backend()
    back.get_state(VALUE, back.key_scope)
    assert back.key_count("value") == len(keys)


def test_a_snapshot_is_parquet_ordered_by_key_group_with_typed_columns() -> None:
    states = states_of(key_type=Types.STRING())
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(LIST, backend.key_scope)
    for key in "abcdefgh":
        backend.set_current_key(key)
        state.add_all([key, key * 2])
    (chunk,) = snapshot(states).chunks
    table = pq.read_table(pa.BufferReader(chunk.file.content))
    assert table.schema.types == [pa.int32(), pa.string(), pa.int32(), pa.string()]
    assert table.column_names == ["key_group", "key", "list_pos", "value"]
    groups = table.column("key_group").to_pylist()
    assert groups == sorted(groups)
    assert chunk.key_groups == (groups[0], groups[-1])
    assert (chunk.table, chunk.row_count, chunk.attributes["kind"]) == (
        StateTable.KEYED,
        16,
        "list",
    )


def test_undeclared_columns_are_flagged(caplog: pytest.LogCaptureFixture) -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(MAP, backend.key_scope)
    backend.set_current_key(1)
    state.put("a", object)
    (chunk,) = snapshot(states).chunks
    assert chunk.attributes["opaque"] == "key,value"
    snapshot(states)
    (record,) = caplog.records
    assert "undeclared types in map: they are stored as pickles" in record.getMessage()


def test_what_nobody_asks_for_stays_in_later_snapshots() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(LIST, backend.key_scope)
    backend.set_current_key("a")
    state.add("x")
    without = states_of(snapshot(states))  # of an operator that has no keyed state at all
    idle = states_of(snapshot(without))
    idle.create_keyed_backend()
    first, second = snapshot(idle), snapshot(idle)
    assert first == second
    restored = states_of(second).create_keyed_backend()
    again: Any = restored.get_state(LIST, restored.key_scope)
    restored.set_current_key("a")
    assert list(again.get()) == ["x"]


def test_what_several_subtasks_had_and_nobody_asks_for_is_found_again_at_any_parallelism() -> None:
    keys = [f"user-{number}" for number in range(50)]
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(VALUE, backend.key_scope)
    for key in keys:
        backend.set_current_key(key)
        state.update(1)
    taken = snapshot(states)
    for parallelism in (3, 1, 2, 1):
        idle = [
            states_of(taken, parallelism=parallelism, subtask_index=index)
            for index in range(parallelism)
        ]
        # Last subtask first: nothing says in which order chunks come.
        taken = merged([snapshot(one) for one in reversed(idle)])
        assert sum(chunk.row_count for chunk in taken.chunks) == len(keys)
    restored = [states_of(taken, parallelism=2, subtask_index=index) for index in range(2)]
    count = 0
    for one in restored:
        own = one.create_keyed_backend()
        own.get_state(VALUE, own.key_scope)
        count += own.key_count("value")
    assert count == len(keys)


def test_another_kind_of_state_under_the_same_name_is_refused() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(VALUE, backend.key_scope)
    backend.set_current_key("a")
    state.update(1)
    restored = states_of(snapshot(states)).create_keyed_backend()
    with pytest.raises(StateIncompatibleError, match="'value' was stored as value state"):
        restored.get_state(ListStateDescriptor("value", Types.LONG()), restored.key_scope)


def test_kinds_of_rows_are_kept() -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    descriptor = ListStateDescriptor("changes", row_type)
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(descriptor, backend.key_scope)
    backend.set_current_key("a")
    deleted = Row(n=1)
    deleted.set_row_kind(RowKind.DELETE)
    state.add_all([Row(n=2), deleted])
    restored = states_of(snapshot(states)).create_keyed_backend()
    again: Any = restored.get_state(descriptor, restored.key_scope)
    restored.set_current_key("a")
    assert [row.get_row_kind() for row in again.get()] == [RowKind.INSERT, RowKind.DELETE]


def test_operator_state_is_read_back_by_mode() -> None:
    states = states_of()
    items = ListStateDescriptor("items", Types.LONG())
    rules = MapStateDescriptor("rules", Types.STRING(), PICKLED)
    states.operator_state.get_list_state(items).add_all([1, 2])
    states.operator_state.get_broadcast_state(rules).put("a", {"x"})
    restored = states_of(snapshot(states))
    assert list(restored.operator_state.get_list_state(items).get()) == [1, 2]
    assert restored.operator_state.get_broadcast_state(rules).get("a") == {"x"}
