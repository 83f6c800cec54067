"""Programs whose checkpoint storage fails: their results are as if it did not."""

from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
from headrace.checkpoint.options import RECOVERY_PATH
from headrace.checkpoint.retention.inspection import find_snapshots
from headrace.core.errors import JobExecutionError
from testkit.waiting import wait_until
from tests.integration.programs.faulty_storage_job import COUNT, EXACT, KEY_COUNT, Job


@pytest.fixture
def job(env: StreamExecutionEnvironment, tmp_path: Path) -> Job:
    return Job(env, tmp_path)


def has_checkpoint(job: Job) -> bool:
    return any("chk-" in one for one in find_snapshots(str(job.folder / "checkpoints")))


@pytest.mark.parametrize("fault", ["fail_writes", "torn_writes", "lost_answers", "fail_reads"])
def test_results_are_exact_where_the_storage_fails_now_and_then(job: Job, fault: str) -> None:
    client = job.start(fail_at=COUNT // KEY_COUNT // 2)
    wait_until(lambda: has_checkpoint(job))
    setattr(job.faults, fault, 0.05)
    job.gate.open_to(COUNT)
    wait_until((job.folder / "failed").exists)
    job.faults.heal()
    client.get_job_execution_result().result()
    assert job.counts() == EXACT


def test_a_storage_that_is_away_at_the_start_does_not_make_a_job_begin_anew(job: Job) -> None:
    first = job.start()
    wait_until(lambda: has_checkpoint(job))
    kept = job.checkpoints.replace("/checkpoints", "/kept")
    path = first.stop_with_savepoint(False, kept).result()
    job.set({RECOVERY_PATH.key: path})
    job.faults.fail_reads = 1.0
    with pytest.raises(JobExecutionError, match=r"checkpoint storage: cannot .*Input/output error"):
        job.start().get_job_execution_result().result()
    job.faults.heal()
    job.gate.open_to(COUNT)
    job.start().get_job_execution_result().result()
    assert job.counts() == EXACT
