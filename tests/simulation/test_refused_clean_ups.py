"""Ended jobs whose files the storage does not delete cost the cluster no task and no JobMaster each."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL, KEY_FILE
from headrace.cluster.dispatcher.job_clean_ups import CLEANUP_EXPONENTIAL_MAX
from headrace.cluster.job_master.job_master import JobMaster
from headrace.core.lifecycle import JobStatus
from testkit.faulty_file_system import faults_of
from testkit.simulation.simulated_cluster import SimulatedCluster
from testkit.simulation.simulated_job import counting_job

JOB_COUNT = 100


def job_masters() -> int:
    gc.collect()
    return sum(isinstance(one, JobMaster) for one in gc.get_objects())


@pytest.fixture
def plain_records() -> Iterator[None]:
    """Records hold text alone: errors would keep the frames that they went through, and so JobMasters."""
    factory = logging.getLogRecordFactory()

    def plain(*args: Any, **more: Any) -> logging.LogRecord:
        record = factory(*args, **more)
        record.msg, record.args = record.getMessage(), ()
        return record

    logging.setLogRecordFactory(plain)
    yield
    logging.setLogRecordFactory(factory)


@pytest.mark.usefixtures("plain_records")
@pytest.mark.slow
def test_a_hundred_ended_jobs_on_a_storage_that_refuses_keep_no_job_master_and_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = f"run={tmp_path.name}"
    checkpoints = tmp_path / "checkpoints"
    settings = {
        CHECKPOINT_DIRECTORY.key: f"faulty://{checkpoints}?{query}",
        KEY_FILE.key: str(tmp_path / "key"),
        INTERVAL.key: "5 s",
        CLEANUP_EXPONENTIAL_MAX.key: "10 s",
    }
    masters_before = job_masters()
    sim = SimulatedCluster(
        1, settings=settings, slots_per_task_manager=4, max_worker_count=JOB_COUNT // 4
    )
    sim.run_for(1_000)
    tasks_before = len(asyncio.all_tasks(sim.loop))
    job_ids = [sim.new_job_id() for _ in range(JOB_COUNT)]
    for job_id in job_ids:
        graph = counting_job(
            job_id, "endless", count=10**6, interval_ms=60_000, parallelism=1, settings={}
        )
        sim.submit(graph)
    sim.run_for(10_000)
    folders = {job_id.hex() for job_id in job_ids}
    assert folders <= {one.name for one in checkpoints.iterdir()}
    assert job_masters() == masters_before + JOB_COUNT
    faults_of(query).fail_writes = 1.0
    for job_id in job_ids:
        sim.cancel(job_id)
    for job_id in job_ids:
        assert sim.await_result(job_id).status is JobStatus.CANCELED
    sim.run_for(60_000)
    assert folders <= {one.name for one in checkpoints.iterdir()}, "the storage obeys"
    told = [one for one in caplog.messages if "the storage does not delete the files" in one]
    assert len(told) == 1 and f"{JOB_COUNT} ended job(s)" in told[0]
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert job_masters() == masters_before
    assert len(asyncio.all_tasks(sim.loop)) <= tasks_before
    faults_of(query).heal()
    sim.run_for(15_000)
    assert not folders & {one.name for one in checkpoints.iterdir()}
    sim.close()
