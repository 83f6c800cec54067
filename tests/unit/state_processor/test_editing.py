"""Edited savepoints: what a job that goes on from them finds, what is said of them, and which edits are refused."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.checkpoint.errors import SnapshotSubsumedError
from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.retention.leases import live_leases
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot, publish_metadata
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.barriers import SnapshotKind
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range, key_groups_of
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.types.type_info import Types
from headrace.functions.process import TimeDomain
from headrace.state.keyed_chunks import ChunkFiles
from headrace.state_processor.edited_rows import EditTarget, WrittenRows
from headrace.state_processor.edits import EditContext, rows_of_table
from headrace.state_processor.errors import (
    EditRefusedError,
    InFlightRecordsError,
    NativeStateError,
    PickledKeysError,
    StateProcessorError,
    StateSchemaError,
    UnknownStateError,
)
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.table_query import TableQuery
from tests.unit.checkpoint.snapshots import inside
from tests.unit.state_processor.saved import (
    FILES,
    MAX_PARALLELISM,
    UID,
    Subtask,
    restored,
    saved,
    savepoint,
    settings_in,
    storage_of,
)

Made = tuple[CompletedCheckpoint, Settings]
TABLES = (("keyed", "count"), ("keyed", "events"), ("keyed", "words"), ("timers", "timers"))


def table_of(snapshot: CompletedCheckpoint, state: str | None, table: str = "keyed") -> pa.Table:
    return TableQuery(table, UID, state).open(snapshot).read_all(StateReader())


def counts_of(snapshot: CompletedCheckpoint) -> dict[int, int]:
    return {one["key"]: one["value"] for one in table_of(snapshot, "count").to_pylist()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("saved")
    own = settings_in(folder)
    return savepoint(folder / "savepoint", own), own


def editor_of(made: Made, **options: Any) -> SavepointEditor:
    return SavepointEditor(made[0], made[1], **options)


def write(editor: SavepointEditor, folder: Path, name: str = "edited") -> CompletedCheckpoint:
    return editor.write(str(folder / name), reason="a test", author="tester")


@pytest.mark.parametrize(("table", "state"), TABLES)
def test_what_is_read_and_written_again_is_the_same(
    made: Made, tmp_path: Path, table: str, state: str
) -> None:
    tables = {"keyed": StateTable.KEYED, "timers": StateTable.TIMERS}
    before = table_of(made[0], state, table)
    edited = write(editor_of(made).replace(UID, state, before, tables[table]), tmp_path)
    assert table_of(edited, state, table) == before
    assert edited.metadata.edit is not None
    (change,) = edited.metadata.edit.changes
    assert (change.added_count, change.changed_count, change.removed_count) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_goes_on_from_an_unchanged_rewrite_as_from_its_parent(
    tmp_path: Path, backend: str
) -> None:
    own = settings_in(tmp_path, **{"state.backend.type": backend})
    parent = savepoint(tmp_path / "savepoint", own)
    editor = SavepointEditor(parent, own)
    for table, state in TABLES:
        kind = StateTable.TIMERS if table == "timers" else StateTable.KEYED
        editor.replace(UID, state, table_of(parent, state, table), kind)
    edited = write(editor, tmp_path)
    again: list[CompletedCheckpoint] = []
    for number, snapshot in enumerate((parent, edited)):
        task = restored(snapshot, own)
        folder = tmp_path / f"again-{number}"
        again.append(saved(folder, own, [task.snapshot(storage_of(folder, own))]))
        task.backend.close()
    for table, state in TABLES:
        names = [one for one in table_of(parent, state, table).column_names if one != "value"]
        first, second = (
            table_of(one, state, table).sort_by([(name, "ascending") for name in names])
            for one in again
        )
        assert first == second
        assert first.num_rows


def test_a_job_sees_what_was_replaced_and_the_rest_as_it_was(made: Made, tmp_path: Path) -> None:
    rows = pa.table({"key": [0, 77], "value": [-1, 7]})
    edited = write(editor_of(made).replace(UID, "count", rows), tmp_path)
    task = restored(load_snapshot(edited.uri, made[1]), made[1])
    found: dict[int, Any] = {}
    for key in (0, 1, 77):
        task.backend.set_current_key(key)
        found[key] = (task.handles["count"].value(), len(list(task.handles["events"].get() or ())))
    assert found == {0: (-1, 2), 1: (None, 2), 77: (7, 0)}


def test_elements_of_lists_come_in_the_order_of_their_positions(made: Made, tmp_path: Path) -> None:
    rows = pa.table({"key": [1, 2, 1], "list_pos": [1, 0, 0], "value": ["second", "x", "first"]})
    rows = rows.set_column(1, "list_pos", rows.column("list_pos").cast(pa.int32()))
    task = restored(write(editor_of(made).replace(UID, "events", rows), tmp_path), made[1])
    task.backend.set_current_key(1)
    assert list(task.handles["events"].get()) == ["first", "second"]


def test_deleting_a_key_leaves_nothing_of_it(made: Made, tmp_path: Path) -> None:
    edited = write(editor_of(made).remove_keys(UID, [3]), tmp_path)
    for table, state in TABLES:
        keys = table_of(edited, state, table).column("key").to_pylist()
        assert 3 not in keys
        assert {0, 1, 2, 4, 5} == set(keys)
    task = restored(edited, made[1])
    assert task.timers.timer_count(TimeDomain.EVENT_TIME) == 5


def windows_of(made: Made, folder: Path) -> CompletedCheckpoint:
    """A savepoint of windows with a count per key, as built-in aggregates keep them."""
    keys = pa.array([1, 2, 3, 3], pa.int64())
    groups = key_groups_of(hash_array(keys), MAX_PARALLELISM)
    rows = pa.table(
        {
            "key_group": pa.array(groups),
            "key": pa.StructArray.from_arrays([keys], names=["user"]),
            "window_start": pa.array([0, 0, 0, 60_000], pa.int64()),
            "rows": pa.array([4, 5, 6, 7], pa.int64()),
        }
    )
    files = ChunkFiles(StateTable.COLUMNAR, "window-aggregates", {}, storage_of(folder, made[1]))
    files.add(rows.sort_by("key_group").combine_chunks())
    return saved(folder, made[1], [OperatorSubtaskState(tuple(files.finish()))])


def test_open_windows_of_a_key_go_with_it(made: Made, tmp_path: Path) -> None:
    parent = windows_of(made, tmp_path / "parent")
    editor = SavepointEditor(parent, made[1]).remove_keys(UID, [{"user": 3}])
    left = table_of(write(editor, tmp_path), None, "windows").to_pylist()
    assert {one["key"]["user"]: one["rows"] for one in left} == {1: 4, 2: 5}


def test_open_windows_are_replaced_with_one_row_per_key_and_window(
    made: Made, tmp_path: Path
) -> None:
    parent = windows_of(made, tmp_path / "parent")
    rows = table_of(parent, None, "windows")
    editor = SavepointEditor(parent, made[1]).replace(UID, None, rows, StateTable.COLUMNAR)
    assert table_of(write(editor, tmp_path), None, "windows") == rows
    doubled = pa.concat_tables([rows, rows.slice(0, 1)])
    editor = SavepointEditor(parent, made[1]).replace(UID, None, doubled, StateTable.COLUMNAR)
    with pytest.raises(EditRefusedError, match="key, window_start must differ"):
        write(editor, tmp_path, "refused")


def test_keys_of_another_type_delete_nothing_and_are_told(made: Made, tmp_path: Path) -> None:
    with pytest.raises(StateProcessorError, match="has keys of int64"):
        write(editor_of(made).remove_keys(UID, ["3"]), tmp_path)


def test_what_a_later_edit_takes_away_is_in_no_file(made: Made, tmp_path: Path) -> None:
    rows = table_of(made[0], "count")
    editor = SavepointEditor(made[0], settings_in(Path(made[0].uri).parent, **FILES))
    editor.replace(UID, "count", rows).remove_keys(UID, [3])
    edited = write(editor, tmp_path)
    files = {Path(one.uri).name for one in edited.metadata.files()}
    assert {one.name for one in (tmp_path / "edited").iterdir()} == {"_metadata"} | files


def test_states_are_removed_and_renamed(made: Made, tmp_path: Path) -> None:
    edited = write(editor_of(made).remove(UID, "events").rename(UID, "words", "terms"), tmp_path)
    with pytest.raises(UnknownStateError, match="choose from count, terms"):
        table_of(edited, "events")
    assert table_of(edited, "terms") == table_of(made[0], "words")


def test_the_state_of_an_operator_goes_to_another_uid(made: Made, tmp_path: Path) -> None:
    edited = write(editor_of(made).rename_operator(UID, "tally"), tmp_path)
    assert TableQuery("keyed", "tally", "count").open(edited).read_all(StateReader()) == table_of(
        made[0], "count"
    )


def test_an_edit_says_who_made_it_of_what_and_why(made: Made, tmp_path: Path) -> None:
    rows = table_of(made[0], "count").to_pylist()
    rows = [one for one in rows if one["key"] != 4] + [{"key": 9, "value": 1}]
    rows = [one | {"value": one["value"] + (one["key"] == 0)} for one in rows]
    new = pa.table({"key": [one["key"] for one in rows], "value": [one["value"] for one in rows]})
    written = write(editor_of(made).replace(UID, "count", new), tmp_path)
    edit = load_snapshot(written.uri, made[1]).metadata.edit
    assert edit is not None
    assert (edit.parent_uri, edit.parent_checkpoint_id) == (made[0].uri, 7)
    assert (edit.author, edit.reason) == ("tester", "a test")
    (change,) = edit.changes
    assert (change.row_count_before, change.row_count) == (6, 6)
    assert (change.added_count, change.changed_count, change.removed_count) == (1, 1, 1)


def test_an_edited_savepoint_stands_alone(tmp_path: Path) -> None:
    own = settings_in(tmp_path, **FILES)
    parent = savepoint(tmp_path / "parent", own)
    counts = counts_of(parent)
    edited = write(SavepointEditor(parent, own).remove(UID, "words"), tmp_path)
    shutil.rmtree(parent.uri)
    (tmp_path / "edited").rename(tmp_path / "moved")
    assert counts_of(load_snapshot(str(tmp_path / "moved"), own)) == counts
    assert edited.metadata.kind is SnapshotKind.SAVEPOINT


def test_what_is_edited_of_a_native_savepoint_of_the_heap_is_canonical(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    made = savepoint(tmp_path / "made", own).metadata
    native = msgspec.structs.replace(made, kind=SnapshotKind.NATIVE_SAVEPOINT_TERMINATE)
    parent = publish_metadata(native, str(tmp_path / "parent"), metadata_key(own))
    edited = write(SavepointEditor(parent, own).remove(UID, "words"), tmp_path)
    assert edited.metadata.kind is SnapshotKind.SAVEPOINT_TERMINATE


VALID = pa.table({"key": [1, 2], "value": [1, 2]})
WRONG = {
    "twice": (
        "count",
        pa.table({"key": [1, 2, 1], "value": [1, 2, 3]}),
        "row {'key_group': 6, 'key': 1, 'value': 3} occurs twice: key must differ",
    ),
    "no key": (
        "count",
        pa.table({"key": [1, None], "value": [1, 2]}),
        "row {'key': None, 'value': 2} has no key",
    ),
    "key group": (
        "count",
        pa.table({"key_group": pa.array([6, 7], pa.int32()), "key": [1, 2], "value": [1, 2]}),
        "belongs to key group",
    ),
    "gap": (
        "events",
        pa.table({"key": [1], "list_pos": pa.array([1], pa.int32()), "value": ["x"]}),
        "row {'key_group': 6, 'key': 1, 'list_pos': 1, 'value': 'x'} has list_pos 1, but 0 is next",
    ),
    "map key twice": (
        "words",
        pa.table({"key": [1, 1], "map_key": ["x", "x"], "value": pa.array([1, 2], pa.int32())}),
        "occurs twice: key, map_key must differ",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_is_refused_and_shown(made: Made, tmp_path: Path, case: str) -> None:
    state, rows, said = WRONG[case]
    with pytest.raises(EditRefusedError) as refused:
        write(editor_of(made).replace(UID, state, rows), tmp_path)
    assert said in str(refused.value)
    assert not (tmp_path / "edited").exists()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"key": [1]}), "'value' is missing"),
        (
            pa.table({"key": [1], "value": [1], "note": ["x"]}),
            "'note' is not a column of the state",
        ),
        (pa.table({"key": [1], "value": [1.5]}), "'value' is double and was stored as int64"),
        (pa.table({"key": ["1"], "value": [1]}), "'key' is string and was stored as int64"),
    ],
)
def test_rows_of_other_columns_are_refused(
    made: Made, tmp_path: Path, rows: pa.Table, said: str
) -> None:
    with pytest.raises(StateSchemaError) as refused:
        write(editor_of(made).replace(UID, "count", rows), tmp_path)
    assert said in str(refused.value)


def test_two_timers_of_one_key_and_time_are_refused(made: Made, tmp_path: Path) -> None:
    timers = table_of(made[0], None, "timers")
    doubled = pa.concat_tables([timers, timers.slice(0, 1)])
    with pytest.raises(EditRefusedError, match="service, domain, ts, key must differ"):
        write(editor_of(made).replace(UID, None, doubled, StateTable.TIMERS), tmp_path)


def test_positions_of_sources_are_not_edited(made: Made, tmp_path: Path) -> None:
    with pytest.raises(StateProcessorError, match="an edit could break exactly-once"):
        write(editor_of(made).replace(UID, None, VALID, StateTable.SPLITS), tmp_path)


def test_an_edit_never_goes_into_a_folder_with_files(made: Made) -> None:
    before = sorted(Path(made[0].uri).iterdir())
    assert before
    with pytest.raises(StateProcessorError, match="is not empty"):
        editor_of(made).remove(UID, "words").write(made[0].uri, reason="in place")
    assert sorted(Path(made[0].uri).iterdir()) == before


@pytest.mark.parametrize(
    ("table", "error"),
    [(StateTable.NATIVE, NativeStateError), (StateTable.CHANNELS, InFlightRecordsError)],
)
def test_snapshots_with_state_that_has_no_rows_are_not_edited(
    made: Made, tmp_path: Path, table: StateTable, error: type[StateProcessorError]
) -> None:
    chunk = StateChunk(table, "x", 0, inside(b"no rows"), (0, 15))
    parent = saved(
        tmp_path / "parent", made[1], [OperatorSubtaskState((chunk,))], SnapshotKind.CHECKPOINT
    )
    with pytest.raises(error, match=r"^take a (canonical )?savepoint"):
        write(SavepointEditor(parent, made[1]).remove(UID), tmp_path)


def test_keys_that_are_pickles_are_edited_by_those_only_who_say_so(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    pickled = Types.PICKLED_BYTE_ARRAY()
    parent = savepoint(tmp_path / "parent", own, [("a", 1), ("b", 2)], pickled)
    rows = table_of(parent, "count")
    with pytest.raises(PickledKeysError, match="allow_pickles=True"):
        write(SavepointEditor(parent, own).replace(UID, "count", rows), tmp_path)
    editor = SavepointEditor(parent, own, allow_pickles=True).replace(UID, "count", rows)
    assert table_of(write(editor, tmp_path), "count") == rows


_EDITS = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 9), st.integers(-5, 5)),
    st.tuples(st.just("delete"), st.integers(0, 9), st.just(0)),
)


@pytest.mark.slow
@settings(max_examples=12)
@given(edits=st.lists(_EDITS, min_size=1, max_size=3))
def test_random_edits_leave_what_a_dict_with_the_same_edits_holds(
    made: Made, tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, int, int]]
) -> None:
    model = counts_of(made[0])
    others = set(model)  # keys of the other states, which only deletions change
    editor = editor_of(made)
    for what, key, value in edits:
        if what == "set":
            model[key] = value
            rows = pa.table(
                {
                    "key": pa.array(model.keys(), pa.int64()),
                    "value": pa.array(model.values(), pa.int64()),
                }
            )
            editor.replace(UID, "count", rows)
        elif key in others or key in model:
            model.pop(key, None)
            others.discard(key)
            editor.remove_keys(UID, [key])
    task: Subtask = restored(write(editor, tmp_path_factory.mktemp("edited")), made[1])
    found: dict[int, int] = {}
    for key in range(10):
        task.backend.set_current_key(key)
        value = task.handles["count"].value()
        if value is not None:
            found[key] = value
    assert found == model


def test_what_is_edited_is_not_deleted_meanwhile(tmp_path: Path) -> None:
    own = settings_in(tmp_path, **FILES)
    parent = savepoint(tmp_path / "job" / "chk-7", own)
    holders: list[str] = []

    def look(target: EditTarget, context: EditContext) -> WrittenRows:
        holders.extend(one.holder for one in live_leases(parent.uri, SystemClock().now_ms()))
        return rows_of_table(table_of(parent, "count"))(target, context)

    editor = SavepointEditor(parent, own).replace_from(UID, "count", look, StateTable.KEYED)
    editor.write(str(tmp_path / "edited"), reason="a test")
    assert [one.split()[0] for one in holders] == ["process"]
    assert live_leases(parent.uri, SystemClock().now_ms()) == []
    shutil.rmtree(parent.uri)
    with pytest.raises(SnapshotSubsumedError):
        SavepointEditor(parent, own).write(str(tmp_path / "again"), reason="a test")


@pytest.mark.parametrize("max_parallelism", [1, 3, 16, 40])
def test_every_row_moves_to_the_key_group_of_its_key(tmp_path: Path, max_parallelism: int) -> None:
    own = settings_in(tmp_path)
    parent = savepoint(tmp_path / "parent", own, range(40))
    editor = SavepointEditor(parent, own).with_max_parallelism(UID, max_parallelism)
    edited = write(editor, tmp_path)
    (operator,) = edited.metadata.operators
    assert operator.max_parallelism == max_parallelism
    for table, state in TABLES:
        before, after = table_of(parent, state, table), table_of(edited, state, table)
        groups = key_groups_of(hash_array(after.column("key").combine_chunks()), max_parallelism)
        assert after.column("key_group").to_pylist() == groups.tolist()
        rows = [table.drop_columns(["key_group"]).to_pylist() for table in (before, after)]
        assert sorted(map(repr, rows[0])) == sorted(map(repr, rows[1]))
    for index, held in operator.subtasks.items():
        owned = key_group_range(index, operator.parallelism, max_parallelism)
        assert all(group in owned for one in held.chunks for group in one.key_groups or ())


def test_another_max_parallelism_needs_keys(made: Made, tmp_path: Path) -> None:
    for wrong in (0, 40_000):
        with pytest.raises(StateProcessorError, match=f"{wrong} is not a valid max parallelism"):
            SavepointEditor(*made).with_max_parallelism(UID, wrong)
    emptied = SavepointEditor(*made).remove(UID).with_max_parallelism(UID, 4)
    with pytest.raises(UnknownStateError, match="has no keyed state"):
        write(emptied, tmp_path)
    pickled = savepoint(
        tmp_path / "pickled", made[1], [("a", 1), ("b", 2)], Types.PICKLED_BYTE_ARRAY()
    )
    with pytest.raises(PickledKeysError):
        write(SavepointEditor(pickled, made[1]).with_max_parallelism(UID, 4), tmp_path)
    loading = SavepointEditor(pickled, made[1], allow_pickles=True).with_max_parallelism(UID, 4)
    groups = table_of(write(loading, tmp_path, "loaded"), "count").column("key_group").to_pylist()
    assert groups == sorted(key_groups_of(hash_keys([("a", 1), ("b", 2)]), 4).tolist())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("tables", [(), TABLES], ids=["not edited", "replaced by the same"])
def test_a_savepoint_written_without_a_change_is_stored_again_byte_by_byte(
    tmp_path: Path, backend: str, tables: tuple[tuple[str, str], ...]
) -> None:
    """Restored with no input, and stored again: but for names of files nothing is another."""
    own = settings_in(tmp_path, **{"state.backend.type": backend})
    parent = savepoint(tmp_path / "parent", own, range(20))
    editor = SavepointEditor(parent, own)
    for table, state in tables:
        editor.replace(UID, state, table_of(parent, state, table), StateTable(table))
    edited = write(editor, tmp_path)
    (operator,) = edited.metadata.operators
    chunks = tuple(one for held in operator.subtasks.values() for one in held.chunks)
    again: list[OperatorSubtaskState] = []
    for index in range(operator.parallelism):
        task = Subtask(own, index, 2, restored=OperatorSubtaskState(chunks), scratch=str(tmp_path))
        again.append(task.snapshot(storage_of(tmp_path / "again", own)))
        task.backend.close()
    (before,) = parent.metadata.operators
    assert _digests(again) == _digests([before.subtasks[index] for index in range(2)])
    assert len(_digests(again)) == 8


def _digests(states: list[OperatorSubtaskState]) -> dict[tuple[int, str, str], bytes]:
    return {
        (index, one.table.value, one.name): one.file.digest
        for index, held in enumerate(states)
        for one in held.chunks
    }
