"""StoredCounts: reading is bounded by bytes and by time, and says when something was left out."""

from pathlib import Path

import pytest
from msgspec import structs

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.clock import ManualClock
from headrace.state_processor.selection import operator_in
from headrace.state_processor.stored_counts import StoredCount, StoredCounts
from headrace.state_processor.stored_state import StoredChunk, chunks_of
from tests.unit.state_processor.saved import UID, savepoint, settings_in


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> CompletedCheckpoint:
    folder = tmp_path_factory.mktemp("saved")
    return savepoint(folder / "savepoint-7", settings_in(Path(folder)))


def chunks(snapshot: CompletedCheckpoint, table: StateTable, name: str) -> list[StoredChunk]:
    found = chunks_of(operator_in(snapshot.metadata, UID), table)
    return [one for one in found if one.chunk.name == name]


STATE_COUNT = 5
"""Four keyed states and timers share bytes and time."""


def counted(
    snapshot: CompletedCheckpoint,
    found: list[StoredChunk],
    *,
    bytes_max: int = 1 << 20,
    time_max_ms: int = 1_000,
) -> StoredCount:
    counts = StoredCounts(
        StateReader(),
        ManualClock(),
        operator_in(snapshot.metadata, UID),
        0,
        bytes_max=bytes_max * STATE_COUNT,
        time_max_ms=time_max_ms,
    )
    return counts.of(found)


def test_all_files_are_read_where_there_is_room_for_them(snapshot: CompletedCheckpoint) -> None:
    found = counted(snapshot, chunks(snapshot, StateTable.KEYED, "count"))
    assert (found.totals.row_count, found.is_partial) == (6, False)


def test_files_beyond_the_room_are_left_out_and_it_says_so(snapshot: CompletedCheckpoint) -> None:
    both = chunks(snapshot, StateTable.KEYED, "count")
    largest = max(one.chunk.file.size_bytes for one in both)
    found = counted(snapshot, both, bytes_max=largest)
    assert found.is_partial
    assert 0 < found.totals.row_count < 6


def test_no_file_is_read_when_the_time_is_over(snapshot: CompletedCheckpoint) -> None:
    found = counted(snapshot, chunks(snapshot, StateTable.KEYED, "count"), time_max_ms=0)
    assert (found.totals.row_count, found.is_partial) == (0, True)


def test_state_without_key_groups_is_not_read(snapshot: CompletedCheckpoint) -> None:
    (chunk, *_) = chunks(snapshot, StateTable.KEYED, "count")
    native = StoredChunk(0, structs.replace(chunk.chunk, table=StateTable.NATIVE))
    found = counted(snapshot, [native])
    assert (found.totals.subtasks, found.is_partial) == ((), False)
