"""Errors that the exchange keeps say what they said, and keep nothing of what was going on when they were raised."""

import gc
from collections.abc import Callable, Iterator
from weakref import ref

import pytest

from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.network.errors import (
    ConnectionLostError,
    CreditOverspentError,
    NetworkError,
    ProducerFailedError,
    SequenceGapError,
    copy_of,
)
from headrace.network.gates.remote_channel import RemoteInputChannel
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.result_subpartition import LOCAL_SEGMENT_BYTES
from headrace.network.wire.frame_decoder import FrameDecoder
from headrace.network.wire.frames import Data, PartitionRequest
from headrace.network.wire.framing import Frame
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

ROWS_OF_A_SEGMENT = 3_000
"""Rows of a batch that is received into a segment, and still together with what is sent with it."""


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[type[Frame]]]:
    """The classes of the frames that each read of any connection completed."""
    found: list[list[type[Frame]]] = []
    received = FrameDecoder.received

    def noted(self: FrameDecoder, byte_count: int) -> list[Frame]:
        frames = received(self, byte_count)
        found.append([type(frame) for frame in frames])
        return frames

    monkeypatch.setattr(FrameDecoder, "received", noted)
    return found


def used_segments(source: SingleInputGate) -> int:
    """Segments of the gate that somebody refers to."""
    assert source.receiver is not None
    return source.receiver.region.count - len(source.receiver.region.free)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLostError("tm-1", "it broke"),
        ProducerFailedError("p", "a bad row"),
        SequenceGapError("tm-1", "7", 3, 5),
        CreditOverspentError("tm-1", "7", 1, 2),
    ],
)
def test_a_copy_says_the_same_and_keeps_nothing(error: NetworkError) -> None:
    try:
        raise error from ValueError("before")
    except NetworkError as caught:
        copied = copy_of(caught)
        assert caught.__traceback__ is not None
    assert type(copied) is type(error) and copied is not error
    assert str(copied) == str(error) and copied.args == error.args
    assert vars(copied) == vars(error)
    assert copied.__traceback__ is copied.__cause__ is copied.__context__ is None


def test_a_batch_that_came_with_a_request_for_what_has_failed_is_free_once_its_gate_is_closed(
    cluster: SimulatedCluster, reads: list[list[type[Frame]]]
) -> None:
    producer, producer_place = cluster.start("a")
    consumer, consumer_place = cluster.start("b")
    sink, source = writer(producer), gate(consumer, [producer_place])
    source.request_partitions()
    cluster.loop.run_for(100)
    writer(consumer, number=1).fail(ValueError("a bad row"))
    reads.clear()
    late = gate(producer, [consumer_place], first_number=1)
    late.request_partitions()
    sink.emit(numbers(0, ROWS_OF_A_SEGMENT))
    sink.flush_all()
    cluster.loop.run_for(100)
    assert any(PartitionRequest in read and Data in read for read in reads)
    assert source.queue_length == used_segments(source) == 1
    source.close()
    cluster.loop.run_for(100)
    gc.collect()
    assert used_segments(source) == 0
    # The failure itself is remembered.
    with pytest.raises(ProducerFailedError, match="a bad row"):
        late.poll()
    late.close()
    sink.close()


def test_a_batch_that_came_with_what_another_channel_refuses_is_free_once_its_gate_is_closed(
    cluster: SimulatedCluster, reads: list[list[type[Frame]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, place = cluster.start("a")
    consumer, _ = cluster.start("b")
    sinks = [writer(producer, number=number) for number in range(2)]
    source, other = (gate(consumer, [place], first_number=number) for number in range(2))
    for each in (source, other):
        each.request_partitions()
    cluster.loop.run_for(100)
    (channel,) = other.channels
    assert isinstance(channel, RemoteInputChannel)
    monkeypatch.setattr(channel, "_next_sequence", 1)  # as where an element was lost
    reads.clear()
    for sink in sinks:
        sink.emit(numbers(0, ROWS_OF_A_SEGMENT))
        sink.flush_all()
    cluster.loop.run_for(100)
    assert any(read.count(Data) == 2 for read in reads)
    assert source.queue_length == used_segments(source) == 1
    source.close()
    cluster.loop.run_for(100)
    gc.collect()
    assert used_segments(source) == 0
    with pytest.raises(SequenceGapError):
        other.poll()
    other.close()
    for sink in sinks:
        sink.close()
        sink.partition.release()


class Work:
    """What somebody is working on who catches an error."""


def work_of(call: Callable[[], object]) -> "ref[Work]":
    """Call, and refer to what was worked on meanwhile."""
    work = Work()
    with pytest.raises(ProducerFailedError, match="a bad row"):
        call()
    return ref(work)


def late_request(cluster: SimulatedCluster) -> Callable[[], object]:
    environment, _ = cluster.start("a")
    writer(environment).fail(ValueError("a bad row"))
    return lambda: environment.partitions.create_view(partition_id(), 0, lambda: None, 1024)


def late_view(cluster: SimulatedCluster) -> Callable[[], object]:
    environment, _ = cluster.start("a")
    sink = writer(environment, result_type=ResultPartitionType.BLOCKING)
    sink.fail(ValueError("a bad row"))
    return lambda: sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)


def view_of(result_type: ResultPartitionType) -> Callable[[SimulatedCluster], Callable[[], object]]:
    def view(cluster: SimulatedCluster) -> Callable[[], object]:
        environment, _ = cluster.start("a")
        sink = writer(environment, result_type=result_type)
        view = sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)
        sink.fail(ValueError("a bad row"))
        return lambda: view.poll(1)

    return view


def channel_of(consumer_name: str) -> Callable[[SimulatedCluster], Callable[[], object]]:
    def channel(cluster: SimulatedCluster) -> Callable[[], object]:
        producer, place = cluster.start("a")
        consumer = producer if consumer_name == "a" else cluster.start("b")[0]
        writer(producer).fail(ValueError("a bad row"))
        source = gate(consumer, [place])
        source.request_partitions()
        cluster.loop.run_for(100)
        return source.channels[0].poll

    return channel


@pytest.mark.parametrize(
    "raising",
    [
        pytest.param(late_request, id="late request"),
        pytest.param(late_view, id="late view"),
        pytest.param(view_of(ResultPartitionType.PIPELINED_BOUNDED), id="pipelined view"),
        pytest.param(view_of(ResultPartitionType.BLOCKING), id="stored view"),
        pytest.param(channel_of("a"), id="local channel"),
        pytest.param(channel_of("b"), id="remote channel"),
    ],
)
def test_an_error_that_is_raised_again_keeps_nothing_of_who_caught_it(
    raising: Callable[[SimulatedCluster], Callable[[], object]],
) -> None:
    cluster = SimulatedCluster()
    call = raising(cluster)
    works = [work_of(call) for _ in range(2)]
    gc.collect()
    assert [work() for work in works] == [None, None]
    for environment in cluster.environments:
        environment.close()
