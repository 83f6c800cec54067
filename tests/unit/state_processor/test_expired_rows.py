"""Rows past their time to live: hidden, or shown with a flag; and what edits of them leave known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.checkpoint.handles import (
    EXPIRED_ROWS,
    EXPIRED_UNTIL,
    OperatorSubtaskState,
    StateChunk,
)
from headrace.checkpoint.metadata import CompletedCheckpoint, StateChange
from headrace.checkpoint.retention.inspection import InspectedSnapshot, SnapshotCondition
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.cli.snapshot_tables import facts
from headrace.core.config import Settings
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.summary_tables import summary_table
from headrace.state_processor.table_query import TableQuery
from headrace.testing.operator_harness import snapshot
from tests.unit.state.ttl_states import ALL_KINDS, Home, on_backend, ttl, value, write
from tests.unit.state_processor.saved import UID, saved, settings_in

KEYS = ("k", "l", "m")
HOME_GROUPS = 128


@pytest.fixture(params=["hashmap", "rocksdb"], autouse=True)
def chosen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with on_backend(request.param, tmp_path) as backend:
        yield backend


def aged(describe: Any) -> Home:
    """Keys written 15, 10 and 5 ms ago, of a state whose values live for 10 ms."""
    home, descriptor = Home(), describe()
    state = home.state(descriptor, ttl().disable_cleanup_in_background())
    for key in KEYS:
        home.backend.set_current_key(key)
        write(state, descriptor)
        home.clock.advance_ms(5)
    return home


def savepoint_of(
    home: Home, folder: Path, *, forgets: bool = False
) -> tuple[CompletedCheckpoint, Settings]:
    """A savepoint of it; one that `forgets` is as earlier versions wrote them."""
    state = snapshot(home.states)
    if forgets:
        state = OperatorSubtaskState(tuple(map(_without_times, state.chunks)))
    own = settings_in(folder)
    return saved(folder / "savepoint", own, [state], max_parallelism=HOME_GROUPS), own


def _without_times(chunk: StateChunk) -> StateChunk:
    kept = {name: one for name, one in chunk.attributes.items() if name != EXPIRED_UNTIL}
    return msgspec.structs.replace(chunk, attributes=kept)


def table_of(made: CompletedCheckpoint, **query: Any) -> pa.Table:
    return TableQuery("keyed", UID, **query).open(made).read_all(StateReader())


def rows(made: CompletedCheckpoint, **query: Any) -> list[dict[str, Any]]:
    return table_of(made, **query).to_pylist()


def replaced(made: CompletedCheckpoint, own: Settings, new: pa.Table) -> CompletedCheckpoint:
    editor = SavepointEditor(made, own, allow_pickles=True).replace(UID, None, new)
    return editor.write(str(Path(made.uri).parent / "edited"), reason="a test")


def change_of(made: CompletedCheckpoint) -> StateChange:
    assert made.metadata.edit is not None
    (change,) = made.metadata.edit.changes
    return change


@ALL_KINDS
def test_expired_rows_are_shown_where_that_is_asked_for(describe: Any, tmp_path: Path) -> None:
    made, _ = savepoint_of(aged(describe), tmp_path)
    (shown,) = rows(made)
    assert "expired" not in shown
    accesses = {one["last_access"]: one["expired"] for one in rows(made, includes_expired=True)}
    assert accesses == {0: True, 5: True, 10: False}
    assert shown["last_access"] == 10


def test_where_nobody_knows_every_row_is_shown(tmp_path: Path) -> None:
    made, _ = savepoint_of(aged(value), tmp_path, forgets=True)
    assert len(rows(made)) == 3
    assert {one["expired"] for one in rows(made, includes_expired=True)} == {None}


def test_without_a_time_to_live_no_row_has_expired(tmp_path: Path) -> None:
    home, descriptor = Home(), value()
    write(home.state(descriptor), descriptor)
    made, _ = savepoint_of(home, tmp_path)
    assert [one["expired"] for one in rows(made, includes_expired=True)] == [False]


def test_an_edit_keeps_what_is_known_of_the_rows_it_leaves(tmp_path: Path) -> None:
    made, own = savepoint_of(aged(value), tmp_path)
    every = table_of(made, includes_expired=True)
    edited = replaced(made, own, every.drop_columns(["expired"]))
    assert rows(edited, includes_expired=True) == every.to_pylist()
    (operator,) = edited.metadata.operators
    counts = [
        one.attributes.get(EXPIRED_ROWS)
        for state in operator.subtasks.values()
        for one in state.chunks
    ]
    assert sum(int(one or 0) for one in counts) == 2


@ALL_KINDS
def test_what_is_read_with_expired_rows_is_written_as_it_was(describe: Any, tmp_path: Path) -> None:
    made, own = savepoint_of(aged(describe), tmp_path)
    every = table_of(made, includes_expired=True)
    edited = replaced(made, own, every)
    assert table_of(edited, includes_expired=True) == every
    change = change_of(edited)
    assert (change.changed_count, change.removed_count, change.removed_expired_count) == (0, 0, 0)


def test_expired_rows_that_an_edit_leaves_away_are_counted(tmp_path: Path) -> None:
    made, own = savepoint_of(aged(value), tmp_path)
    kept = table_of(made)
    edited = replaced(made, own, kept)
    assert table_of(edited, includes_expired=True).drop_columns(["expired"]) == kept
    change = change_of(edited)
    assert (change.removed_count, change.removed_expired_count) == (2, 2)
    (shown,) = summary_table("snapshot", edited).column("changes").to_pylist()
    assert [one["removed_expired"] for one in shown] == [2]
    told = facts(InspectedSnapshot(edited.uri, SnapshotCondition.COMPLETE), edited.metadata)
    assert any(fact.endswith("3 -> 1 rows, 2 expired ones left away") for _, fact in told)


def test_rows_that_live_are_not_counted_as_expired_where_they_are_left_away(tmp_path: Path) -> None:
    made, own = savepoint_of(aged(value), tmp_path)
    every = table_of(made, includes_expired=True)
    edited = replaced(made, own, every.filter(every.column("expired")))
    change = change_of(edited)
    assert (change.removed_count, change.removed_expired_count) == (1, 0)
