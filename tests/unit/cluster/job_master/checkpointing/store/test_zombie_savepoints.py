"""Two drivers of one job, the earlier one stopping it with a savepoint: in every order, both know what became of it."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.errors import (
    CheckpointExistsError,
    CheckpointFencedError,
    SnapshotDrainedError,
)
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    KEY_FILE,
    NUM_RETAINED,
    SAVEPOINT_DIRECTORY,
)
from headrace.checkpoint.storage import checkpoint_storage, lineages
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus

JOB = JobId(b"j" * 16)
CALLS = ("put_if_absent", "replace_file", "files_below", "is_there", "read_all", "remove_file")


def driver(folder: Path, seed: int) -> CheckpointStore:
    settings = Settings(
        {
            CHECKPOINT_DIRECTORY.key: str(folder / "checkpoints"),
            SAVEPOINT_DIRECTORY.key: str(folder / "savepoints"),
            NUM_RETAINED.key: "2",
            KEY_FILE.key: str(folder / "key"),
        }
    )
    return CheckpointStore(
        settings, JOB, ManualClock(), random.Random(seed), start=lambda name, body: body()
    )


def take(store: CheckpointStore, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> str:
    """Take a snapshot without any state; return where it lies."""
    checkpoint_id = store.take_id()
    options = store.locate(checkpoint_id, CheckpointOptions(kind=kind), "")
    metadata = CheckpointMetadata(
        checkpoint_id, kind, 0, JOB, "words", store.lineage_id, store.epoch, ()
    )
    return store.publish(metadata, options).uri


class Interruption:
    """Before the `count`-th call of the storage, the other one does all of its work."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, count: int, other: Callable[[], None]
    ) -> None:
        self._left = count
        self._other = other
        self.has_happened = False
        self.before = ""
        for module, name in itertools.product((lineages, checkpoint_storage), CALLS):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, self._before(name, getattr(module, name)))

    def _before(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.has_happened = True
                self.before = name
                self._other()
            return call(*arguments, **named)

        return interrupted


class Race:
    """A driver that takes a checkpoint and then stops the job with a savepoint, and its successor."""

    def __init__(self, folder: Path) -> None:
        self._zombie = driver(folder, 1)
        self._zombie.recover()
        self.checkpoint = take(self._zombie)
        self._successor = driver(folder, 2)
        self.savepoint = ""
        self.restored = ""

    def stop(self) -> None:
        """What the zombie does."""
        try:
            self.savepoint = take(self._zombie, SnapshotKind.SAVEPOINT_SUSPEND)
        except (CheckpointFencedError, CheckpointExistsError):
            self.savepoint = ""

    def take_over(self) -> None:
        """What its successor does."""
        restored = self._successor.recover()
        self.restored = "" if restored is None else restored.uri

    def check(self) -> None:
        """The successor goes on from the savepoint exactly if the zombie was told that it is complete."""
        assert self.restored == (self.savepoint or self.checkpoint)


def test_the_successor_comes_at_any_moment_of_a_stop_with_savepoint(tmp_path: Path) -> None:
    outcomes: set[bool] = set()
    moments: list[str] = []
    for count in itertools.count(1):
        race = Race(tmp_path / str(count))
        with pytest.MonkeyPatch.context() as monkeypatch:
            interruption = Interruption(monkeypatch, count, race.take_over)
            race.stop()
        if not interruption.has_happened:
            break
        race.check()
        outcomes.add(bool(race.savepoint))
        moments.append(interruption.before)
    look, record, forget = "files_below", "put_if_absent", "remove_file"
    place, publish = "replace_file", "put_if_absent"
    assert moments == [look, record, forget, place, look, look, publish], "each is a moment"
    assert False in outcomes


def test_a_stop_with_savepoint_comes_at_any_moment_of_the_succession(tmp_path: Path) -> None:
    outcomes: set[bool] = set()
    for count in itertools.count(1):
        race = Race(tmp_path / str(count))
        with pytest.MonkeyPatch.context() as monkeypatch:
            interruption = Interruption(monkeypatch, count, race.stop)
            race.take_over()
        if not interruption.has_happened:
            break
        race.check()
        outcomes.add(bool(race.savepoint))
    assert outcomes == {True, False}


def test_half_a_stop_before_and_half_of_it_behind_the_look_of_the_successor(tmp_path: Path) -> None:
    """It has looked whether it still leads, then its successor takes over, then it writes."""
    for kind in (SnapshotKind.SAVEPOINT, SnapshotKind.SAVEPOINT_SUSPEND):
        zombie = driver(tmp_path / kind.name, 1)
        zombie.recover()
        checkpoint_id = zombie.take_id()
        options = zombie.locate(checkpoint_id, CheckpointOptions(kind=kind), "")
        metadata = CheckpointMetadata(
            checkpoint_id, kind, 0, JOB, "words", zombie.lineage_id, zombie.epoch, ()
        )
        successor = driver(tmp_path / kind.name, 2)
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(lineages.StoredLineage, "validate_epoch", lambda lineage: None)
            assert successor.recover() is None
            with pytest.raises(CheckpointExistsError):
                zombie.publish(metadata, options)


def test_what_a_dead_driver_had_stopped_with_is_gone_on_from_and_stays_its_users(
    tmp_path: Path,
) -> None:
    race = Race(tmp_path)
    race.stop()
    successor = driver(tmp_path, 3)
    restored = successor.recover()
    assert restored is not None
    assert restored.uri == race.savepoint
    assert take(successor) != race.savepoint
    successor.close(JobStatus.FINISHED)
    assert (Path(race.savepoint) / "_metadata").exists()


def test_nothing_goes_on_behind_a_drained_savepoint(tmp_path: Path) -> None:
    zombie = driver(tmp_path, 1)
    zombie.recover()
    take(zombie)
    take(zombie, SnapshotKind.SAVEPOINT_TERMINATE)
    with pytest.raises(SnapshotDrainedError):
        driver(tmp_path, 2).recover()


def test_a_savepoint_while_the_job_went_on_is_not_gone_on_from(tmp_path: Path) -> None:
    zombie = driver(tmp_path, 1)
    zombie.recover()
    checkpoint = take(zombie)
    take(zombie, SnapshotKind.SAVEPOINT)
    restored = driver(tmp_path, 2).recover()
    assert restored is not None
    assert restored.uri == checkpoint
