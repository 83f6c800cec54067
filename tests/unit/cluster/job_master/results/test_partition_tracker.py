"""PartitionTracker, and the scheduler that follows it: stored results are released once, and not before their time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker, ToRelease
from headrace.core.ids import ExecutionVertexId, ResourceId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.shuffle_descriptors import (
    ReleaseBy,
    ResultPartitionDescriptor,
    ResultPartitionType,
)
from headrace.network.errors import PartitionNotFoundError
from tests.unit.cluster.cluster_samples import TM_1, TM_2, vertex_id
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture
from tests.unit.network.exchange import partition_id

S = ExecutionState
BLOCKING = ResultPartitionType.BLOCKING
PLACES = (TM_1, TM_2)
CONSUMERS = [ExecutionVertexId(vertex_id(9), index) for index in range(3)]
PRODUCERS = {partition_id(number).producer.execution_vertex_id for number in range(4)}


def descriptor(
    number: int, consumer_count: int, kind: ResultPartitionType = BLOCKING, attempt: int = 0
) -> ResultPartitionDescriptor:
    return ResultPartitionDescriptor(partition_id(number, attempt), kind, consumer_count)


def flat(to_release: ToRelease) -> list[tuple[ResourceId | None, ResultPartitionId]]:
    return [(place, each) for place, found in to_release.items() for each in found]


@given(
    events=st.lists(
        st.one_of(
            st.tuples(st.just("deploy"), st.integers(0, 3)),
            st.tuples(st.just("consume"), st.integers(0, 3)),
            st.tuples(st.just("lose"), st.integers(0, 1)),
            st.tuples(st.just("restart"), st.just(0)),
        )
    )
)
def test_a_result_is_released_once_and_only_where_it_lies(events: list[tuple[str, int]]) -> None:
    tracker = PartitionTracker(releases_during_job=True)
    attempt = 0
    there: dict[ResultPartitionId, ResourceId] = {}
    unread: dict[ResultPartitionId, int] = {}
    for event, number in events:
        key = partition_id(number, attempt)
        released: ToRelease = {}
        expected: set[ResultPartitionId] = set()
        match event:
            case "deploy" if key not in unread:
                there[key], unread[key] = PLACES[number % 2], 2
                tracker.deployed(PLACES[number % 2], [descriptor(number, 2, attempt=attempt)])
            case "consume" if unread.get(key, 0) > 0:
                unread[key] -= 1
                released = tracker.consumed(CONSUMERS[unread[key]], [key])
                expected = {key} if unread[key] == 0 and key in there else set()
            case "lose":
                tracker.lost(PLACES[number])
                there = {each: place for each, place in there.items() if place != PLACES[number]}
            case "restart":
                attempt += 1
                released, expected = tracker.restarted(PRODUCERS), set(there)
            case _:
                pass
        assert {each for _, each in flat(released)} == expected
        assert all(there[each] == place for place, each in flat(released))
        there = {each: place for each, place in there.items() if each not in expected}
        assert tracker.tracked == set(there)


@pytest.mark.parametrize(
    "kind", [kind for kind in ResultPartitionType if kind.traits.release_by is ReleaseBy.UPSTREAM]
)
def test_what_releases_itself_is_not_tracked(kind: ResultPartitionType) -> None:
    tracker = PartitionTracker(releases_during_job=True)
    tracker.deployed(TM_1, [descriptor(0, 2, kind)])
    assert tracker.tracked == frozenset()


def test_by_option_nothing_is_released_before_the_end_of_the_job() -> None:
    tracker = PartitionTracker(releases_during_job=False)
    tracker.deployed(TM_1, [descriptor(0, 1)])
    assert tracker.consumed(CONSUMERS[0], [partition_id(0)]) == {}
    assert tracker.restarted(PRODUCERS) == {TM_1: (partition_id(0),)}


def test_a_consumer_that_restarts_is_to_read_again_what_it_had_read() -> None:
    tracker = PartitionTracker(releases_during_job=True)
    tracker.deployed(TM_1, [descriptor(0, 2)])
    assert tracker.consumed(CONSUMERS[0], [partition_id(0)]) == {}
    assert tracker.restarted({CONSUMERS[0]}) == {}
    assert tracker.consumed(CONSUMERS[1], [partition_id(0)]) == {}
    assert tracker.consumed(CONSUMERS[0], [partition_id(0)]) == {TM_1: (partition_id(0),)}


def test_a_result_that_could_not_be_read_is_tracked_no_more() -> None:
    tracker = PartitionTracker(releases_during_job=True)
    tracker.deployed(TM_1, [descriptor(0, 2), descriptor(1, 2)])
    tracker.lose(str(partition_id(0)))
    assert tracker.tracked == {partition_id(1)}


def test_the_scheduler_has_results_released_with_their_last_consumer() -> None:
    job = Fixture(result_type=BLOCKING)
    job.run()
    producer_1, producer_2, consumer_1, consumer_2 = job.attempts
    for attempt in (producer_1, producer_2, consumer_1):
        job.report(attempt, S.FINISHED)
    assert job.services.released == []
    job.report(consumer_2, S.FINISHED)
    assert [(place, each.producer) for place, each in job.services.released] == [
        (TM_1, producer_1),
        (TM_2, producer_2),
    ]


def test_a_result_stays_while_a_task_goes_on_that_its_consumers_would_restart_with() -> None:
    job = Fixture(restarts=1, result_type=BLOCKING, vertex_count=3)
    job.run()
    producers, consumers, behind = (job.attempts[start : start + 2] for start in (0, 2, 4))
    for attempt in (*producers, *consumers, behind[0]):
        job.report(attempt, S.FINISHED)
    assert job.services.released == []
    job.report(behind[1], S.FAILED, USER_ERROR)
    for _, action in job.services.later:
        action()
    # Nobody writes anew what is there.
    assert [each.attempt_number for each in job.attempts] == [0, 0, 1, 1, 1, 1]
    assert job.services.released == []
    for attempt in job.attempts[2:]:
        job.report(attempt, S.RUNNING)
    # Its other tasks have finished once before: that counts no more.
    job.report(job.attempts[5], S.FINISHED)
    assert job.services.released == []
    for attempt in job.attempts[2:5]:
        job.report(attempt, S.FINISHED)
    assert {each.producer for _, each in job.services.released} == {*producers}


def test_a_restart_releases_what_the_old_attempts_wrote() -> None:
    job = Fixture(restarts=1, result_type=BLOCKING, strategy="full")
    job.run()
    producer_1, producer_2, consumer_1, consumer_2 = job.attempts
    job.report(producer_1, S.FINISHED)
    job.report(consumer_1, S.FAILED, USER_ERROR)
    for attempt in (producer_2, consumer_2):
        job.report(attempt, S.CANCELED)
    assert job.services.released == []
    for _, action in job.services.later:
        action()
    assert {each.producer for _, each in job.services.released} == {producer_1, producer_2}
    assert len(job.services.released) == 2


def test_a_consumer_reads_a_stored_result_again_without_its_producers() -> None:
    job = Fixture(restarts=1, result_type=BLOCKING)
    job.run()
    producer_1, _, consumer_1, _ = job.attempts
    job.report(producer_1, S.FINISHED)
    job.report(consumer_1, S.FAILED, USER_ERROR)
    assert job.services.cancelled == []
    job.services.later[0][1]()
    assert [each.attempt_number for each in job.attempts] == [0, 0, 1, 0]
    assert job.services.released == []


def test_a_producer_whose_result_cannot_be_read_writes_it_again_for_all_its_consumers() -> None:
    job = Fixture(restarts=1, result_type=BLOCKING)
    job.run()
    producer_1, _, consumer_1, consumer_2 = job.attempts
    job.report(producer_1, S.FINISHED)
    lost = str(job.services.submitted[0][1].result_partitions[0].descriptor.partition_id)
    error = error_info_of(PartitionNotFoundError(lost, "tm-1"))
    job.report(consumer_1, S.FAILED, error)
    assert job.services.cancelled == [consumer_2]
    job.report(consumer_2, S.CANCELED)
    job.services.later[0][1]()
    assert [each.attempt_number for each in job.attempts] == [1, 0, 1, 1]


def test_nothing_is_said_to_a_task_manager_that_is_gone() -> None:
    job = Fixture(restarts=1, result_type=BLOCKING)
    job.run()
    producer_1, _, consumer_1, _ = job.attempts
    job.scheduler.lose_task_manager(TM_2, USER_ERROR)
    for attempt in (producer_1, consumer_1):
        job.report(attempt, S.CANCELED)
    for _, action in job.services.later:
        action()
    assert [place for place, _ in job.services.released] == [TM_1]
