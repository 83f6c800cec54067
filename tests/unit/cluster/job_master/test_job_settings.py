"""Settings of a job in its JobMaster: its own, and the cluster's where it says nothing."""

from collections.abc import Iterator

import pytest

from headrace.cluster.job_master.connections.options import SUBMIT_TIMEOUT
from headrace.cluster.job_master.coordinators.collect_coordinator import COLLECT_BUFFER_SIZE
from headrace.core.lifecycle import JobStatus
from tests.unit.cluster.job_master.job_master_world import World


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    yield world
    world.close()


@pytest.mark.parametrize(
    ("world", "size_bytes"),
    [({}, 4 << 10), ({COLLECT_BUFFER_SIZE.key: "8 kb"}, 8 << 10)],
    indirect=["world"],
)
def test_a_coordinator_sees_the_jobs_settings_over_the_clusters(
    world: World, size_bytes: int
) -> None:
    (context,) = world.contexts
    assert context.settings.get_option(COLLECT_BUFFER_SIZE) == size_bytes


@pytest.mark.parametrize(
    ("world", "timeout_ms"),
    [({}, 40_000), ({SUBMIT_TIMEOUT.key: "5 s"}, 5_000)],
    indirect=["world"],
)
def test_a_task_manager_has_the_jobs_own_time_to_take_a_task(world: World, timeout_ms: int) -> None:
    world.loop.run_for(timeout_ms - 1_000)
    assert world.job_master.status is JobStatus.RUNNING
    world.loop.run_for(2_000)
    assert world.job_master.status in (JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.FAILED)
