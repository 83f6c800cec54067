"""Open windows in edited savepoints: none is left that no timer would clear, or that nobody can find."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateFile, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.functions.specs.operator_specs import WindowSpec
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from headrace.functions.windowing.triggers import CountTrigger, PurgingTrigger
from headrace.state_processor.errors import EditRefusedError
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.window_edits import check_windows
from headrace.testing.operator_harness import HARNESS_KEY_GROUPS, OperatorHarness, Rows
from tests.unit.state_processor.saved import UID, saved, settings_in
from tests.unit.state_processor.window_rows import LATENESS_MS, Listed, rows


def open_windows(
    folder: Path, assigner: Any, trigger: Any = None
) -> tuple[CompletedCheckpoint, Settings]:
    """A savepoint of windows that a job has left open: those of the keys 0 and 1."""
    spec = WindowSpec(assigner, trigger, LATENESS_MS, None, None, Listed(), is_keyed=True)
    harness = OperatorHarness(
        spec, input_types=[Types.LONG()], keys=[lambda one: one % 2], key_type=Types.LONG()
    )
    harness.perform(Rows([2, 3, 4, 5], [1, 2, 7, 40]))
    own = settings_in(folder)
    states = [harness.snapshot()]
    return saved(folder / "savepoint", own, states, max_parallelism=HARNESS_KEY_GROUPS), own


def write(
    made: tuple[CompletedCheckpoint, Settings], state: str | None, table: str, new: pa.Table
) -> CompletedCheckpoint:
    tables = {"keyed": StateTable.KEYED, "timers": StateTable.TIMERS}
    editor = SavepointEditor(*made).replace(UID, state, new, tables[table])
    return editor.write(str(Path(made[0].uri).parent / "edited"), reason="a test")


ASSIGNERS = pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows(10, 0), EventTimeSessionWindows(5)]
)


@ASSIGNERS
def test_what_a_job_has_written_passes(tmp_path: Path, assigner: Any) -> None:
    made = open_windows(tmp_path, assigner)
    contents = rows(made[0], "window-contents")
    assert rows(write(made, "window-contents", "keyed", contents), "window-contents") == contents


@ASSIGNERS
def test_a_window_without_a_timer_that_clears_it_is_refused(tmp_path: Path, assigner: Any) -> None:
    made = open_windows(tmp_path, assigner)
    timers = rows(made[0], None, "timers")
    of_one = timers.filter(pa.array([one != 1 for one in timers.column("key").to_pylist()]))
    with pytest.raises(EditRefusedError, match=r"row .*'key': 1.* is a window without a timer at"):
        write(made, None, "timers", of_one)
    early = timers.set_column(
        timers.column_names.index("ts"), "ts", pa.array(range(-timers.num_rows, 0), pa.int64())
    )
    with pytest.raises(EditRefusedError, match=r"without a timer at .* or later"):
        write(made, None, "timers", early)


def test_contents_that_are_moved_to_another_window_need_its_timer(tmp_path: Path) -> None:
    made = open_windows(tmp_path, TumblingEventTimeWindows(10, 0))
    contents = rows(made[0], "window-contents").to_pylist()
    for one in contents:
        one["namespace"] = {"start": 90, "end": 100}
    moved = pa.Table.from_pylist(contents[:1], schema=rows(made[0], "window-contents").schema)
    with pytest.raises(EditRefusedError, match=r"'start': 90.*without a timer at 99 or later"):
        write(made, "window-contents", "keyed", moved)


def test_sessions_and_their_contents_know_of_each_other(tmp_path: Path) -> None:
    made = open_windows(tmp_path, EventTimeSessionWindows(5))
    for state, said in (
        ("merging-window-set", "is not the state window of any window"),
        ("window-contents", "has a state window without contents in 'window-contents'"),
    ):
        whole = rows(made[0], state)
        with pytest.raises(EditRefusedError, match=said):
            write(made, state, "keyed", whole.slice(1))


def test_windows_without_an_end_need_no_timer(tmp_path: Path) -> None:
    made = open_windows(tmp_path, GlobalWindows(), CountTrigger(9))
    contents = rows(made[0], "window-contents")
    assert contents.num_rows == 4
    write(made, "window-contents", "keyed", contents.slice(0, 1))


def test_keys_are_deleted_with_their_windows(tmp_path: Path) -> None:
    made = open_windows(tmp_path, EventTimeSessionWindows(5))
    editor = SavepointEditor(*made).remove_keys(UID, [1])
    edited = editor.write(str(tmp_path / "edited"), reason="a test")
    assert set(rows(edited, "window-contents").column("key").to_pylist()) == {0}


def test_sessions_that_are_purged_go_to_another_uid(tmp_path: Path) -> None:
    made = open_windows(tmp_path, EventTimeSessionWindows(5), PurgingTrigger.of(CountTrigger(1)))
    assert rows(made[0], "merging-window-set").num_rows
    assert "window-contents" not in {
        chunk.name
        for operator in made[0].metadata.operators
        for held in operator.subtasks.values()
        for chunk in held.chunks
    }
    editor = SavepointEditor(*made).rename_operator(UID, "other")
    edited = editor.write(str(tmp_path / "edited"), reason="a test")
    assert [one.uid for one in edited.metadata.operators] == ["other"]


class _Noted(StateReader):
    """Notes what is read."""

    def __init__(self) -> None:
        self.files: list[StateFile] = []

    def read(self, file: StateFile) -> memoryview:
        self.files.append(file)
        return super().read(file)


def with_subtasks(
    metadata: CheckpointMetadata, *subtasks: OperatorSubtaskState
) -> CheckpointMetadata:
    (operator,) = metadata.operators
    changed = msgspec.structs.replace(
        operator, parallelism=len(subtasks), subtasks=dict(enumerate(subtasks))
    )
    return msgspec.structs.replace(metadata, operators=(changed,))


def test_windows_of_which_nothing_changed_are_not_read(tmp_path: Path) -> None:
    made, _ = open_windows(tmp_path / "one", EventTimeSessionWindows(5))
    others, _ = open_windows(tmp_path / "other", EventTimeSessionWindows(6))
    held, other = (one.metadata.operators[0].subtasks[0] for one in (made, others))
    before = with_subtasks(made.metadata, held, held)
    (operator,) = before.operators
    renamed = msgspec.structs.replace(operator, operator_id=b"x" * 16, uid="other")
    reader = _Noted()
    moved = msgspec.structs.replace(before, operators=(renamed,))
    check_windows(before, moved, reader)
    assert reader.files == []
    check_windows(before, with_subtasks(moved, held, other), reader)
    assert {one.digest for one in reader.files} == {one.file.digest for one in other.chunks}
    assert not {one.file.digest for one in other.chunks} & {one.file.digest for one in held.chunks}


def test_a_window_without_a_timer_is_found_in_the_last_subtask(tmp_path: Path) -> None:
    made, _ = open_windows(tmp_path, TumblingEventTimeWindows(10, 0))
    held = made.metadata.operators[0].subtasks[0]
    timerless = tuple(one for one in held.chunks if one.table is not StateTable.TIMERS)
    edited = with_subtasks(made.metadata, held, OperatorSubtaskState(timerless))
    with pytest.raises(EditRefusedError, match="without a timer at"):
        check_windows(with_subtasks(made.metadata, held, held), edited, StateReader())
    already = with_subtasks(made.metadata, OperatorSubtaskState(timerless), held)
    check_windows(already, edited, StateReader())
