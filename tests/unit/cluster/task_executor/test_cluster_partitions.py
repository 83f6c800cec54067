"""TaskExecutor: results that were promoted outlive their job, are reported, and are released by the ResourceManager."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import JobMasterId, ResultPartitionId
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.messages import ClusterPartitionReport
from tests.unit.cluster.cluster_partition_samples import DATA_SET, part, report
from tests.unit.cluster.cluster_samples import JOB, TM_1
from tests.unit.cluster.task_executor.task_executor_world import (
    INSTANCE,
    JM_ID,
    RM_RESOURCE,
    World,
)

PARTS = (part(0), part(1))
KEYS: set[ResultPartitionId] = {each.partition_id for each in PARTS}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.request_slot()
    yield world
    world.close()


def promote(world: World) -> ClusterPartitionReport:
    return world.ask(world.gateway.promote_partitions(JOB, JM_ID, PARTS))


def reported(world: World) -> ClusterPartitionReport:
    payload = world.ask(world.gateway.heartbeat_from_resource_manager(RM_RESOURCE))
    return payload.cluster_partitions


def test_promoted_results_stay_when_their_job_is_over(world: World) -> None:
    promote(world)
    world.gateway.disconnect_job_master(JOB, JM_ID, None)
    world.run_for(10)
    assert JOB in world.partitions.released_jobs
    assert world.partitions.kept == KEYS
    assert reported(world) == report(1, *PARTS)


def test_they_are_reported_before_the_job_master_hears_that_they_are_kept(world: World) -> None:
    promote(world)
    told = world.resource_manager.script.called("report_cluster_partitions")
    assert told == [(TM_1, INSTANCE, report(1, *PARTS))]


def test_they_are_kept_where_the_resource_manager_does_not_hear_of_it(world: World) -> None:
    answers = world.resource_manager.script.answers
    answers["report_cluster_partitions"] = StaleLeaderError("another one leads")
    promote(world)
    assert reported(world) == report(1, *PARTS)


def test_a_promotion_that_is_repeated_changes_nothing(world: World) -> None:
    promote(world)
    promote(world)
    assert reported(world) == report(1, *PARTS)


def test_what_is_not_here_is_not_promoted(world: World) -> None:
    world.partitions.missing = {PARTS[0].partition_id}
    assert promote(world) == reported(world) == report(1, PARTS[1])


def test_an_old_leader_promotes_nothing(world: World) -> None:
    with pytest.raises(StaleLeaderError):
        world.ask(world.gateway.promote_partitions(JOB, JobMasterId(b"x" * 16), PARTS))
    assert reported(world) == report(0)


def test_the_resource_manager_has_them_released(world: World) -> None:
    promote(world)
    left = world.ask(world.gateway.release_cluster_partitions((DATA_SET,)))
    assert left == reported(world) == report(2)
    assert set(world.partitions.released) == KEYS
    assert world.ask(world.gateway.release_cluster_partitions((DATA_SET,))) == report(2)


def test_a_job_master_does_not_release_them(world: World) -> None:
    promote(world)
    world.gateway.release_partitions(JOB, JM_ID, tuple(KEYS))
    world.run_for(10)
    assert world.partitions.released == []
    assert reported(world) == report(1, *PARTS)
