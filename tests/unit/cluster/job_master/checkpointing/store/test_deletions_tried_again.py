"""What the storage does not delete at a job's end is tried again until it does; what takes long is told by name."""

import asyncio
import logging
from pathlib import Path

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.checkpoint.storage.file_systems import files_below
from headrace.cluster.job_master.checkpointing.store import checkpoint_io
from headrace.cluster.job_master.checkpointing.store.checkpoint_io import (
    delete_until_done,
)
from headrace.core.lifecycle import JobStatus
from testkit.faulty_file_system import StorageFaults, faults_of
from tests.unit.cluster.job_master.checkpointing.durable_jobs import JOB, Jobs, take

MANY = 100
"""Attempts, more than anybody would wait for."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_io, "_DELETION_PAUSES_S", (0.001, 0.001))


def on_faulty_storage(tmp_path: Path) -> tuple[Jobs, StorageFaults]:
    query = f"run={tmp_path.name}"
    jobs = Jobs(tmp_path)
    jobs.settings[CHECKPOINT_DIRECTORY.key] = f"faulty://{tmp_path}/checkpoints?{query}"
    return jobs, faults_of(query)


def left_in(tmp_path: Path) -> list[str]:
    return [entry.relative_path for entry in files_below(str(tmp_path / "checkpoints"))]


@pytest.mark.parametrize("fault", ["fail_writes", "fail_reads"])
def test_deletions_that_fail_for_a_while_leave_nothing(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, faults = on_faulty_storage(tmp_path)
    store = jobs.start()
    take(store, shares=True)
    take(store, shares=True)
    attempt_count = 0

    async def delete() -> tuple[str, ...]:
        nonlocal attempt_count
        attempt_count += 1
        setattr(faults, fault, 1.0 if attempt_count < 4 else 0.0)
        return store.close(JobStatus.FINISHED).not_deleted

    asyncio.run(delete_until_done(JOB, delete, has_successors=False))
    assert attempt_count == 4
    assert left_in(tmp_path) == []
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_deletions_that_fail_for_long_are_told_of_once_and_done_at_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, faults = on_faulty_storage(tmp_path)
    store = jobs.start()
    checkpoint = take(store)
    attempt_count = 0

    async def delete() -> tuple[str, ...]:
        nonlocal attempt_count
        attempt_count += 1
        faults.fail_writes = 1.0 if attempt_count < MANY else 0.0
        return store.close(JobStatus.FINISHED).not_deleted

    asyncio.run(delete_until_done(JOB, delete, has_successors=True))
    assert attempt_count == MANY
    assert left_in(tmp_path) == []
    told = [one.getMessage() for one in caplog.records if "has ended" in one.getMessage()]
    assert len(told) == 1
    assert checkpoint.uri in told[0] and "for as long as this process leads" in told[0]
    assert f"is deleted, at attempt {MANY}" in caplog.text


def test_what_is_left_at_the_end_of_the_leader_is_told_once_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, faults = on_faulty_storage(tmp_path)
    store = jobs.start()
    checkpoint = take(store)
    faults.fail_writes = 1.0
    attempt_count = 0

    async def delete() -> tuple[str, ...]:
        nonlocal attempt_count
        attempt_count += 1
        if attempt_count == MANY:
            raise asyncio.CancelledError
        return store.close(JobStatus.FINISHED).not_deleted

    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        asyncio.run(delete_until_done(JOB, delete, has_successors=False))
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert len(told) == 1
    assert f"{tmp_path}/checkpoints/{JOB.hex()}" in told[0] and checkpoint.uri in told[0]
    assert "delete it by hand" in told[0]
    assert caplog.text.count("cannot tell whether somebody reads") == 1


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
