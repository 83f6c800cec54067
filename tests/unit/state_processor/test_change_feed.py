"""Changes between two checkpoints: applied to the first they give the second, whatever happened in between."""

import pickle
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.checkpoint.handles import OperatorSubtaskState, StateFile
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range
from headrace.core.types.type_info import Types
from headrace.functions.process import TimeDomain
from headrace.state_processor.change_feed import CHANGE_TYPE, ChangeFeed
from headrace.state_processor.edited_rows import identity_columns
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.key_hashing import hashable_rows
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.stored_state import stored_state
from headrace.state_processor.table_query import STATE_TABLES, TableQuery
from tests.unit.state_processor.saved import (
    FILES,
    MAX_PARALLELISM,
    UID,
    Subtask,
    group_of,
    saved,
    settings_in,
    storage_of,
)

TABLES = (("keyed", "count"), ("keyed", "events"), ("keyed", "words"), ("timers", "timers"))
KEYS = range(8)
Contents = dict[int, tuple[int, tuple[str, ...], dict[str, int], frozenset[int]]]
"""By key: count, events, words and times of timers."""


def checkpoint(
    folder: Path, own: Settings, contents: Contents, parallelism: int
) -> CompletedCheckpoint:
    """A checkpoint of so many subtasks that hold this."""
    writer = storage_of(folder, own)
    states: list[OperatorSubtaskState] = []
    for index in range(parallelism):
        task = Subtask(own, index, parallelism, scratch=str(folder))
        groups = key_group_range(index, parallelism, MAX_PARALLELISM)
        for key, (count, events, words, times) in contents.items():
            if group_of(key, Types.LONG()) not in groups:
                continue
            task.backend.set_current_key(key)
            task.handles["count"].update(count)
            task.handles["events"].add_all(list(events))
            task.handles["words"].put_all(words)
            for time_ms in times:
                task.timers.register(TimeDomain.EVENT_TIME, time_ms)
        states.append(task.snapshot(writer))
        task.backend.close()
    return saved(folder, own, states)


def rows_of(snapshot: CompletedCheckpoint, table: str, state: str) -> pa.Table | None:
    try:
        return TableQuery(table, UID, state).open(snapshot).read_all(StateReader())
    except UnknownStateError:
        return None


def applied(
    changes: pa.Table, rows: pa.Table | None, identity: Sequence[str]
) -> dict[Hashable, Any]:
    """The rows by identity once the changes have happened to them; each change must be one that can happen."""
    names = [one for one in changes.column_names if one not in (CHANGE_TYPE, "key_group")]
    found: dict[Hashable, Any] = {}
    if rows is not None:
        found = dict(zip(hashable_rows(rows, identity), hashable_rows(rows, names), strict=True))
    kinds = changes.column(CHANGE_TYPE).to_pylist()
    new = zip(kinds, hashable_rows(changes, identity), hashable_rows(changes, names), strict=True)
    for kind, key, value in new:
        match kind:
            case "insert":
                assert key not in found
                found[key] = value
            case "update":
                assert found[key] != value
                found[key] = value
            case _:
                assert found.pop(key) == value
    return found


def check_feed(before: CompletedCheckpoint, after: CompletedCheckpoint) -> None:
    for table, state in TABLES:
        rows, wanted = rows_of(before, table, state), rows_of(after, table, state)
        if rows is None and wanted is None:
            continue
        identity = identity_columns(
            stored_state(
                (before if wanted is None else after).metadata, STATE_TABLES[table], UID, state
            )
        )
        changes = ChangeFeed.open(before, after, table, UID, state).read_all(StateReader())
        none = changes.slice(0, 0)
        assert applied(changes, rows, identity) == applied(none, wanted, identity)


CONTENTS: st.SearchStrategy[Contents] = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(
        st.integers(-2, 2),
        st.lists(st.sampled_from("ab"), max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2), max_size=2),
        st.frozensets(st.integers(1, 3), max_size=2),
    ),
    max_size=6,
)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8
)
@given(
    before=CONTENTS, after=CONTENTS, parallelisms=st.tuples(st.integers(1, 3), st.integers(1, 3))
)
def test_changes_applied_to_the_first_give_the_second(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    before: Contents,
    after: Contents,
    parallelisms: tuple[int, int],
) -> None:
    folder = tmp_path_factory.mktemp("feed")
    own = settings_in(folder, **{"state.backend.type": backend})
    first = checkpoint(folder / "chk-7", own, before, parallelisms[0])
    second = checkpoint(folder / "chk-8", own, after, parallelisms[1])
    check_feed(first, second)


class CountingReader(StateReader):
    """Remembers what was read."""

    def __init__(self) -> None:
        self.files: list[StateFile] = []

    def read(self, file: StateFile) -> memoryview:
        self.files.append(file)
        return super().read(file)


def whole(count_of_three: int) -> Contents:
    return {
        key: (key if key != 3 else count_of_three, ("a",), {"x": 1}, frozenset({1})) for key in KEYS
    }


def test_only_files_that_differ_are_read(tmp_path: Path) -> None:
    own = settings_in(tmp_path, **FILES)
    before = checkpoint(tmp_path / "chk-7", own, whole(3), 2)
    after = checkpoint(tmp_path / "chk-8", own, whole(33), 2)
    reader = CountingReader()
    (change,) = ChangeFeed.open(before, after, "keyed", UID, "count").read_all(reader).to_pylist()
    group = group_of(3, Types.LONG())
    assert change == {"change_type": "update", "key_group": group, "key": 3, "value": 33}
    assert len(reader.files) == 2  # of the four files the subtask's that has the key
    assert ChangeFeed.open(before, after, "keyed", UID, "words").parts == ()


def test_questions_without_an_answer_are_refused(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    made = checkpoint(tmp_path / "chk-7", own, whole(3), 1)
    with pytest.raises(
        UnknownStateError, match="changes of the table 'operators' cannot be computed"
    ):
        ChangeFeed.open(made, made, "operators")
    with pytest.raises(UnknownStateError, match="no state 'other'"):
        ChangeFeed.open(made, made, "keyed", UID, "other")
    metadata = msgspec.structs.replace(made.metadata, checkpoint_id=8)
    later = CompletedCheckpoint(metadata, made.uri)
    with pytest.raises(StateProcessorError, match="8 is later than 7"):
        ChangeFeed.open(later, made, "keyed", UID, "count")


def test_keys_in_other_key_groups_are_the_same_keys(tmp_path: Path) -> None:
    own = settings_in(tmp_path)
    before = checkpoint(tmp_path / "chk-7", own, whole(3), 2)
    editor = SavepointEditor(before, own).with_max_parallelism(UID, 5)
    after = editor.write(str(tmp_path / "edited"), reason="a test")
    for table, state in TABLES:
        feed = ChangeFeed.open(before, after, table, UID, state)
        assert len(feed.parts) == 1
        assert feed.read_all(StateReader()).num_rows == 0
    replaced = editor.remove_keys(UID, [3]).write(str(tmp_path / "without"), reason="a test")
    (gone,) = (
        ChangeFeed.open(before, replaced, "keyed", UID, "count").read_all(StateReader()).to_pylist()
    )
    assert (gone["change_type"], gone["key"]) == ("delete", 3)


@pytest.mark.parametrize("max_parallelism", [1, 2, 3])
def test_all_key_groups_are_compared_where_subtasks_outnumber_them(
    tmp_path: Path, max_parallelism: int
) -> None:
    own = settings_in(tmp_path)
    made = checkpoint(tmp_path / "chk-7", own, whole(3), 5)
    editor = SavepointEditor(made, own).with_max_parallelism(UID, max_parallelism)
    before = editor.write(str(tmp_path / "fewer"), reason="a test")
    editor = SavepointEditor(before, own).remove_keys(UID, list(KEYS))
    after = editor.write(str(tmp_path / "none"), reason="a test")
    changes = ChangeFeed.open(before, after, "keyed", UID, "count").read_all(StateReader())
    assert sorted(changes.column("key").to_pylist()) == list(KEYS)


def test_values_that_are_no_numbers_are_equal_also_behind_another_process() -> None:
    ratios = pa.array([float("nan"), None, 1.5])
    nested = pa.array([{"x": [float("nan"), 2.0]}, None, {"x": [1.0]}])
    rows = pa.table({"ratio": ratios, "nested": nested})
    found = hashable_rows(rows, ["ratio", "nested"])
    assert found == hashable_rows(rows, ["ratio", "nested"])
    assert pickle.loads(pickle.dumps(found)) == found
    assert len(set(found)) == 3
