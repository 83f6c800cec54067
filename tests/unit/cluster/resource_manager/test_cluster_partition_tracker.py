"""Data sets of the cluster: told by reports, whole or of no use, and released until nobody reports them any more."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.resource_manager.cluster_partition_tracker import (
    UNWANTED_KEPT_MAX,
    ClusterPartitionTracker,
)
from headrace.cluster.resource_manager.options import JOB_TIMEOUT
from headrace.core.config import Settings
from headrace.core.ids import InstanceId, JobId, ResourceId
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.messages import (
    ClusterPartition,
    ClusterPartitionReport,
    DataSetInfo,
    SlotReport,
)
from headrace.gateways.task_executor import TaskExecutorHeartbeatPayload
from testkit.scripted_gateways import end_processes
from tests.unit.cluster.cluster_partition_samples import DATA_SET, part, report
from tests.unit.cluster.cluster_samples import JOB, TM_1, TM_2, empty_slots
from tests.unit.cluster.resource_manager.resource_manager_world import JM_ID, WORKER, World

HALF, WHOLE = DataSetInfo(DATA_SET, 2, 1), DataSetInfo(DATA_SET, 2, 2)
RELEASE = (DATA_SET,)


def whole() -> ClusterPartitionTracker:
    tracker = ClusterPartitionTracker()
    assert tracker.reported(TM_1, report(1, part(0))) == {}
    assert tracker.data_sets() == (HALF,)
    assert tracker.descriptors_of(DATA_SET) == ()
    assert tracker.reported(TM_2, report(1, part(1))) == {}
    return tracker


def test_a_data_set_can_be_read_once_all_its_parts_were_reported() -> None:
    tracker = whole()
    assert tracker.data_sets() == (WHOLE,) and WHOLE.is_complete
    assert tracker.descriptors_of(DATA_SET) == (part(0).shuffle, part(1).shuffle)


def test_with_a_task_manager_its_data_sets_are_lost_and_the_rest_of_them_is_released() -> None:
    tracker = whole()
    assert tracker.lost(TM_1) == {TM_2: RELEASE}
    assert tracker.data_sets() == () and tracker.descriptors_of(DATA_SET) == ()


def test_a_part_that_is_not_reported_any_more_is_lost() -> None:
    tracker = whole()
    assert tracker.reported(TM_1, report(2)) == {TM_2: RELEASE}
    assert tracker.data_sets() == ()


def test_an_older_report_that_comes_late_loses_nothing() -> None:
    tracker = whole()
    assert tracker.reported(TM_1, report(0)) == {}
    assert tracker.data_sets() == (WHOLE,)


def test_who_still_reports_what_was_released_is_told_again() -> None:
    tracker = whole()
    assert tracker.release([DATA_SET]) == {TM_1: RELEASE, TM_2: RELEASE}
    assert tracker.data_sets() == () and tracker.descriptors_of(DATA_SET) == ()
    assert tracker.reported(TM_2, report(1, part(1))) == {TM_2: RELEASE}


def test_a_part_that_is_reported_after_another_was_lost_is_released() -> None:
    tracker = ClusterPartitionTracker()
    tracker.reported(TM_1, report(1, part(0)))
    assert tracker.lost(TM_1) == {}
    assert tracker.reported(TM_2, report(1, part(1))) == {TM_2: RELEASE}
    assert tracker.data_sets() == () and tracker.descriptors_of(DATA_SET) == ()


def test_a_part_that_is_reported_after_the_rest_was_released_is_released_too() -> None:
    tracker = ClusterPartitionTracker()
    tracker.reported(TM_1, report(1, part(0)))
    tracker.release([DATA_SET])
    assert tracker.reported(TM_1, report(2)) == {}
    assert tracker.reported(TM_2, report(1, part(1))) == {TM_2: RELEASE}


def test_of_lost_data_sets_that_nobody_reports_only_the_latest_are_remembered() -> None:
    tracker = ClusterPartitionTracker()
    tracker.reported(TM_1, report(1, part(0)))
    tracker.release([DATA_SET])
    others = [other_data_set(number) for number in range(UNWANTED_KEPT_MAX + 1)]
    tracker.reported(TM_2, report(1, *others))
    tracker.lost(TM_2)
    assert tracker.reported(TM_1, report(1, part(0))) == {TM_1: RELEASE}, "it is still reported"
    tracker.reported(TM_1, report(2))
    tracker.reported(TM_1, report(3, part(0)))
    assert tracker.data_sets() == (HALF,)
    assert tracker.reported(TM_2, report(2, others[-1])) == {TM_2: (others[-1].data_set,)}


def test_what_was_released_before_its_job_left_it_is_dropped_as_it_is_reported() -> None:
    tracker = ClusterPartitionTracker()
    assert tracker.release([DATA_SET]) == {}
    assert tracker.reported(TM_1, report(1, part(0))) == {TM_1: RELEASE}
    assert tracker.reported(TM_2, report(1, part(1))) == {TM_2: RELEASE}
    assert tracker.data_sets() == () and tracker.descriptors_of(DATA_SET) == ()


def test_a_task_manager_that_registers_again_counts_its_reports_anew() -> None:
    tracker = whole()
    tracker.reported(TM_1, report(7, part(0)))
    tracker.registered(TM_1)
    tracker.registered(ResourceId("one that never reported"))
    assert tracker.data_sets() == (WHOLE,), "until it says otherwise"
    assert tracker.reported(TM_1, report(0)) == {TM_2: RELEASE}
    assert tracker.data_sets() == ()


def other_data_set(number: int) -> ClusterPartition:
    """A part of a data set of some other job."""
    return of_job(JobId(number.to_bytes(16, "big")), part(0))


def of_job(job_id: JobId, partition: ClusterPartition) -> ClusterPartition:
    """The same part of another job's data set."""
    shuffle = partition.shuffle
    key = shuffle.partition_id
    producer = msgspec.structs.replace(key.producer, job_id=job_id)
    key = msgspec.structs.replace(key, producer=producer)
    shuffle = msgspec.structs.replace(shuffle, partition_id=key)
    return ClusterPartition(shuffle, partition.partition_count)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["promote", "lose", "release", "hear"]))
)


@given(STEPS)
def test_parts_are_listed_until_one_that_was_reported_is_lost_or_released_and_then_none(
    steps: list[tuple[int, str]],
) -> None:
    """Three TaskManagers, of which only who reports is reached: after two reports of each all agree."""
    tracker = ClusterPartitionTracker()
    names = [ResourceId(f"tm-{index}") for index in range(3)]
    there: dict[ResourceId, tuple[int, list[ClusterPartition]]] = {name: (0, []) for name in names}
    heard: set[ResourceId] = set()
    is_dead = False

    def hear(name: ResourceId) -> None:
        change, parts = there[name]
        (heard.add if parts else heard.discard)(name)
        if name in tracker.reported(name, report(change, *parts)):
            there[name] = change + 1, []

    for index, step in steps:
        name = names[index]
        change, parts = there[name]
        if step == "promote" and not parts:
            there[name] = change + 1, [part(index, of=3)]
        elif step == "lose":
            tracker.lost(name)
            is_dead = is_dead or name in heard
            heard.discard(name)
            there[name] = change + 1, []
        elif step == "release":
            is_dead = True
            tracker.release([DATA_SET])
        else:
            hear(name)
    for name in names * 2:
        hear(name)
    held = [name for name, (_, parts) in there.items() if parts]
    assert not (is_dead and held)
    assert [info.stored_count for info in tracker.data_sets()] == ([len(held)] if held else [])


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    end_processes(world.network, world.loop)


def registered(world: World) -> InstanceId:
    world.declare(1)
    world.run_for(10)
    world.driver.listener.worker_started(WORKER)
    world.run_for(10)
    return world.register_with_slots().instance_id


def tell(world: World, instance_id: InstanceId, told: ClusterPartitionReport) -> None:
    """Have the TaskManager report this, as each of its heartbeats does from now on."""
    world.ask(world.gateway.report_cluster_partitions(WORKER, instance_id, told))
    payload = TaskExecutorHeartbeatPayload(SlotReport(empty_slots(WORKER, 1)), None, told)
    world.task_manager.script.answers |= {
        "heartbeat_from_resource_manager": payload,
        "can_be_released": not told.partitions,
        "release_cluster_partitions": report(told.change_number + 1),
    }


def promoted(world: World) -> InstanceId:
    """A TaskManager that has reported both parts of the data set."""
    instance_id = registered(world)
    tell(world, instance_id, report(1, part(0), part(1)))
    return instance_id


def test_what_a_task_manager_reports_is_listed_and_found(world: World) -> None:
    promoted(world)
    assert world.ask(world.gateway.list_data_sets()) == (WHOLE,)
    found = world.ask(world.gateway.request_cluster_partitions(DATA_SET))
    assert found == (part(0).shuffle, part(1).shuffle)


def test_the_report_of_a_registration_that_is_over_is_refused(world: World) -> None:
    promoted(world)
    stale = world.gateway.report_cluster_partitions(WORKER, InstanceId(b"x" * 16), report(9))
    with pytest.raises(StaleLeaderError):
        world.ask(stale)
    assert world.ask(world.gateway.list_data_sets()) == (WHOLE,)


def test_heartbeats_tell_of_data_sets_too(world: World) -> None:
    promoted(world)
    payload = TaskExecutorHeartbeatPayload(SlotReport(empty_slots(WORKER, 1)), None, report(2))
    world.task_manager.script.answers["heartbeat_from_resource_manager"] = payload
    world.run_for(20_000)
    assert world.ask(world.gateway.list_data_sets()) == ()


def test_a_release_reaches_the_task_manager_and_is_repeated_until_it_was_heard(
    world: World,
) -> None:
    promoted(world)
    answers = world.task_manager.script.answers
    answers["release_cluster_partitions"] = report(1, part(0), part(1))
    world.ask(world.gateway.release_cluster_partitions(DATA_SET))
    assert world.ask(world.gateway.list_data_sets()) == ()
    told = world.task_manager.script.called("release_cluster_partitions")
    assert told and set(told) == {((DATA_SET,),)}
    answers["release_cluster_partitions"] = report(2)
    world.run_for(20_000)
    assert len(world.task_manager.script.called("release_cluster_partitions")) > 1
    answers["heartbeat_from_resource_manager"] = TaskExecutorHeartbeatPayload(
        SlotReport(empty_slots(WORKER, 1)), None, report(2)
    )
    world.run_for(20_000)
    count = len(world.task_manager.script.called("release_cluster_partitions"))
    world.run_for(60_000)
    assert len(world.task_manager.script.called("release_cluster_partitions")) == count


OURS = [of_job(JOB, part(number)) for number in range(2)]
OUR_HALF = DataSetInfo(OURS[0].data_set, 2, 1)
TIMEOUT_MS = Settings().duration_ms(JOB_TIMEOUT)


def test_what_stays_incomplete_is_released_once_nobody_led_its_job_for_long(world: World) -> None:
    # The other half was promoted by nobody, or on a TaskManager that died before it could tell.
    tell(world, registered(world), report(1, OURS[0]))
    world.run_for(TIMEOUT_MS * 5)
    assert world.ask(world.gateway.list_data_sets()) == (OUR_HALF,), "its JobMaster may go on"
    world.gateway.disconnect_job_master(JOB, JM_ID, "the job has ended")
    world.run_for(TIMEOUT_MS * 0.9)
    assert world.ask(world.gateway.list_data_sets()) == (OUR_HALF,), "reports may be on their way"
    world.run_for(TIMEOUT_MS * 1.2)
    assert world.ask(world.gateway.list_data_sets()) == ()
    told = world.task_manager.script.called("release_cluster_partitions")
    assert told[0] == ((OURS[0].data_set,),)


def test_what_becomes_complete_in_time_stays(world: World) -> None:
    instance_id = registered(world)
    tell(world, instance_id, report(1, OURS[0]))
    world.gateway.disconnect_job_master(JOB, JM_ID, "the job has ended")
    world.run_for(TIMEOUT_MS * 0.5)
    tell(world, instance_id, report(2, *OURS))
    world.run_for(TIMEOUT_MS * 5)
    (info,) = world.ask(world.gateway.list_data_sets())
    assert info.is_complete
    assert not world.task_manager.script.called("release_cluster_partitions")


def test_the_data_sets_of_a_lost_task_manager_are_gone(world: World) -> None:
    promoted(world)
    world.gateway.disconnect_task_manager(WORKER, "it was killed")
    world.run_for(10)
    assert world.ask(world.gateway.list_data_sets()) == ()
