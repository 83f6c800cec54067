"""Shuffle descriptors: what they say of a partition's place, and that they travel."""

import msgspec
import pytest

from headrace.core.ids import ResourceId
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from tests.unit.network.exchange import attempt, partition_id

PLACE = TaskManagerLocation(ResourceId("tm-1"), "host", 7, "/run/x.sock", "id")
KEY = partition_id(3)
INTERNAL = ShuffleDescriptor(KEY, PLACE)
EXTERNAL = ShuffleDescriptor(KEY, PLACE, is_external=True)


def test_a_partition_is_lost_with_the_task_manager_that_stores_it() -> None:
    assert INTERNAL.stored_by == ResourceId("tm-1")


def test_an_external_partition_is_stored_by_no_task_manager() -> None:
    assert EXTERNAL.stored_by is None


@pytest.mark.parametrize(
    "message",
    [
        INTERNAL,
        EXTERNAL,
        ResultPartitionDescriptor(KEY, ResultPartitionType.BLOCKING, 4, EXTERNAL),
        ResultPartitionDescriptor(KEY, ResultPartitionType.PIPELINED_BOUNDED, 4),
        ProducerDescriptor(attempt("map"), PLACE),
        PartitionDescriptor(KEY.data_set_id, 3, 8, ResultPartitionType.BLOCKING, 4, True),
    ],
)
def test_descriptors_travel(message: msgspec.Struct) -> None:
    encoded = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(encoded, type=type(message)) == message
