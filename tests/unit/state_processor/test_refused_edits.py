"""Edits that would change a savepoint without anybody noticing are refused, with the row or the key."""

import getpass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.checkpoint_storage import nearby_snapshots
from headrace.checkpoint.storage.metadata_format import METADATA_NAME, abandonment
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.state.columns import KeyGroups
from headrace.state.keyed_chunks import ChunkFiles
from headrace.state_processor.errors import EditRefusedError, StateProcessorError
from headrace.state_processor.key_hashing import key_columns_behind
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.selection import open_snapshot
from headrace.state_processor.table_query import TableQuery
from tests.unit.state_processor.saved import (
    MAX_PARALLELISM,
    UID,
    saved,
    savepoint,
    settings_in,
    storage_of,
)

Made = tuple[CompletedCheckpoint, Settings]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("saved")
    own = settings_in(folder)
    return savepoint(folder / "savepoint", own), own


def table_of(snapshot: CompletedCheckpoint, state: str | None, table: str = "windows") -> pa.Table:
    return TableQuery(table, UID, state).open(snapshot).read_all(StateReader())


def write(editor: SavepointEditor, folder: Path, name: str = "edited") -> CompletedCheckpoint:
    return editor.write(str(folder / name), reason="a test", author="tester")


def saved_rows(
    folder: Path, own: Settings, groups: KeyGroups, table: StateTable, **columns: pa.Array
) -> CompletedCheckpoint:
    """A savepoint of one subtask with rows in these key groups, each row in a file of its own."""
    rows = pa.table({"key_group": pa.array(groups), **columns}).sort_by("key_group")
    writer = storage_of(folder, own)
    chunks: list[StateChunk] = []
    for place in range(rows.num_rows):
        files = ChunkFiles(table, "rows", {}, writer)
        files.add(rows.slice(place, 1).combine_chunks())
        chunks += files.finish()
    return saved(folder, own, [OperatorSubtaskState(tuple(chunks))])


def windows(folder: Path, own: Settings, counts: list[int | None]) -> CompletedCheckpoint:
    """A savepoint of one window each of the users 1, 2 …"""
    keys = pa.array(range(1, len(counts) + 1), pa.int64())
    return saved_rows(
        folder,
        own,
        key_groups_of(hash_array(keys), MAX_PARALLELISM),
        StateTable.COLUMNAR,
        key=pa.StructArray.from_arrays([keys], names=["user"]),
        window_start=pa.array([0] * len(counts), pa.int64()),
        rows=pa.array(counts, pa.int64()),
    )


def hashed_rows(
    folder: Path, own: Settings, hashes: list[int] | None = None
) -> CompletedCheckpoint:
    """A savepoint of rows with a hash of their user and city, or with other hashes."""
    columns = {
        "note": pa.array(["x", "y", "x"]),
        "city": pa.array(["Bonn", "Rome", "Oslo"]),
        "user": pa.array([1, 2, 3], pa.int64()),
    }
    key = pa.StructArray.from_arrays([columns["user"], columns["city"]], names=["user", "city"])
    stored = pa.array(hash_array(key) if hashes is None else hashes, pa.int32())
    groups = key_groups_of(stored.to_numpy(), MAX_PARALLELISM)
    columns[KEY_HASH_COLUMN] = stored
    return saved_rows(folder, own, groups, StateTable.COLUMNAR, **columns)


def changed(table: pa.Table, **columns: Any) -> pa.Table:
    """The same rows with other values in some columns, and without key groups."""
    rows = table.drop_columns(["key_group"])
    for name, values in columns.items():
        index = rows.column_names.index(name)
        rows = rows.set_column(index, name, pa.array(values, rows.schema.field(name).type))
    return rows


def replaced(parent: CompletedCheckpoint, own: Settings, rows: pa.Table) -> SavepointEditor:
    return SavepointEditor(parent, own).replace(UID, None, rows, StateTable.COLUMNAR)


@pytest.mark.parametrize("key", [{"usr": 3}, {"user": 3, "city": "Bonn"}, {}])
def test_keys_with_other_fields_than_those_stored_are_refused(
    made: Made, tmp_path: Path, key: dict[str, Any]
) -> None:
    parent = windows(tmp_path / "parent", made[1], [4, 5, 6])
    with pytest.raises(StateProcessorError, match="has keys with the fields user, but "):
        write(SavepointEditor(parent, made[1]).remove_keys(UID, [key]), tmp_path)
    with pytest.raises(StateProcessorError, match="has keys with the fields user, but "):
        TableQuery("windows", UID, keys=(key,)).open(parent)


def test_keys_that_nobody_has_are_named(made: Made, tmp_path: Path) -> None:
    editor = SavepointEditor(*made).remove_keys(UID, [3, 77, -8])
    with pytest.raises(
        StateProcessorError, match="no state for 2 of the 3 keys to delete, such as 77, -8"
    ):
        write(editor, tmp_path)
    assert not (tmp_path / "edited").exists()


def test_a_value_or_map_key_that_an_outer_join_left_empty_is_refused(
    made: Made, tmp_path: Path
) -> None:
    counts = changed(table_of(made[0], "count", "keyed"), value=[None, 1, 2, 3, 4, 5])
    with pytest.raises(EditRefusedError, match="'value': None} has no value"):
        write(SavepointEditor(*made).replace(UID, "count", counts), tmp_path)
    words = table_of(made[0], "words", "keyed")
    words = changed(words, map_key=[*words.column("map_key").to_pylist()[:-1], None])
    with pytest.raises(EditRefusedError, match="has no map_key"):
        write(SavepointEditor(*made).replace(UID, "words", words), tmp_path)


def test_a_list_may_hold_nothing_at_a_position(made: Made, tmp_path: Path) -> None:
    events = table_of(made[0], "events", "keyed")
    events = changed(events, value=[None, *events.column("value").to_pylist()[1:]])
    edited = write(SavepointEditor(*made).replace(UID, "events", events), tmp_path)
    assert table_of(edited, "events", "keyed").column("value").null_count == 1


def test_a_window_without_a_count_is_refused_unless_the_parent_has_such(
    made: Made, tmp_path: Path
) -> None:
    parent = windows(tmp_path / "parent", made[1], [4, 5, 6])
    rows = changed(table_of(parent, None), rows=[4, None, 6])
    with pytest.raises(EditRefusedError, match="'rows': None} has no rows"):
        write(replaced(parent, made[1], rows), tmp_path)
    parent = windows(tmp_path / "with-nulls", made[1], [None, 5, 6])
    write(replaced(parent, made[1], rows), tmp_path)


def test_a_stored_hash_is_that_of_the_key_which_is_found_by_it(made: Made, tmp_path: Path) -> None:
    parent = hashed_rows(tmp_path / "parent", made[1])
    rows = table_of(parent, None)
    assert key_columns_behind([rows]) == (("user", "city"),)
    hashes = rows.column(KEY_HASH_COLUMN).to_pylist()
    assert table_of(write(replaced(parent, made[1], rows), tmp_path), None) == rows
    for wrong, said in (
        (changed(rows, user=[9, *rows.column("user").to_pylist()[1:]]), "is not the hash of its"),
        (
            changed(rows, **{KEY_HASH_COLUMN: [hashes[1], *hashes[1:]]}),
            "is not the hash of its key",
        ),
        (changed(rows, **{KEY_HASH_COLUMN: [None, *hashes[1:]]}), "has no \\$key_hash"),
    ):
        with pytest.raises(EditRefusedError, match=f"row .*{said}"):
            write(replaced(parent, made[1], wrong), tmp_path, "refused")


def test_where_no_columns_give_the_stored_hash_it_must_be_one_of_the_parent(
    made: Made, tmp_path: Path
) -> None:
    parent = hashed_rows(tmp_path / "parent", made[1], [11, 12, 13])
    rows = table_of(parent, None)
    assert key_columns_behind([rows]) == ()
    first = rows.column(KEY_HASH_COLUMN).to_pylist()
    write(replaced(parent, made[1], changed(rows, note=["z", "z", "z"])), tmp_path)
    wrong = changed(rows, **{KEY_HASH_COLUMN: [99, *first[1:]]})
    with pytest.raises(EditRefusedError, match="a \\$key_hash that no row of the parent has"):
        write(replaced(parent, made[1], wrong), tmp_path, "refused")


def numbers(
    folder: Path, own: Settings, values: list[float], *, declared: bool
) -> CompletedCheckpoint:
    """A savepoint with floating-point keys, whose hashes depend on whether their type was declared."""
    keys = pa.array(values, pa.float64())
    hashes = hash_array(keys) if declared else hash_keys(values)
    groups = key_groups_of(hashes, MAX_PARALLELISM)
    return saved_rows(folder, own, groups, StateTable.KEYED, key=keys, value=keys)


@pytest.mark.parametrize("declared", [True, False])
def test_a_key_of_two_possible_groups_is_refused_unless_the_parent_decides(
    made: Made, tmp_path: Path, declared: bool
) -> None:
    """0.5 is hashed alike either way; 2.0 has the hash of the integer where its type was not declared."""
    rows = pa.table({"key": [0.5, 2.0], "value": [1.0, 1.0]})
    alike = numbers(tmp_path / "alike", made[1], [0.5], declared=declared)
    with pytest.raises(EditRefusedError, match=r"row .*'key': 2.0.* may be in key group"):
        write(SavepointEditor(alike, made[1]).replace(UID, None, rows), tmp_path)
    # 27.0 lies in a later file than 0.5, so that the first one does not decide.
    decided = numbers(tmp_path / "decided", made[1], [0.5, 27.0], declared=declared)
    edited = write(SavepointEditor(decided, made[1]).replace(UID, None, rows), tmp_path)
    found = table_of(edited, None, "keyed").select(["key", "key_group"]).to_pylist()
    hashes = hash_array(pa.array([0.5, 2.0])) if declared else hash_keys([0.5, 2.0])
    groups = key_groups_of(hashes, MAX_PARALLELISM).tolist()
    assert {one["key"]: one["key_group"] for one in found} == dict(
        zip([0.5, 2.0], groups, strict=True)
    )


def test_the_latest_checkpoint_is_none_that_was_given_up(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    job = tmp_path / "job"
    savepoint(job / "chk-8", own)
    (job / "chk-9").mkdir()
    (job / "chk-9" / METADATA_NAME).write_bytes(abandonment(3))
    assert open_snapshot(str(job), own).uri == str(job / "chk-8")
    assert nearby_snapshots(str(job)) == (str(job / "chk-8"),)


def test_hints_name_the_newest_checkpoints_first(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    for number in (2, 7, 8, 9, 10, 11):
        savepoint(tmp_path / "job" / f"chk-{number}", own)
    named = [uri.rpartition("/")[2] for uri in nearby_snapshots(str(tmp_path / "job" / "chk-12"))]
    assert named == ["chk-11", "chk-10", "chk-9", "chk-8", "chk-7"]


def test_a_user_without_a_name_is_known_by_number(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", fail)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    editor = SavepointEditor(*made).remove(UID, "words")
    edit = editor.write(str(tmp_path / "edited"), reason="a test").metadata.edit
    assert edit is not None
    assert edit.author == "uid 4711"


def test_a_folder_with_a_question_mark_is_refused_before_anything_is_written(
    made: Made, tmp_path: Path
) -> None:
    with pytest.raises(StateProcessorError, match=r"has a '\?' in its name"):
        write(SavepointEditor(*made).remove(UID, "words"), tmp_path, "what?")
    assert list(tmp_path.iterdir()) == []
