"""PartitionTracker and persistent results: kept for the whole job, and promoted where they lie when it has finished."""

import pytest

from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.core.ids import ExecutionVertexId
from headrace.core.shuffle_descriptors import (
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
)
from tests.unit.cluster.cluster_partition_samples import LOCATION, part
from tests.unit.cluster.cluster_samples import TM_1, TM_2, vertex_id
from tests.unit.network.exchange import partition_id

PERSISTENT, BLOCKING = ResultPartitionType.BLOCKING_PERSISTENT, ResultPartitionType.BLOCKING
CONSUMER = ExecutionVertexId(vertex_id(9), 0)


def descriptor(
    number: int, kind: ResultPartitionType = PERSISTENT, *, is_external: bool = False
) -> ResultPartitionDescriptor:
    shuffle = ShuffleDescriptor(partition_id(number), LOCATION, is_external)
    return ResultPartitionDescriptor(partition_id(number), kind, 1, shuffle)


def deployed(*descriptors: ResultPartitionDescriptor) -> PartitionTracker:
    tracker = PartitionTracker(releases_during_job=True)
    for place, each in zip((TM_1, TM_2), descriptors, strict=False):
        tracker.deployed(place, [each], 2)
    return tracker


@pytest.mark.parametrize(("kind", "is_kept"), [(PERSISTENT, True), (BLOCKING, False)])
def test_the_last_consumer_releases_only_what_is_not_persistent(
    kind: ResultPartitionType, is_kept: bool
) -> None:
    tracker = deployed(descriptor(0, kind))
    released = tracker.consumed(CONSUMER, [partition_id(0)])
    assert released == ({} if is_kept else {TM_1: (partition_id(0),)})
    assert (partition_id(0) in tracker.tracked) is is_kept


def test_persistent_results_are_promoted_where_they_lie_and_once() -> None:
    tracker = deployed(descriptor(0), descriptor(1))
    assert tracker.promote() == {TM_1: (part(0),), TM_2: (part(1),)}
    assert tracker.promote() == {}
    assert tracker.tracked == frozenset()


def test_others_are_not_promoted() -> None:
    tracker = deployed(descriptor(0, BLOCKING), descriptor(1, BLOCKING))
    assert tracker.promote() == {}
    assert tracker.tracked == {partition_id(0), partition_id(1)}


def test_what_is_left_of_a_data_set_that_lost_a_part_goes_with_the_job() -> None:
    tracker = deployed(descriptor(0), descriptor(1))
    tracker.lost(TM_1)
    assert tracker.promote() == {}
    assert tracker.tracked == {partition_id(1)}


def test_what_a_service_stores_is_not_promoted() -> None:
    assert deployed(descriptor(0, is_external=True)).promote() == {}


def test_what_was_lost_or_is_written_again_is_not_promoted() -> None:
    tracker = deployed(descriptor(0), descriptor(1))
    tracker.lost(TM_1)
    subtask = partition_id(1).producer.execution_vertex_id
    assert tracker.restarted([subtask]) == {TM_2: (partition_id(1),)}
    assert tracker.promote() == {}
