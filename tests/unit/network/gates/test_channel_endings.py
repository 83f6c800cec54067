"""Channels that begin late, or end amid something: who waits is told, and nothing of theirs is kept or handed out."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.core.elements import CancelTaskException, EndOfPartition
from headrace.core.ids import ResultPartitionId
from headrace.network.errors import (
    ConnectionLostError,
    CorruptBatchError,
    NetworkError,
    PartitionNotFoundError,
    ProducerFailedError,
)
from headrace.network.gates.partition_requests import AnswerVerdict, ProducerVerdict
from headrace.network.gates.remote_channel import RemoteInputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_subpartition import ResultSubpartitionView
from headrace.network.wire.frame_decoder import DIRECT_BYTES
from headrace.network.wire.frames import Data
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.faulty_cluster import FaultyCluster
from tests.unit.network.scripted_gate import polled
from tests.unit.network.simulated import SimulatedCluster


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


class EagerTask:
    """Reads its gate as soon as it is told that there may be something, and waits again."""

    def __init__(self, source: SingleInputGate) -> None:
        self._source = source
        self.seen: list[object] = []
        self.error: NetworkError | CancelTaskException | None = None
        source.request_partitions()
        self._look()

    def _look(self) -> None:
        while not self._source.is_finished:
            try:
                self.seen += polled(self._source)
            except (NetworkError, CancelTaskException) as error:
                self.error = error
                return
            if not self._source.is_available:
                self._source.on_available(self._look)
                return


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_who_waits_for_a_producer_reads_what_it_had_emitted_before_it_was_found(
    cluster: SimulatedCluster, consumer_name: str
) -> None:
    producer, location = cluster.start("a")
    consumer = producer if consumer_name == "a" else cluster.start("b")[0]
    source = gate(consumer, [location])
    task = EagerTask(source)
    cluster.loop.run_for(100)
    sink = writer(producer)
    sink.emit(numbers(7, 1))
    sink.flush_all()
    cluster.loop.run_for(100)
    assert task.seen == [(0, 7)]
    # The time that it might have taken is not counted any more.
    cluster.loop.run_for(1_000_000)
    sink.emit(numbers(8, 1))
    sink.flush_all()
    cluster.loop.run_for(100)
    assert task.seen == [(0, 7), (0, 8)] and task.error is None
    source.close()
    sink.close()


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_who_waits_for_a_producer_that_fails_at_once_is_told_why(
    cluster: SimulatedCluster, consumer_name: str
) -> None:
    producer, location = cluster.start("a")
    consumer = producer if consumer_name == "a" else cluster.start("b")[0]
    source = gate(consumer, [location])
    task = EagerTask(source)
    cluster.loop.run_for(100)
    writer(producer).fail(ValueError("a bad row"))
    cluster.loop.run_for(100)
    assert isinstance(task.error, ProducerFailedError) and "a bad row" in str(task.error)
    source.close()


def test_a_channel_that_is_closed_while_it_finds_its_producer_lets_go_of_it(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the task is cancelled while the transport's thread attaches it.
    producer, location = cluster.start("a")
    source = gate(producer, [location])
    source.request_partitions()
    cluster.loop.run_for(100)
    create_view = producer.partitions.create_view

    def interrupted(*args: Any) -> ResultSubpartitionView:
        view = create_view(*args)
        source.close()
        return view

    monkeypatch.setattr(producer.partitions, "create_view", interrupted)
    sink = writer(producer)
    sink.emit(numbers(0, 100))
    sink.flush_all()
    cluster.loop.run_for(100)
    assert sink.partition.pool.used == 0
    sink.close()
    assert producer.partitions.partition_count == 0


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_a_result_that_was_read_to_its_end_is_gone_although_its_reader_goes_on(
    cluster: SimulatedCluster, consumer_name: str
) -> None:
    producer, location = cluster.start("a")
    consumer = producer if consumer_name == "a" else cluster.start("b")[0]
    sink, source = writer(producer), gate(consumer, [location])
    sink.emit(numbers(7, 1))
    sink.finish()
    sink.close()
    task = EagerTask(source)
    cluster.loop.run_for(100)
    assert task.seen == [(0, 7), (0, EndOfPartition())]
    assert producer.partitions.partition_count == 0
    source.close()


def test_nothing_that_came_behind_a_corrupt_batch_is_handed_out() -> None:
    cluster = FaultyCluster("corrupt Data sequence=1 at=56")
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    for start in range(4):
        sink.emit(numbers(start, 1))
        sink.flush_all()
    cluster.loop.run_for(100)
    (channel,) = source.channels
    assert channel.queued_count == 4
    assert channel.poll() is not None
    for _ in range(4):
        with pytest.raises(CorruptBatchError):
            channel.poll()
    source.close()
    sink.close()
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("end", ["lost", "close"])
def test_a_segment_for_a_batch_that_never_comes_is_free_again(
    cluster: SimulatedCluster, end: str
) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [location])
    source.request_partitions()
    cluster.loop.run_for(100)
    (channel,) = source.channels
    assert isinstance(channel, RemoteInputChannel) and source.receiver is not None
    region = source.receiver.region
    frame = Data(0, 0, 1, 0, 1, 0, (), b"")
    assert channel.place_data(frame, DIRECT_BYTES) is not None
    assert len(region.free) == region.count - 1
    if end == "lost":
        channel.lost(ConnectionLostError("a", "it broke"))
    else:
        channel.close()
        cluster.loop.run_for(10)
    gc.collect()
    assert len(region.free) == region.count
    source.close()
    sink.close()


def test_a_wish_of_a_channel_that_asks_again_is_told_again(cluster: SimulatedCluster) -> None:
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    source = gate(consumer, [location])
    answers: list[AnswerVerdict] = []

    def check(_: ResultPartitionId, answer: AnswerVerdict) -> None:
        answers.append(answer)

    source.check_producers_with(check)
    source.request_partitions()
    cluster.loop.run_for(100)
    (channel,) = source.channels
    channel.request_in_flight_rows(1 << 16)
    cluster.loop.run_until(lambda: bool(answers))
    answers.pop()(ProducerVerdict.ASK_AGAIN)
    sink = writer(producer)
    cluster.loop.run_for(1000)
    assert isinstance(sink.partition, PipelinedResultPartition)
    assert sink.partition.in_flight_rows(0) == 1 << 16
    source.close()
    sink.close()


@pytest.fixture
def watchers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Who waits for partitions of any TaskManager."""
    found: list[Callable[[], None]] = []
    watch, unwatch = ResultPartitionManager.watch, ResultPartitionManager.unwatch

    def noted_watch(
        self: ResultPartitionManager, identity: ResultPartitionId, watcher: Callable[[], None]
    ) -> None:
        found.append(watcher)
        watch(self, identity, watcher)

    def noted_unwatch(
        self: ResultPartitionManager, identity: ResultPartitionId, watcher: Callable[[], None]
    ) -> None:
        if watcher in found:
            found.remove(watcher)
        unwatch(self, identity, watcher)

    monkeypatch.setattr(ResultPartitionManager, "watch", noted_watch)
    monkeypatch.setattr(ResultPartitionManager, "unwatch", noted_unwatch)
    return found


@pytest.mark.parametrize("consumer_name", ["a", "b"])
@pytest.mark.parametrize("end", ["close", "its time is over"])
def test_who_stops_waiting_for_a_producer_is_forgotten(
    cluster: SimulatedCluster, watchers: list[Callable[[], None]], consumer_name: str, end: str
) -> None:
    producer, location = cluster.start("a")
    consumer = producer if consumer_name == "a" else cluster.start("b")[0]
    source = gate(consumer, [location])
    source.request_partitions()
    cluster.loop.run_for(100)
    assert len(watchers) == 1
    if end == "close":
        source.close()
        cluster.loop.run_for(100)
    else:
        cluster.loop.run_all()
        with pytest.raises(PartitionNotFoundError):
            source.poll()
    assert watchers == []
    source.close()
    # It is not called any more, and its producer waits for no consumer that has left.
    sink = writer(producer)
    cluster.loop.run_for(100)
    producer.release_partitions([partition_id()])
    sink.close()


def test_a_channel_that_is_closed_while_it_does_not_find_its_producer_waits_for_nobody(
    cluster: SimulatedCluster,
    watchers: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, location = cluster.start("a")
    source = gate(producer, [location])

    def interrupted(*_: Any) -> ResultSubpartitionView:
        source.close()
        raise PartitionNotFoundError(str(partition_id()), "a")

    monkeypatch.setattr(producer.partitions, "create_view", interrupted)
    source.request_partitions()
    cluster.loop.run_for(100)
    assert watchers == [] and not cluster.loop.step(), "nor for the time to pass"
