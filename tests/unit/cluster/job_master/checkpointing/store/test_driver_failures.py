"""A driver that dies between any two operations on the storage: what is restored, and what is left behind."""

from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.file_systems import files_below
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointStore
from headrace.core.clock import ManualClock
from headrace.core.lifecycle import JobStatus
from testkit.faulty_file_system import StorageFaults
from tests.unit.cluster.job_master.checkpointing.storage_fault_runs import JOB, Run, a_run


class _Death:
    """Counts operations on the storage; from the one with number `at` on, none is made."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.count = 0

    def begin(self) -> None:
        self.count += 1
        if self.at is not None and self.count > self.at:
            raise OSError("the driver is dead")


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> _Death:
    one = _Death()
    monkeypatch.setattr(StorageFaults, "begin", lambda faults: one.begin())
    return one


def _begin(run: Run) -> CheckpointStore:
    store = run.start()
    assert store is not None
    run.checkpoint(store)
    return store


def _operations_of_a_checkpoint(tmp_path: Path, death: _Death) -> int:
    run = a_run(tmp_path, "slow_ms=0", 0)
    store = _begin(run)
    before = death.count
    run.checkpoint(store)
    return death.count - before


@pytest.mark.slow
def test_whenever_it_dies_the_last_checkpoint_is_whole_and_nothing_stays_behind(
    tmp_path: Path, death: _Death
) -> None:
    count = _operations_of_a_checkpoint(tmp_path, death)
    assert count > 5
    found: set[int] = set()
    for step in range(count + 1):
        run = a_run(tmp_path, "slow_ms=0", 2 * step + 2)
        # Whoever dies is told nothing; what it had heard before is all that is sure.
        _begin_and_die(run, death, step)
        found.add(_restored(run))
        assert _left_behind(run) == set()
    assert found == {1, 2}, "it died before the publication, and behind it"


def _begin_and_die(run: Run, death: _Death, step: int) -> None:
    """One checkpoint is complete, and of the next one that many operations are made."""
    store = _begin(run)
    death.at = death.count + step
    run.checkpoint(store)
    run.sure, run.maybe = 1, frozenset({2})
    death.at = None


def _operations_of_a_recovery(tmp_path: Path, death: _Death, half: int) -> int:
    run = a_run(tmp_path, "slow_ms=0", 0)
    _begin_and_die(run, death, half)
    before = death.count
    assert run.start() is not None
    return death.count - before


@pytest.mark.slow
def test_whenever_its_successor_dies_while_it_takes_over_the_one_after_it_goes_on(
    tmp_path: Path, death: _Death
) -> None:
    half = _operations_of_a_checkpoint(tmp_path / "measured", death) // 2
    count = _operations_of_a_recovery(tmp_path / "measured too", death, half)
    assert count > 5
    died_count = 0
    for step in range(count + 1):
        run = a_run(tmp_path, "slow_ms=0", 2 * step + 2)
        _begin_and_die(run, death, half)
        death.at = death.count + step
        died_count += run.start() is None
        death.at, run.refused_count = None, 0
        assert _restored(run) == 1
        assert _left_behind(run) == set()
    assert died_count > 5, "else it was done before it died"


def _restored(run: Run) -> int:
    """The id from which the next driver goes on; `check` has read every file of it."""
    store = run.start()
    assert store is not None
    found = run.sure
    for _ in range(3):
        run.checkpoint(store)
    assert run.refused_count == 0
    store.close(JobStatus.SUSPENDED)
    return found


def _left_behind(run: Run) -> set[str]:
    """Files of state to which no complete checkpoint refers."""
    store = CheckpointStore(run.settings, JOB, ManualClock(), run.drawn)
    restored = store.recover()
    assert restored is not None
    referred = {file.uri.rpartition("/")[2] for file in restored.metadata.files() if file.uri}
    below = files_below(run.settings.get_option(CHECKPOINT_DIRECTORY))
    names = {entry.uri.partition("?")[0].rpartition("/")[2] for entry in below}
    return {name for name in names if name.startswith("s-")} - {
        name.partition("?")[0] for name in referred
    }
