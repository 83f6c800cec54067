"""Edits of single entries: one key changes, everything else is as it was."""

from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.state_processor import entry_edits
from headrace.state_processor.entry_edits import EntryChange
from headrace.state_processor.errors import JsonValueError, StateProcessorError, UnknownStateError
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.table_query import TableQuery
from tests.unit.state_processor.saved import UID, restored, savepoint, settings_in

Made = tuple[CompletedCheckpoint, Settings]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("saved")
    own = settings_in(folder)
    return savepoint(folder / "savepoint", own), own


def edited(made: Made, folder: Path, state: str, *changes: EntryChange) -> CompletedCheckpoint:
    editor = SavepointEditor(made[0], made[1]).change_entries(UID, state, changes)
    return editor.write(str(folder / "edited"), reason="a test")


def rows_of(snapshot: CompletedCheckpoint, state: str) -> list[dict[str, Any]]:
    rows = TableQuery("keyed", UID, state).open(snapshot).read_all(StateReader()).to_pylist()
    return sorted(rows, key=lambda row: (row["key"], str(row)))


def counts_of(snapshot: CompletedCheckpoint) -> dict[Any, Any]:
    return {row["key"]: row["value"] for row in rows_of(snapshot, "count")}


def test_values_are_set_added_and_deleted_and_the_rest_stays(made: Made, tmp_path: Path) -> None:
    before = counts_of(made[0])
    changes = (EntryChange(3, -1), EntryChange(77, "123"), EntryChange(4, is_deleted=True))
    new = edited(made, tmp_path, "count", *changes)
    after = before | {3: -1, 77: 123}
    del after[4]
    assert counts_of(new) == after
    assert rows_of(new, "events") == rows_of(made[0], "events")
    assert counts_of(made[0]) == before
    assert new.metadata.edit is not None
    (change,) = new.metadata.edit.changes
    assert (change.added_count, change.changed_count, change.removed_count) == (1, 1, 1)


def test_a_job_goes_on_with_the_new_value(made: Made, tmp_path: Path) -> None:
    task = restored(edited(made, tmp_path, "count", EntryChange(3, 42)), made[1])
    task.backend.set_current_key(3)
    assert task.handles["count"].value() == 42
    assert len(list(task.handles["events"].get())) == 2
    task.backend.close()


def test_a_later_change_of_a_key_wins(made: Made, tmp_path: Path) -> None:
    changes = (EntryChange(9, 1), EntryChange(9, 2), EntryChange(3, is_deleted=True))
    new = counts_of(edited(made, tmp_path, "count", *changes, EntryChange(3, 5)))
    assert (new[9], new[3]) == (2, 5)


def test_all_elements_and_entries_of_a_deleted_key_go(made: Made, tmp_path: Path) -> None:
    for state in ("events", "words"):
        new = edited(made, tmp_path / state, state, EntryChange(2, is_deleted=True))
        kept = [row for row in rows_of(made[0], state) if row["key"] != 2]
        assert 0 < len(kept) < len(rows_of(made[0], state))
        assert rows_of(new, state) == kept


REFUSED = [
    ("events", EntryChange(2, "x"), StateProcessorError, "has no single value per key"),
    ("words", EntryChange(2, 1), StateProcessorError, "has no single value per key"),
    ("count", EntryChange("two", 1), JsonValueError, "the key of keyed state 'count'"),
    ("count", EntryChange(2, "x"), JsonValueError, "the value of keyed state 'count'"),
    ("count", EntryChange(2), StateProcessorError, "has no value"),
    ("count", EntryChange(99, is_deleted=True), StateProcessorError, "has no entry for the key 99"),
    ("nothing", EntryChange(2, 1), UnknownStateError, "no state 'nothing'"),
]


@pytest.mark.parametrize(("state", "change", "error", "text"), REFUSED)
def test_what_no_job_could_have_written_is_refused_and_nothing_is_left(
    made: Made, tmp_path: Path, state: str, change: EntryChange, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        edited(made, tmp_path, state, change)
    assert not (tmp_path / "edited").exists()


def test_pickled_keys_are_not_loaded(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    parent = savepoint(tmp_path / "savepoint", own, key_type=Types.PICKLED_BYTE_ARRAY())
    with pytest.raises(StateProcessorError, match="no keys of a declared type"):
        edited((parent, own), tmp_path, "count", EntryChange(3, 1))


def test_a_state_of_too_many_rows_is_refused(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_edits, "ENTRY_EDIT_ROWS_MAX", 5)
    with pytest.raises(StateProcessorError, match="has 6 rows"):
        edited(made, tmp_path, "count", EntryChange(3, 1))
