"""Live rows of a state are those that a snapshot of the same moment stores, whatever happens meanwhile."""

import pickle
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import StateKeyMismatchError
from headrace.checkpoint.handles import StateTable
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.process import TimeDomain
from headrace.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.functions.windows import TimeWindow
from headrace.state.queryable.live_rows import LiveReadable
from headrace.testing.operator_harness import snapshot, write_frozen
from tests.unit.state.live_reading import opened, shown, source_of, stored, tables_of
from tests.unit.state.new_states import states_of
from tests.unit.state.subtasks import KINDS, Subtask

SAVEPOINT = CheckpointOptions(kind=SnapshotKind.SAVEPOINT)

Change = tuple[str, int, int]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["value", "list", "map", "reducing", "window", "fading", "clear", "timer"]),
        st.integers(0, 5),
        st.integers(0, 9),
    ),
    max_size=30,
)


def change(subtask: Subtask, what: str, key: int, number: int) -> None:
    """One change of one state under one key."""
    handles, backend = subtask.handles, subtask.backend
    backend.set_current_key(key)
    match what:
        case "value":
            handles["value"].update((number,))
        case "list":
            handles["list"].add_all([number, number + 1])
        case "map":
            handles["map"].put(number, f"{key}")
        case "reducing":
            handles["reducing"].add(number)
        case "window":
            backend.set_current_namespace(TimeWindow(number, number + 10))
            handles["window"].add({"n": [number]})
        case "fading":
            backend.event_clock.advance(number)
            subtask.fading.put(number, f"{key}")
        case "timer":
            subtask.timers.register(TimeDomain.EVENT_TIME, number, None)
            subtask.timers.delete(TimeDomain.EVENT_TIME, number - 1, None)
        case _:
            backend.set_current_namespace(TimeWindow(number, number + 10))
            for handle in handles.values():
                handle.clear()
    backend.end_batch()


def touch(subtask: Subtask) -> None:
    """Look at what does not change by that, so that nothing keeps states of the heap from being plain dicts again."""
    subtask.backend.set_current_key(0)
    subtask.backend.set_current_namespace(TimeWindow(0, 10))
    subtask.handles["value"].value()
    for name in ("list", "reducing", "window"):
        subtask.handles[name].get()
    subtask.handles["map"].is_empty()
    subtask.backend.end_batch()


@pytest.mark.parametrize("kind", KINDS)
@given(before=CHANGES, amid=CHANGES, count=st.integers(1, 7), is_stored=st.booleans())
def test_live_rows_are_those_of_a_snapshot_of_the_same_moment(
    kind: str, before: list[Change], amid: list[Change], count: int, is_stored: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        subtask = Subtask(kind, scratch)
        half = len(before) // 2
        for one in before[:half]:
            change(subtask, *one)
        # One that is still being written: its entries lie in layers of their own.
        earlier = subtask.states.freeze(1, SAVEPOINT) if is_stored else []
        for one in before[half:]:
            change(subtask, *one)

        written = write_frozen(subtask.states.freeze(2, SAVEPOINT))
        touch(subtask)
        sources = subtask.states.live_sources()
        rows = [opened(source) for source in sources]
        waiting = list(amid)

        def go_on() -> None:
            if waiting:
                change(subtask, *waiting.pop())

        live = {
            (source.table, source.name): (
                source.opaque,
                shown(tables_of(one, count, go_on), source.opaque),
            )
            for source, one in zip(sources, rows, strict=True)
        }
        assert {name for _, name in live} == {*subtask.handles, "fading", "timers"}
        for (table, name), (opaque, found) in live.items():
            assert found == stored(written, name, table, opaque)
        write_frozen(earlier)
        subtask.backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_holds_nothing_has_its_columns_all_the_same(kind: str, tmp_path: Any) -> None:
    subtask = Subtask(kind, str(tmp_path))
    columns = {source.name: opened(source).schema() for source in subtask.states.live_sources()}
    expected = {
        "value": "key_group key value",
        "list": "key_group key list_pos value",
        "map": "key_group key map_key value",
        "window": "key_group key namespace list_pos value",
        "fading": "key_group key map_key value last_access",
        "timers": "service domain ts key_group key",
    }
    assert {name: " ".join(columns[name].names) for name in expected} == expected
    assert columns["value"].field("value").type == pa.struct({"n": pa.int64()})
    subtask.backend.close()


def test_keys_are_found_in_states_with_windows_and_without(tmp_path: Any) -> None:
    for kind in KINDS:
        subtask = Subtask(kind, str(tmp_path))
        for key in range(4):
            for number in range(3):
                for what in ("value", "list", "map", "window", "timer"):
                    change(subtask, what, key, number)
        for source in subtask.states.live_sources():
            if source.name in ("reducing", "aggregating", "fading"):
                continue
            everything = shown(tables_of(opened(source)), source.opaque)
            of_two = shown(tables_of(opened(source, [2, 99, 3, 2])), source.opaque)
            wanted = [row for row in everything if dict(row)["key"] in ("2", "3")]
            assert of_two == wanted
            assert len(wanted) * 2 == len(everything)
        subtask.backend.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_key_that_is_looked_for_counts_whether_it_is_there_or_not(
    kind: str, tmp_path: Any
) -> None:
    subtask = Subtask(kind, str(tmp_path))
    for key in (3, 500, 1_000):
        for number in (1, 2):
            change(subtask, "list", key, number)
    rows = opened(source_of(subtask.states, "list"), list(range(1_000)))
    # What comes after the first mail is not seen, not even of keys that nobody has looked for yet.
    change(subtask, "list", 999, 1)
    looked_at: list[int] = []
    found: list[tuple[int, int, int]] = []
    while (piece := rows.take(10)) is not None:
        looked_at.append(piece.looked_at)
        if piece.table is not None:
            found += [
                (pickle.loads(row["key"]), row["list_pos"], row["value"])
                for row in piece.table.to_pylist()
            ]
    rows.release()
    assert max(looked_at) <= 13
    assert sum(looked_at) == 998 + 4 + 4
    assert sorted(found) == [
        (key, index, value) for key in (3, 500) for index, value in enumerate((1, 2, 2, 3))
    ]
    subtask.backend.close()


@pytest.mark.parametrize(
    "descriptor",
    [
        ListStateDescriptor("long", Types.LONG()),
        MapStateDescriptor("long", Types.LONG(), Types.LONG()),
    ],
)
def test_a_long_entry_comes_in_parts(descriptor: StateDescriptor) -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(descriptor, backend.key_scope)
    backend.set_current_key("a")
    if isinstance(descriptor, ListStateDescriptor):
        state.add_all(range(2_000))
    else:
        state.put_all({number: number for number in range(2_000)})
    rows = opened(source_of(states, "long"))
    pieces = list(tables_of(rows, count=10))
    assert max(piece.num_rows for piece in pieces) <= 266
    assert len(pieces) > 7
    assert shown(iter(pieces), ("key",)) == stored(snapshot(states), "long", opaque=("key",))


def test_rows_past_their_time_to_live_are_there_with_the_time_until_which_they_expired(
    tmp_path: Any,
) -> None:
    for kind in ("hashmap", "rocksdb"):
        subtask = Subtask(kind, str(tmp_path))
        change(subtask, "fading", 1, 1)
        change(subtask, "fading", 2, 2)
        subtask.backend.event_clock.advance(4)
        rows = opened(source_of(subtask.states, "fading"))
        found = pa.concat_tables(tables_of(rows)).sort_by("last_access")
        assert found.column("last_access").to_pylist() == [1, 2]
        assert rows.expired_until_ms == 1
        subtask.backend.close()


@pytest.mark.parametrize(
    ("key_type", "keys", "reason"),
    [
        (Types.LONG(), ["seven"], "the keys of the state are"),
        (Types.LONG(), [None], "null"),
        (Types.STRING(), [[1]], "the keys of the state are"),
        (Types.PICKLED_BYTE_ARRAY(), [{"a": 1}], "the keys of the state are"),
    ],
)
def test_keys_of_another_type_are_refused_by_name(
    key_type: TypeInformation, keys: list[Any], reason: str
) -> None:
    states = states_of(key_type=key_type)
    backend = states.create_keyed_backend()
    backend.get_state(ValueStateDescriptor("value", Types.LONG()), backend.key_scope)
    with pytest.raises(StateKeyMismatchError, match=f"'value'.*{reason}"):
        opened(source_of(states, "value"), keys)


def test_a_state_that_nobody_has_asked_for_since_the_restore_is_named_but_cannot_be_opened() -> (
    None
):
    states = states_of()
    backend = states.create_keyed_backend()
    value: Any = backend.get_state(ValueStateDescriptor("value", Types.LONG()), backend.key_scope)
    backend.set_current_key("a")
    value.update(1)
    restored = states_of(snapshot(states))
    (waiting,) = restored.live_sources()
    assert (waiting.name, waiting.kind, waiting.open) == ("value", "value", None)
    again = restored.create_keyed_backend()
    again.get_state(ValueStateDescriptor("value", Types.LONG()), again.key_scope)
    (source,) = restored.live_sources()
    assert shown(tables_of(opened(source)), source.opaque) == stored(
        snapshot(states), "value", opaque=("key",)
    )


def test_operator_state_is_read_too() -> None:
    states = states_of()
    listed: Any = states.operator_state.get_list_state(ListStateDescriptor("l", Types.LONG()))
    listed.add_all([1, 2, 3])
    shared: Any = states.operator_state.get_broadcast_state(
        MapStateDescriptor("b", Types.STRING(), Types.LONG())
    )
    shared.put("x", 7)
    rows = opened(source_of(states, "l", StateTable.OPERATOR))
    pieces = tables_of(rows, 2, lambda: listed.add(9))
    assert [piece.to_pydict() for piece in pieces] == [{"value": [1, 2]}, {"value": [3]}]
    shared_rows = opened(source_of(states, "b", StateTable.OPERATOR))
    assert [piece.to_pylist() for piece in tables_of(shared_rows)] == [
        [{"map_key": "x", "value": 7}]
    ]
    with pytest.raises(StateKeyMismatchError, match="'l'"):
        opened(source_of(states, "l", StateTable.OPERATOR), [1])


def test_released_rows_let_the_heap_be_one_dict_again() -> None:
    states = states_of()
    backend = states.create_keyed_backend()
    state: Any = backend.get_state(ValueStateDescriptor("v", Types.LONG()), backend.key_scope)
    backend.set_current_key("a")
    state.update(1)
    rows = opened(source_of(states, "v"))
    assert not isinstance(state.entries, dict)
    rows.release()
    state.update(2)
    state.value()
    assert state.entries == {"a": 2}
    assert isinstance(state.entries, dict)


def test_splits_and_items_of_connectors_are_not_read() -> None:
    class Kept:
        freeze: Callable[..., Any]

    states = states_of()
    states.register("splits", Kept())  # type: ignore[arg-type]
    assert not isinstance(Kept(), LiveReadable)
    assert states.live_sources() == []
