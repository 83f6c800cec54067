"""A job's checkpoints on storage that fails in every way: whatever is restored is exactly what was taken."""

from pathlib import Path

import pytest

from headrace.core.lifecycle import JobStatus
from testkit.faulty_file_system import open_faulty
from tests.unit.cluster.job_master.checkpointing.storage_fault_runs import a_run

FAULTS = (
    "fail_writes=0.1",
    "torn_writes=0.2",
    "lost_answers=0.1",
    "stale_listings=0.8",
    "fail_reads=0.05",
    "full_after=400000",
    "fail_writes=0.05&torn_writes=0.05&lost_answers=0.05&stale_listings=0.2&fail_reads=0.02",
)


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", [2, 5, 7, 8])
def test_nothing_wrong_is_ever_restored(tmp_path: Path, faults: str, seed: int) -> None:
    run = a_run(tmp_path, faults, seed)
    for _ in range(4):
        store = run.start()
        for _ in range(run.drawn.randrange(6)):
            if store is not None:
                run.checkpoint(store)
        if store is not None:
            store.close(JobStatus.SUSPENDED)
    run.faults.heal()
    # With the storage well again the job starts, from the last complete one, and goes on.
    store = run.start()
    assert store is not None
    run.checkpoint(store)
    assert run.start() is not None


def test_faults_do_happen(tmp_path: Path) -> None:
    run = a_run(tmp_path, "fail_writes=0.02&fail_reads=0.02", 1)
    for _ in range(20):
        run.start()
    assert 0 < run.refused_count < 20


def test_a_full_storage_is_no_end_once_there_is_room(tmp_path: Path) -> None:
    run = a_run(tmp_path, "full_after=100000", 1)
    store = run.start()
    assert store is not None
    for _ in range(5):
        run.checkpoint(store)
    before = run.sure
    run.faults.heal()
    run.checkpoint(store)
    assert run.sure > before


def test_a_fault_that_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no fault 'lose_disks'"):
        open_faulty(f"faulty://{tmp_path}?lose_disks=1")
