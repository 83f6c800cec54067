"""ResultPartitionManager: who waits for a partition hears whatever becomes of it, and late ones are told."""

from collections.abc import Iterator

import pytest

from headrace.network.errors import PartitionNotFoundError, ProducerFailedError
from headrace.network.partitions.partition_manager import FAILURES_KEPT_MAX, ResultPartitionManager
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import partition_id, writer
from tests.unit.network.simulated import SimulatedCluster


@pytest.fixture
def sink() -> Iterator[RecordWriter]:
    cluster = SimulatedCluster()
    environment, _ = cluster.start("a")
    made = writer(environment)
    yield made
    made.partition.release()
    made.close()
    cluster.assert_nothing_leaks()


def attach(manager: ResultPartitionManager) -> None:
    manager.create_view(partition_id(), 0, lambda: None, 1024).release()


def test_who_waits_is_called_once_when_the_partition_is_registered_and_at_once_from_then_on(
    sink: RecordWriter,
) -> None:
    manager, told = ResultPartitionManager("a"), []
    manager.watch(partition_id(), lambda: told.append("early"))
    with pytest.raises(PartitionNotFoundError):
        attach(manager)
    manager.register(sink.partition)
    manager.watch(partition_id(), lambda: told.append("late"))
    assert told == ["early", "late"]


def test_who_waits_for_a_partition_that_fails_while_it_is_withdrawn_is_told_why(
    sink: RecordWriter,
) -> None:
    # The master has had it withdrawn, a consumer finds it gone, and then its task reports why it failed.
    manager, told = ResultPartitionManager("a"), []
    manager.watch(partition_id(), lambda: told.append("early"))
    manager.record_failure(sink.partition, "a bad row")
    manager.watch(partition_id(), lambda: told.append("late"))
    assert told == ["early", "late"]
    with pytest.raises(ProducerFailedError, match="a bad row"):
        attach(manager)


def test_who_waits_no_more_is_not_called(sink: RecordWriter) -> None:
    manager, told = ResultPartitionManager("a"), []

    def one() -> None:
        told.append("one")

    def other() -> None:
        told.append("other")

    for watcher in (one, other):
        manager.watch(partition_id(), watcher)
    manager.unwatch(partition_id(), one)
    manager.unwatch(partition_id(), one)
    manager.register(sink.partition)
    assert told == ["other"]


def test_of_failures_the_newest_are_remembered(sink: RecordWriter) -> None:
    manager = ResultPartitionManager("a")
    manager.record_failure(sink.partition, "a bad row")
    cluster = SimulatedCluster()
    environment, _ = cluster.start("b")
    for number in range(1, FAILURES_KEPT_MAX + 1):
        other = writer(environment, number=number)
        manager.record_failure(other.partition, "another one")
        other.close()
        other.partition.release()
    with pytest.raises(PartitionNotFoundError):
        attach(manager)
    with pytest.raises(ProducerFailedError, match="another one"):
        manager.create_view(partition_id(1), 0, lambda: None, 1024)
    cluster.assert_nothing_leaks()
