"""Tables of a savepoint: every row of every kind of state, and which files a condition leaves out."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.errors import (
    CheckpointCorruptedError,
    MetadataAuthenticationError,
    MetadataMissingError,
)
from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.state_processor.errors import NativeStateError, StateProcessorError, UnknownStateError
from headrace.state_processor.json_values import keys_in_text
from headrace.state_processor.selection import open_snapshot
from headrace.state_processor.table_query import (
    TableQuery,
    key_groups_in_text,
)
from tests.unit.checkpoint.snapshots import inside
from tests.unit.state_processor.saved import (
    FILES,
    MAX_PARALLELISM,
    UID,
    Subtask,
    saved,
    savepoint,
    settings_in,
    storage_of,
)


def rows(snapshot: CompletedCheckpoint, **query: Any) -> list[dict[str, Any]]:
    return TableQuery(**query).open(snapshot).read_all(StateReader()).to_pylist()


def without_groups(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: one[name] for name in one if name != "key_group"} for one in found]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompletedCheckpoint, Settings]:
    folder = tmp_path_factory.mktemp("saved")
    settings = settings_in(folder)
    return savepoint(folder / "savepoint", settings), settings


def one_subtask(folder: Path, settings: Settings) -> Subtask:
    return Subtask(settings, scratch=str(folder))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_kind_of_state_is_a_table(tmp_path: Path, backend: str) -> None:
    settings = settings_in(tmp_path, **{"state.backend.type": backend})
    task = one_subtask(tmp_path, settings)
    task.backend.set_current_key(5)
    task.handles["count"].update(42)
    task.handles["user"].update(Row(name="Ada", age=36))
    task.handles["events"].add_all(["in", "out"])
    task.handles["words"].put_all({"x": 1})
    writer = storage_of(tmp_path / "savepoint", settings)
    snapshot = saved(tmp_path / "savepoint", settings, [task.snapshot(writer)])
    task.backend.close()
    assert without_groups(rows(snapshot, state="count")) == [{"key": 5, "value": 42}]
    assert without_groups(rows(snapshot, state="user")) == [
        {"key": 5, "value": {"name": "Ada", "age": 36}}
    ]
    assert without_groups(rows(snapshot, state="events")) == [
        {"key": 5, "list_pos": 0, "value": "in"},
        {"key": 5, "list_pos": 1, "value": "out"},
    ]
    assert without_groups(rows(snapshot, state="words")) == [{"key": 5, "map_key": "x", "value": 1}]


def test_timers_are_a_table(made: tuple[CompletedCheckpoint, Settings]) -> None:
    found = without_groups(rows(made[0], table="timers"))
    assert len(found) == 6
    assert {"service": "timers", "domain": "event", "ts": 1_000, "key": 0} in found


def test_operators_are_listed_with_their_states(
    made: tuple[CompletedCheckpoint, Settings],
) -> None:
    (operator,) = rows(made[0], table="operators")
    assert (operator["uid"], operator["parallelism"], operator["rows"]) == (UID, 2, 36)
    kinds = {(one["name"], one["kind"], one["rows"]) for one in operator["states"]}
    assert kinds == {
        ("count", "value", 6),
        ("events", "list", 12),
        ("words", "map", 12),
        ("timers", None, 6),
    }


@pytest.mark.parametrize("named", [UID, "count words"])
def test_an_operator_is_found_by_uid_name_and_id(
    made: tuple[CompletedCheckpoint, Settings], named: str
) -> None:
    by_id = made[0].metadata.operators[0].operator_id.hex()
    assert rows(made[0], operator=named, state="count") == rows(
        made[0], operator=by_id, state="count"
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"operator": "other"}, "no operator 'other': choose from 'count words' (uid 'counter')"),
        ({"state": "other"}, "no state 'other' among its keyed state: choose from count, events"),
        (
            {},
            "has several states among its keyed state: choose from count, events, words",
        ),
        ({"table": "windows"}, "no operator has columnar window state"),
        ({"table": "rows"}, "snapshots have no table 'rows': choose from items, keyed"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    made: tuple[CompletedCheckpoint, Settings], query: dict[str, str], said: str
) -> None:
    with pytest.raises(UnknownStateError) as refused:
        rows(made[0], **query)
    assert said in str(refused.value)


@given(st.lists(st.integers(-3, 8), min_size=1, max_size=3))
def test_reading_some_keys_gives_what_a_scan_and_a_filter_give(
    made: tuple[CompletedCheckpoint, Settings], keys: list[int]
) -> None:
    for name in ("count", "events", "words"):
        scanned = [one for one in rows(made[0], state=name) if one["key"] in keys]
        assert rows(made[0], state=name, keys=tuple(keys)) == scanned


@given(st.frozensets(st.integers(0, MAX_PARALLELISM - 1)))
def test_reading_some_key_groups_gives_what_a_scan_and_a_filter_give(
    made: tuple[CompletedCheckpoint, Settings], groups: frozenset[int]
) -> None:
    scanned = [one for one in rows(made[0], state="events") if one["key_group"] in groups]
    assert rows(made[0], state="events", key_groups=groups) == scanned


def test_files_of_other_key_groups_are_no_parts(
    made: tuple[CompletedCheckpoint, Settings],
) -> None:
    assert len(TableQuery(state="count").open(made[0]).parts) == 2
    low = frozenset(range(MAX_PARALLELISM // 2))
    (part,) = TableQuery(state="count", key_groups=low).open(made[0]).parts
    assert part.chunk is not None
    assert part.chunk.subtask_index == 0


def test_key_groups_are_written_as_numbers_and_ranges() -> None:
    assert key_groups_in_text("3, 7-9,15") == {3, 7, 8, 9, 15}


@pytest.mark.parametrize("text", ["", "3-", "a", "-1", "1;2", "9" * 5000, "1-" + "9" * 5000, "٣"])
def test_a_text_that_is_no_list_of_key_groups_is_refused(text: str) -> None:
    with pytest.raises(StateProcessorError, match="is not a list of key groups"):
        key_groups_in_text(text)


def test_keys_of_another_type_are_refused(made: tuple[CompletedCheckpoint, Settings]) -> None:
    assert keys_in_text('["x"]') == ("x",)
    with pytest.raises(StateProcessorError, match="has keys of int64"):
        rows(made[0], state="count", keys=("x",))


@pytest.mark.parametrize("text", ["{}", "[" * 200_000, "9" * 5000, "\udcff"])
def test_a_text_that_is_no_list_of_keys_is_refused_briefly(text: str) -> None:
    with pytest.raises(StateProcessorError, match="is not a JSON list of keys") as refused:
        keys_in_text(text)
    assert len(str(refused.value)) < 200


def test_nothing_of_a_snapshot_of_another_key_is_read(
    made: tuple[CompletedCheckpoint, Settings], tmp_path: Path
) -> None:
    other = Settings({KEY_FILE.key: str(tmp_path / "other-key")})
    with pytest.raises(MetadataAuthenticationError):
        open_snapshot(made[0].uri, other)


def test_a_file_that_was_changed_is_not_read(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, **FILES)
    snapshot = savepoint(tmp_path / "savepoint", settings)
    (file,) = [one for one in snapshot.metadata.files() if "task-keyed-count" in one.uri][:1]
    content = bytearray(Path(file.uri).read_bytes())
    content[10] ^= 1
    Path(file.uri).write_bytes(content)
    with pytest.raises(CheckpointCorruptedError):
        rows(snapshot, state="count")


def test_checkpoints_of_a_job_are_chosen_by_id(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    for number in (8, 9, 10):
        savepoint(tmp_path / "job" / f"chk-{number}", settings)
    (tmp_path / "job" / "chk-11").mkdir()
    job = str(tmp_path / "job")
    assert open_snapshot(job, settings).uri.endswith("chk-10")
    assert open_snapshot(job, settings, "9").uri.endswith("chk-9")
    with pytest.raises(UnknownStateError, match=r"checkpoint 7 .* subsumed: choose from 8, 9, 10"):
        open_snapshot(job, settings, "7")
    with pytest.raises(MetadataMissingError):
        open_snapshot(str(tmp_path / "nowhere"), settings)


def test_files_of_rocksdb_are_told_to_need_a_savepoint(tmp_path: Path) -> None:
    native = StateChunk(StateTable.NATIVE, "rocksdb", 0, inside(b"a table of RocksDB"), (0, 15))
    snapshot = saved(tmp_path, settings_in(tmp_path), [OperatorSubtaskState((native,))])
    for table in ("keyed", "timers"):
        with pytest.raises(
            NativeStateError, match=r"^take a canonical savepoint and use that: operator"
        ):
            rows(snapshot, table=table)


def test_pickles_are_bytes_until_somebody_asks_for_more(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    pickled = Types.PICKLED_BYTE_ARRAY()
    snapshot = savepoint(tmp_path / "savepoint", settings, [("a", 1)], pickled)
    (raw,) = rows(snapshot, state="count")
    assert isinstance(raw["key"], bytes)
    (shown,) = rows(snapshot, state="count", loads_pickles=True)
    assert (shown["key"], shown["value"]) == ("('a', 1)", 0)
