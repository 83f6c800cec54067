"""Chains of increments whose files are really deleted: what is complete can always be restored, and nothing leaks.

Checkpoints overlap, are given up, subsumed and acknowledged too late; tasks hear of it late or never, and fail.
"""

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint, OperatorSnapshot
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    KEY_FILE,
    NUM_RETAINED,
)
from headrace.checkpoint.storage.file_systems import files_below
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.functions.process import TimeDomain
from headrace.state.backend import FrozenState
from tests.unit.checkpoint.snapshots import operator_id
from tests.unit.state.subtasks import Subtask

JOB = JobId(b"j" * 16)
KEYS = [f"key-{number}" for number in range(5)]


@dataclass
class Held:
    """Sums by key, and timers as (time, key)."""

    sums: dict[str, int] = field(default_factory=dict[str, int])
    timers: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])

    def copy(self) -> "Held":
        return Held(dict(self.sums), set(self.timers))


@dataclass
class Checkpoint:
    """One that is under way. `state`: once it is written."""

    checkpoint_id: int
    options: CheckpointOptions
    frozen: Sequence[FrozenState]
    held: Held
    state: OperatorSubtaskState | None = None
    is_over: bool = False


class Job:
    """One subtask with RocksDB, and the store of its job's checkpoints, over a folder."""

    def __init__(self, folder: Path, retained: int) -> None:
        self.folder = folder
        self.settings = Settings(
            {
                CHECKPOINT_DIRECTORY.key: str(folder / "checkpoints"),
                KEY_FILE.key: str(folder / "key"),
                DATA_INLINE_THRESHOLD.key: "0",
                NUM_RETAINED.key: str(retained),
            }
        )
        self._random = random.Random(7)
        # What is deleted is gone when the call returns.
        self.store = CheckpointStore(
            self.settings, JOB, ManualClock(), self._random, start=lambda name, body: body()
        )
        self.store.recover()
        self.held = Held()
        self.under_way: list[Checkpoint] = []
        self.untold: list[int] = []
        self.complete: dict[int, Held] = {0: Held()}
        self.savepoints: list[CompletedCheckpoint] = []
        self.subtask = self._start(None)

    def step(self, name: str, number: int) -> None:
        key = KEYS[number % len(KEYS)]
        self.subtask.backend.set_current_key(key)
        match name:
            case "add":
                self.subtask.handles["reducing"].add(number)
                self.held.sums[key] = self.held.sums.get(key, 0) + number
            case "clear":
                self.subtask.handles["reducing"].clear()
                self.held.sums.pop(key, None)
            case "set timer":
                self.subtask.timers.register(TimeDomain.EVENT_TIME, number)
                self.held.timers.add((number, key))
            case "fire":
                self.subtask.timers.advance_watermark(number)
                self.held.timers = {timer for timer in self.held.timers if timer[0] > number}
            case "freeze" if len(self.under_way) < 3:
                self._freeze()
            case "write" if waiting := [one for one in self.under_way if one.state is None]:
                self._write(waiting[number % len(waiting)])
            case "complete" if ready := [
                one for one in self.under_way if one.state is not None and not one.is_over
            ]:
                self._complete(ready[number % len(ready)])
            case "give up" if going := [one for one in self.under_way if not one.is_over]:
                self._give_up(going[number % len(going)], is_told=number % 2 == 0)
            case "tell" if self.untold:
                self.subtask.states.checkpoint_completed(self.untold.pop(0))
            case "never tell" if self.untold:
                self.untold.pop(0)
            case "save":
                self._save()
            case "fail":
                self.fail()
            case _:
                pass

    def _start(self, restored: CompletedCheckpoint | None) -> Subtask:
        state = None
        if restored is not None:
            state = restored.metadata.operators[0].subtasks[0]
        return Subtask("rocksdb", str(self.folder), state, reader=StateReader())

    def _freeze(self) -> None:
        checkpoint_id = self.store.take_id()
        options = self.store.locate(
            checkpoint_id, CheckpointOptions(kind=SnapshotKind.CHECKPOINT), ""
        )
        frozen = self.subtask.states.freeze(checkpoint_id, options)
        self.under_way.append(Checkpoint(checkpoint_id, options, frozen, self.held.copy()))

    def _save(self) -> None:
        """Take a native savepoint while checkpoints are under way, of which it has no file, nor they of it."""
        savepoint_id = self.store.take_id()
        options = self.store.locate(
            savepoint_id,
            CheckpointOptions(kind=SnapshotKind.NATIVE_SAVEPOINT),
            str(self.folder / "savepoints"),
        )
        frozen = self.subtask.states.freeze(savepoint_id, options)
        state = self._written(options, frozen)
        published = self.store.publish(self._metadata(savepoint_id, options, state), options)
        self.subtask.states.checkpoint_aborted(
            savepoint_id
        )  # as tasks are told: it commits nothing
        self.complete[savepoint_id] = self.held.copy()
        self.savepoints.append(published)

    def _written(
        self, options: CheckpointOptions, frozen: Sequence[FrozenState]
    ) -> OperatorSubtaskState:
        writer = SubtaskStorage(options, "s", self.settings, self._random)
        chunks = [chunk for part in frozen for chunk in part.write(writer)]
        for part in frozen:
            part.discard()
        return OperatorSubtaskState(tuple(chunks))

    def _metadata(
        self, checkpoint_id: int, options: CheckpointOptions, state: OperatorSubtaskState
    ) -> CheckpointMetadata:
        operator = OperatorSnapshot(operator_id(1), "count", 1, 128, "counter", {0: state})
        return CheckpointMetadata(
            checkpoint_id, options.kind, 0, JOB, "sums", self.store.lineage_id,
            self.store.epoch, (operator,),
        )  # fmt: skip

    def _write(self, one: Checkpoint) -> None:
        """The task's asynchronous part, and its acknowledgement, which may be too late."""
        one.state = self._written(one.options, one.frozen)
        files = [chunk.file for chunk in one.state.chunks]
        self.store.register_shared(one.checkpoint_id, [file for file in files if file.is_shared])
        if one.is_over:
            self.store.discard(one.checkpoint_id, one.options, files)
            self.under_way.remove(one)

    def _complete(self, one: Checkpoint) -> None:
        assert one.state is not None
        metadata = self._metadata(one.checkpoint_id, one.options, one.state)
        published = self.store.publish(metadata, one.options)
        self.complete[one.checkpoint_id] = one.held
        self.under_way.remove(one)
        self.untold.append(one.checkpoint_id)
        for older in [each for each in self.under_way if each.checkpoint_id < one.checkpoint_id]:
            self._give_up(older, is_told=False)
        self.check(published)

    def _give_up(self, one: Checkpoint, *, is_told: bool) -> None:
        if one.is_over:
            return
        one.is_over = True
        if is_told:
            self.subtask.states.checkpoint_aborted(one.checkpoint_id)
        if one.state is not None:
            files = [chunk.file for chunk in one.state.chunks]
            self.store.discard(one.checkpoint_id, one.options, files)
            self.under_way.remove(one)

    def fail(self) -> None:
        """All under way comes to nothing; the task begins anew at the newest that is complete."""
        for one in list(self.under_way):
            self._give_up(one, is_told=False)
            for part in one.frozen:
                part.discard()
        self.under_way.clear()
        self.untold.clear()
        self.subtask.states.close()
        newest = self.store.latest()
        self.held = self.complete[0 if newest is None else newest.checkpoint_id].copy()
        self.subtask = self._start(newest)

    def check(self, checkpoint: CompletedCheckpoint) -> None:
        """Whoever restores it has what the task had, and every file is there."""
        wanted, restored = self.complete[checkpoint.checkpoint_id], self._start(checkpoint)
        assert set(restored.timers_of(TimeDomain.EVENT_TIME)) == {
            (time_ms, key, None) for time_ms, key in wanted.timers
        }
        assert restored.backend.key_count("reducing") == len(wanted.sums)
        for key, total in wanted.sums.items():
            restored.backend.set_current_key(key)
            assert restored.handles["reducing"].get() == total
        restored.states.close()

    def shared_files(self) -> set[str]:
        found = files_below(str(self.folder / "checkpoints"))
        return {entry.uri.rpartition("/")[2] for entry in found if "/shared/" in entry.uri}


OFTEN = ("add", "freeze", "write", "complete", "tell")
RARELY = ("clear", "set timer", "fire", "never tell", "give up", "save", "fail")
STEPS = 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_of_checkpoints_the_complete_ones_are_whole_and_nothing_leaks(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    job = Job(tmp_path, retained=1 + seed % 2)
    for _ in range(STEPS):
        job.step(drawn.choice((*OFTEN * 3, *RARELY)), drawn.randrange(1, 30))
    assert len(job.complete) > 10, "that is little to go by"
    job.fail()
    # Some more, after which nothing of what came to nothing is wanted any more.
    for _ in range(3):
        for name in OFTEN:
            job.step(name, 1)
    job.subtask.states.close()
    referred = {
        file.uri.rpartition("/")[2]
        for one in job.store._completed.all
        for file in one.metadata.files()
        if file.is_shared
    }
    assert job.shared_files() == referred != set()
    shutil.rmtree(tmp_path / "checkpoints")
    assert job.savepoints, "that is little to go by"
    for savepoint in job.savepoints:
        assert all(file.uri.startswith(f"{savepoint.uri}/") for file in savepoint.metadata.files())
        job.check(savepoint)
