"""A job that restarts where it ran takes its state from the TaskManager's own disk, not from the checkpoint storage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
from headrace.api.client.job_client import JobClient
from headrace.api.executors import set_active_executor
from headrace.cluster.minicluster import MiniCluster
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.conftest import MiniClusterExecutor
from tests.integration.programs.faulty_storage_job import COUNT, EXACT, KEY_COUNT, Job
from tests.integration.programs.job_details import await_details, every_task_runs

pytestmark = pytest.mark.integration

WAIT_S = 60
BACKENDS = ["hashmap", "rocksdb"]


@pytest.fixture(params=[1, 2], ids=["one TaskManager", "two TaskManagers"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """On one TaskManager whatever restarts, restarts there; of two, each has the state of half of the subtasks."""
    with MiniCluster(
        task_manager_count=request.param,
        slots_per_task_manager=2 // request.param,
        scratch=tmp_path / "scratch",
    ) as cluster:
        set_active_executor(MiniClusterExecutor(cluster))
        try:
            yield Job(StreamExecutionEnvironment.get_execution_environment(), tmp_path)
        finally:
            set_active_executor(None)


def fail_once_without_storage(job: Job, backend: str, from_local: str) -> JobClient:
    """Run up to a checkpoint; then let a task fail while nothing can be read from the checkpoint storage."""
    job.set(
        {
            "state.backend.type": backend,
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.local-backup.enabled": "true",
            "execution.state-recovery.from-local": from_local,
        }
    )
    client = job.start(fail_at=COUNT // KEY_COUNT // 2)
    await_details(client, has_taken_everything_into_a_checkpoint)
    job.faults.fail_reads = 1.0
    job.gate.open_to(COUNT * 3 // 4)
    return client


def has_taken_everything_into_a_checkpoint(details: JobDetails) -> bool:
    read = details.vertices[0].metrics.get("numRecordsOut", 0)
    return read == COUNT // 4 and details.checkpoints.counts.completed > 0


def has_restored(details: JobDetails) -> bool:
    return details.checkpoints.counts.restored == 1 and every_task_runs(details)


def finish(job: Job, client: JobClient) -> JobDetails:
    job.faults.heal()
    job.gate.open_to(COUNT)
    client.get_job_execution_result().result(WAIT_S)
    return client.get_job_details().result(WAIT_S)


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_comes_from_the_local_copies_while_the_storage_cannot_be_read(
    job: Job, backend: str
) -> None:
    client = fail_once_without_storage(job, backend, "true")
    await_details(client, has_restored)
    details = finish(job, client)
    assert [entry.root.error.class_name for entry in details.exceptions] == ["UserCodeError"]
    assert job.counts() == EXACT


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_local_recovery_the_same_restart_needs_the_storage(job: Job, backend: str) -> None:
    client = fail_once_without_storage(job, backend, "false")
    await_details(
        client,
        lambda details: any(
            "cannot read" in entry.root.error.text or "Input/output" in entry.root.error.text
            for entry in details.exceptions
        ),
    )
    finish(job, client)
    assert job.counts() == EXACT
