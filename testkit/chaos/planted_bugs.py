"""Bugs that can be planted into a process, one at a time, to verify that the chaos suite finds them.

Each replaces one function by one that is wrong in one way. A process plants the bug in the environment variable
HEADRACE_PLANTED_BUG when it loads one of the jobs; workers inherit the variable from the driver.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.storage.file_systems import child_uri, files_below, remove_file
from headrace.checkpoint.storage.lineages import StoredLineage
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.connectors.datagen import source as datagen
from headrace.connectors.files.sink import file_commit
from headrace.connectors.files.sink.file_writer import FileWriter
from headrace.core.elements import MAX_WATERMARK
from headrace.network.gates.buffer_manager import BufferManager
from headrace.network.partitions.pipelined_subpartition import PipelinedSubpartition
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.operators.runtime.timed_operator import LateRecords
from headrace.operators.sources_sinks.sinks import UndecidedCommittables
from headrace.operators.windowing.merging_window_set import MergingWindowSet
from headrace.state import columns as state_columns
from headrace.state.heap.backend import HeapKeyedStateBackend
from headrace.state.operator_state_backend import HeapBroadcastState
from headrace.state.restored_keyed_state import RestoredKeyedState
from headrace.task.checkpointing.barriers import ExactlyOnceBarrierHandler
from headrace.task.input.watermark_valve import WatermarkValve

VARIABLE: Final = "HEADRACE_PLANTED_BUG"


def skip_a_barrier() -> None:
    """Take the snapshot at the first barrier; rows that other channels still send for it are missing."""
    handler: Any = ExactlyOnceBarrierHandler
    original = handler._arrived

    def arrived(self: Any, channels: Any, barrier: Any) -> Any:
        return original(self, tuple(self._waiting), barrier)

    _replace(handler, "_arrived", arrived)


def acknowledge_before_upload() -> None:
    """Acknowledge a piece of state whose content was never stored."""
    original: Any = SubtaskStorage.write

    def write(self: Any, name: str, content: Any, *, is_shared: bool = False) -> StateFile:
        file = original(self, name, content, is_shared=is_shared)
        if file.uri:
            remove_file(file.uri)
        return file

    _replace(SubtaskStorage, "write", write)


def drop_a_batch() -> None:
    """Drop one batch in thirty at its producer."""
    original: Any = PipelinedSubpartition.add_data
    counts = {"added": 0}

    def add_data(self: Any, sealed: Any, lease: Any) -> None:
        counts["added"] += 1
        if counts["added"] % 30 == 0 and sealed.row_count:
            lease.release()
            return
        original(self, sealed, lease)

    _replace(PipelinedSubpartition, "add_data", add_data)


def swap_two_batches() -> None:
    """Swap two batches of a producer now and then."""
    original: Any = PipelinedSubpartition.add_data
    held: dict[Any, tuple[Any, Any]] = {}
    counts = {"added": 0}

    def add_data(self: Any, sealed: Any, lease: Any) -> None:
        counts["added"] += 1
        if counts["added"] % 10 == 0 and self not in held:
            held[self] = (sealed, lease)
            return
        original(self, sealed, lease)
        if self in held:
            original(self, *held.pop(self))

    _replace(PipelinedSubpartition, "add_data", add_data)


def lose_a_timer_at_restore() -> None:
    """Read the event-time timers of a checkpoint, and forget some."""
    original: Any = InternalTimerService.keep_in

    def keep_in(self: Any, states: Any, name: str) -> None:
        original(self, states, name)
        for time_ms in list(self._event_timers._buckets):
            for key, namespace in list(self._event_timers._buckets.get(time_ms, ()))[::5]:
                self._event_timers.delete(time_ms, key, namespace)

    _replace(InternalTimerService, "keep_in", keep_in)


def wrong_key_group() -> None:
    """Store state under another key group than that to which the exchange sends the key's rows."""
    original: Any = state_columns.key_groups

    def key_groups(keys: Any, key_type: Any, max_parallelism: int) -> Any:
        groups = original(keys, key_type, max_parallelism)
        return (groups + max_parallelism // 2) % max_parallelism

    _replace(state_columns, "key_groups", key_groups)


def leak_credit() -> None:
    """Return credit for only some of the batches."""
    original: Any = BufferManager.batch_taken
    counts = {"taken": 0}

    def batch_taken(self: Any, index: int, charge: Any) -> None:
        counts["taken"] += 1
        if counts["taken"] % 3:
            original(self, index, charge)

    _replace(BufferManager, "batch_taken", batch_taken)


def name_a_file_twice() -> None:
    """Leave a second copy of one committed file, as a commit that is repeated could."""
    original: Any = file_commit.name_file
    counts = {"named": 0}

    def name_file(file_system: Any, base_path: str, file: Any) -> None:
        original(file_system, base_path, file)
        counts["named"] += 1
        if counts["named"] == 3:
            final = f"{base_path}/{file.final_path}"
            shutil.copy(final, final + "-again")

    _replace(file_commit, "name_file", name_file)


def run_ahead_of_the_position() -> None:
    """Store a source's position after rows that it has not emitted yet."""
    original: Any = datagen.DataGeneratorReader.snapshot_state

    def snapshot_state(self: Any, checkpoint_id: int) -> Sequence[bytes]:
        decoder = msgspec.msgpack.Decoder(datagen.IndexSequence)
        sequences = [decoder.decode(one) for one in original(self, checkpoint_id)]
        for sequence in sequences:
            sequence.next_index += 3 * sequence.step
        return [msgspec.msgpack.encode(one) for one in sequences]

    _replace(datagen.DataGeneratorReader, "snapshot_state", snapshot_state)


def freeze_late() -> None:
    """Freeze state when it is written, a moment after the barrier."""
    original: Any = HeapKeyedStateBackend.freeze

    class Late:
        def __init__(self, freeze: Callable[[], Any]) -> None:
            self._freeze = freeze

        def write(self, writer: Any) -> Any:
            time.sleep(0.1)
            return self._freeze().write(writer)

        def discard(self) -> None:
            pass

    def freeze(self: Any, checkpoint_id: int, options: Any) -> Any:
        return Late(lambda: original(self, checkpoint_id, options))

    _replace(HeapKeyedStateBackend, "freeze", freeze)


def show_before_published() -> None:
    """Make a sink's files visible when they are complete instead of when their checkpoint is published."""
    original: Any = FileWriter.prepare_commit

    def prepare_commit(self: Any, checkpoint_id: int) -> Sequence[bytes]:
        self._roll_all()
        for file in self._complete:
            file_commit.name_file(self._file_system, self._base_path, file)
        return original(self, checkpoint_id)

    _replace(FileWriter, "prepare_commit", prepare_commit)


def lose_a_map_at_restore() -> None:
    """Do not restore one state of a checkpoint."""
    original: Any = RestoredKeyedState.claim

    def claim(self: Any, form: Any, *changes: Any) -> Iterator[Any]:
        rows = list(original(self, form, *changes))
        return iter(() if form.is_map else rows)

    _replace(RestoredKeyedState, "claim", claim)


def lose_a_join_side_at_restore() -> None:
    """Do not restore the stored records of one join input; pairs with later records are missing."""
    original: Any = RestoredKeyedState.claim

    def claim(self: Any, form: Any, *changes: Any) -> Iterator[Any]:
        rows = list(original(self, form, *changes))
        return iter(() if form.name == "right-buffer" else rows)

    _replace(RestoredKeyedState, "claim", claim)


def lose_broadcast_state_at_restore() -> None:
    """Lose broadcast state when a checkpoint is restored."""
    _replace(HeapBroadcastState, "take_items", lambda self, items: None)


def merge_too_little() -> None:
    """Drop the records of all but one of the merged sessions, every third time."""
    windows: Any = MergingWindowSet
    original = windows._merge
    counts = {"moved": 0}

    def merge(self: Any, merged_window: Any, olds: Any, on_merge: Any) -> None:
        def forgetful(new: Any, parts: Any, target: Any, moved: Any) -> None:
            # A session that only grows moves nothing, and would lose nothing.
            counts["moved"] += bool(moved)
            on_merge(new, parts, target, [] if counts["moved"] % 3 == 0 else moved)

        original(self, merged_window, olds, forgetful)

    _replace(windows, "_merge", merge)


def forget_late_records() -> None:
    """Count one record in ten that comes too late, but do not emit it."""
    original: Any = LateRecords.take
    counts = {"taken": 0}

    def take(self: Any, value: Any, timestamp: int) -> None:
        counts["taken"] += 1
        if counts["taken"] % 10:
            original(self, value, timestamp)

    _replace(LateRecords, "take", take)


def begin_afresh() -> None:
    """Start a source from its beginning although its operators continue from a checkpoint."""
    _replace(datagen.DataGeneratorReader, "restore_splits", lambda self, splits: None)


def forget_what_was_prepared() -> None:
    """Do not pass on committables prepared for a failed checkpoint with the next one."""
    original: Any = UndecidedCommittables.snapshot

    def snapshot(self: Any, checkpoint_id: int) -> Any:
        everything = original(self, checkpoint_id)
        mine = {one.key for key, one in self._prepared if key == checkpoint_id}
        return [one for one in everything if one.key in mine]

    _replace(UndecidedCommittables, "snapshot", snapshot)


def hurry_event_time() -> None:
    """Let event time on an input be that of its fastest channel, not of its slowest."""

    def advance(self: Any) -> Any:
        fastest = max(channel.watermark for channel in self._channels)
        return self._emit(min(fastest + 400, MAX_WATERMARK))

    _replace(WatermarkValve, "_advance", advance)


def use_ids_again() -> None:
    """Reuse ids that an earlier epoch of the lineage has used; sinks identify their commits by them."""
    original: Any = StoredLineage.take_over

    def take_over(directory: str, lineage_id: str, floor_id: int, *rest: Any, **named: Any) -> Any:
        taken: Any = original(directory, lineage_id, floor_id, *rest, **named)
        for entry in files_below(child_uri(directory, "lineages", lineage_id)):
            if entry.relative_path.startswith("id-"):
                remove_file(entry.uri)
        taken._last_id = 0
        return taken

    _replace(StoredLineage, "take_over", staticmethod(take_over))


BUGS: Final[dict[str, Callable[[], None]]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        skip_a_barrier,
        acknowledge_before_upload,
        drop_a_batch,
        swap_two_batches,
        lose_a_timer_at_restore,
        wrong_key_group,
        leak_credit,
        name_a_file_twice,
        run_ahead_of_the_position,
        freeze_late,
        show_before_published,
        lose_a_map_at_restore,
        lose_a_join_side_at_restore,
        lose_broadcast_state_at_restore,
        merge_too_little,
        forget_late_records,
        begin_afresh,
        forget_what_was_prepared,
        hurry_event_time,
        use_ids_again,
    )
}


_planted: Final[list[str]] = []


def plant_from_environment() -> None:
    """Plant the bug that the environment names, once per process."""
    name = os.environ.get(VARIABLE, "")
    if name and not _planted:
        _planted.append(name)
        BUGS[name]()


def _replace(owner: Any, name: str, function: Any) -> None:
    assert hasattr(owner, name), (
        f"{owner} has no {name}: the bug can no longer be planted, adapt it to the code"
    )
    setattr(owner, name, function)
