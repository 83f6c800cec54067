"""What the storage does not delete at a job's end can be tried again, and is named with what the storage says."""

import logging
from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.file_systems import files_below
from headrace.core.lifecycle import JobStatus
from testkit.faulty_file_system import StorageFaults, faults_of
from tests.unit.cluster.job_master.checkpointing.durable_jobs import JOB, Jobs, take

MANY = 20
"""Attempts, more than anybody would wait for."""


def on_faulty_storage(tmp_path: Path) -> tuple[Jobs, StorageFaults]:
    query = f"run={tmp_path.name}"
    jobs = Jobs(tmp_path)
    jobs.settings[CHECKPOINT_DIRECTORY.key] = f"faulty://{tmp_path}/checkpoints?{query}"
    return jobs, faults_of(query)


def left_in(tmp_path: Path) -> list[str]:
    return [entry.relative_path for entry in files_below(str(tmp_path / "checkpoints"))]


@pytest.mark.parametrize("fault", ["fail_writes", "fail_reads"])
def test_deletions_that_fail_for_a_while_leave_nothing(tmp_path: Path, fault: str) -> None:
    jobs, faults = on_faulty_storage(tmp_path)
    store = jobs.start()
    take(store, shares=True)
    take(store, shares=True)
    setattr(faults, fault, 1.0)
    for _ in range(3):
        left = store.close(JobStatus.FINISHED)
        assert left.not_deleted and left.cause
    faults.heal()
    left = store.close(JobStatus.FINISHED)
    assert left.not_deleted == () and left.cause == ""
    assert left_in(tmp_path) == []


def test_what_is_left_is_named_with_its_cause_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, faults = on_faulty_storage(tmp_path)
    store = jobs.start()
    checkpoint = take(store)
    faults.fail_writes = 1.0
    with caplog.at_level(logging.WARNING):
        for _ in range(MANY):
            left = store.close(JobStatus.FINISHED)
            assert set(left.not_deleted) >= {checkpoint.uri}
            assert any(f"/checkpoints/{JOB.hex()}?" in uri for uri in left.not_deleted)
            assert "Input/output error" in left.cause
    assert caplog.text.count("cannot find out whether") == 1


def test_what_failed_while_the_job_ran_is_tried_again_at_the_end_of_a_job_that_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uri: str) -> None:
        raise OSError("it is busy")

    jobs = Jobs(tmp_path)
    store = jobs.start()
    take(store)
    with monkeypatch.context() as patched:
        patched.setattr("headrace.checkpoint.retention.cleaner.remove_folder", fail)
        take(store)
    assert jobs.files() == ["chk-1/state-x", "chk-2/_metadata", "chk-2/state-x"]
    assert store.close(JobStatus.FAILED).not_deleted == ()
    assert jobs.files() == ["chk-2/_metadata", "chk-2/state-x"]
