"""Timers that an edit derives: those that a job would have set for its open windows, and no others."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.checkpoint.handles import OperatorSubtaskState, StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.core.config import Settings
from headrace.core.elements import MAX_WATERMARK
from headrace.core.types.type_info import Types
from headrace.functions.specs.operator_specs import WindowSpec
from headrace.functions.windowing.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headrace.functions.windowing.triggers import CountTrigger
from headrace.spark.state_writer import StateWriter
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.testing.operator_harness import HARNESS_KEY_GROUPS, OperatorHarness, Rows
from tests.unit.state.entries import total_entry_count
from tests.unit.state_processor.saved import UID, saved, settings_in
from tests.unit.state_processor.window_rows import LATENESS_MS, Listed, rows

VALUES, TIMES = [2, 3, 4, 5, 6, 9], [1, 2, 7, 40, 3, 33]


def harness(assigner: Any, lateness_ms: int, trigger: Any = None) -> OperatorHarness:
    spec = WindowSpec(assigner, trigger, lateness_ms, None, None, Listed(), is_keyed=True)
    return OperatorHarness(
        spec,
        input_types=[Types.LONG()],
        keys=[lambda one: one % 4],
        key_type=Types.LONG(),
        start_ms=11,
    )


def savepoint(
    folder: Path, assigner: Any, lateness_ms: int = LATENESS_MS, trigger: Any = None
) -> tuple[CompletedCheckpoint, Settings]:
    """A savepoint of windows that two subtasks have left open."""
    own = settings_in(folder)
    states: list[OperatorSubtaskState] = []
    whole = harness(assigner, lateness_ms, trigger)
    whole.perform(Rows(VALUES, TIMES))
    merged = whole.snapshot()
    for index in range(2):
        whole.restart(merged, 2, index)
        states.append(whole.snapshot())
    return saved(folder / "savepoint", own, states, max_parallelism=HARNESS_KEY_GROUPS), own


def sorted_rows(table: pa.Table) -> list[str]:
    names = ["service", "domain", "ts", "key_group", "key", "namespace"]
    return sorted(str(one) for one in table.select(names).to_pylist())


def derived(made: tuple[CompletedCheckpoint, Settings], **how: Any) -> CompletedCheckpoint:
    """The savepoint with all its timers taken away, and derived again."""
    editor = SavepointEditor(*made).remove(UID, None, StateTable.TIMERS)
    return editor.derive_window_timers(UID, **how).write(
        str(Path(made[0].uri).parent / "derived"), reason="a test"
    )


ASSIGNERS = {
    "tumbling": (TumblingEventTimeWindows(10, 0), LATENESS_MS),
    "tumbling, none late": (TumblingEventTimeWindows(10, 0), 0),
    "sliding": (SlidingEventTimeWindows(10, 5, 0), LATENESS_MS),
    "sessions": (EventTimeSessionWindows(5), LATENESS_MS),
}


@pytest.mark.parametrize("name", ASSIGNERS)
def test_derived_timers_are_those_that_the_job_had_set(tmp_path: Path, name: str) -> None:
    assigner, lateness_ms = ASSIGNERS[name]
    made = savepoint(tmp_path, assigner, lateness_ms)
    wanted = sorted_rows(rows(made[0], None, "timers"))
    edited = derived(made, allowed_lateness_ms=lateness_ms)
    assert sorted_rows(rows(edited, None, "timers")) == wanted != []
    assert edited.metadata.edit is not None
    change = edited.metadata.edit.changes[-1]
    assert (change.action, change.row_count_before, change.added_count) == (
        "timers derived",
        0,
        len(wanted),
    )


def test_windows_by_the_clock_have_timers_by_the_clock(tmp_path: Path) -> None:
    made = savepoint(tmp_path, TumblingProcessingTimeWindows(10, 0), 0)
    wanted = sorted_rows(rows(made[0], None, "timers"))
    assert sorted_rows(rows(derived(made, is_by_clock=True), None, "timers")) == wanted != []


@pytest.mark.parametrize("name", ASSIGNERS)
def test_a_job_goes_on_from_derived_timers_as_from_its_own(tmp_path: Path, name: str) -> None:
    assigner, lateness_ms = ASSIGNERS[name]
    made = savepoint(tmp_path, assigner, lateness_ms)
    fired: list[Any] = []
    for snapshot in (made[0], derived(made, allowed_lateness_ms=lateness_ms)):
        (operator,) = snapshot.metadata.operators
        chunks = [chunk for state in operator.subtasks.values() for chunk in state.chunks]
        one = harness(assigner, lateness_ms)
        one.restart(OperatorSubtaskState(tuple(chunks)))
        one.finish()
        fired.append(sorted(map(str, one.output.timed_rows)))
        backend: Any = one.operator
        assert total_entry_count(backend._backend) == 0, "all of it was cleared"
    assert fired[0] == fired[1] != []


def test_windows_that_are_written_anew_get_their_timers_and_others_keep_theirs(
    tmp_path: Path,
) -> None:
    made = savepoint(tmp_path, TumblingEventTimeWindows(10, 0))
    before = rows(made[0], None, "timers")
    contents = rows(made[0], "window-contents")
    moved = contents.to_pylist()[0] | {"namespace": {"start": 90, "end": 100}, "list_pos": 0}
    more = pa.concat_tables([contents, pa.Table.from_pylist([moved], schema=contents.schema)])
    editor = SavepointEditor(*made).replace(UID, "window-contents", more)
    editor.derive_window_timers(UID, allowed_lateness_ms=LATENESS_MS)
    edited = editor.write(str(tmp_path / "edited"), reason="a test")
    after = sorted_rows(rows(edited, None, "timers"))
    assert set(sorted_rows(before)) <= set(after)
    new = [
        one
        for one in rows(edited, None, "timers").to_pylist()
        if str(one) not in map(str, before.to_pylist())
    ]
    assert [(one["ts"], one["key"], one["namespace"]["start"]) for one in new] == [
        (99, moved["key"], 90),
        (99 + LATENESS_MS, moved["key"], 90),
    ]
    assert len(after) == len(set(after)), "none occurs twice"


def test_the_end_of_time_is_not_passed(tmp_path: Path) -> None:
    made = savepoint(tmp_path, TumblingEventTimeWindows(10, 0))
    edited = derived(made, allowed_lateness_ms=2**63)
    times = set(rows(edited, None, "timers").column("ts").to_pylist())
    assert max(times) == MAX_WATERMARK


def test_what_has_no_windows_of_time_is_refused(tmp_path: Path) -> None:
    made = savepoint(tmp_path, GlobalWindows(), 0, CountTrigger(9))
    editor = SavepointEditor(*made).derive_window_timers(UID)
    with pytest.raises(UnknownStateError, match="has no time windows"):
        editor.write(str(tmp_path / "edited"), reason="a test")
    with pytest.raises(StateProcessorError, match="-1 ms is not a valid allowed lateness"):
        SavepointEditor(*made).derive_window_timers(UID, allowed_lateness_ms=-1)
    with pytest.raises(StateProcessorError, match="have no allowed lateness"):
        SavepointEditor(*made).derive_window_timers(UID, allowed_lateness_ms=1, is_by_clock=True)


def test_a_state_writer_derives_timers_too(tmp_path: Path) -> None:
    made, _ = savepoint(tmp_path, TumblingEventTimeWindows(10, 0))
    writer = StateWriter.from_(made.uri, key_file=str(tmp_path / "key"))
    writer.remove(UID, table="timers").derive_window_timers(UID, allowed_lateness_ms=LATENESS_MS)
    uri = writer.write(str(tmp_path / "edited"), reason="a test")
    edited = SavepointEditor.open(uri, settings_in(tmp_path))._parent
    assert sorted_rows(rows(edited, None, "timers")) == sorted_rows(rows(made, None, "timers"))
