"""One suite over all kinds of channels: they must not differ in what a task can see.

Within a process, simulated, over Unix sockets, TCP and TLS, with checksums and once without: see the fixture `edge`.
"""

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.barriers import (
    AlignmentMode,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.core.elements import (
    CancelTaskException,
    EndOfData,
    EndOfPartition,
    PlacedMarker,
    StopMode,
    Watermark,
    WatermarkStatus,
)
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.threads import start_thread
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import ProducerFailedError, RecordTooLargeError
from headrace.network.gates.gate import BatchElement, EventElement, GateElement
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from testkit.waiting import wait_until
from tests.integration.network.conftest import Edge
from tests.unit.network.exchange import (
    drain,
    events_of,
    gate,
    next_element,
    numbers,
    values_of,
    writer,
)

pytestmark = pytest.mark.integration
TEXTS = BatchType(Types.STRING())
UNALIGNED = CheckpointBarrier(7, 0, CheckpointOptions(alignment=AlignmentMode.UNALIGNED))


def texts(values: list[str]) -> RecordBatch:
    columns = pa.RecordBatch.from_arrays([pa.array(values)], names=["value"])
    return RecordBatch.of_columns(TEXTS, columns)


def test_every_row_arrives_once_and_in_order(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])

    def produce() -> None:
        for start in range(0, 300_000, 1000):
            sink.emit(numbers(start, 1000))
        sink.finish()
        sink.close()

    source.request_partitions()
    producing = start_thread("producer", produce)
    elements = drain(source)
    producing.join()
    source.close()
    assert values_of(elements) == list(range(300_000))
    assert sink.records_out == source.records_in == 300_000
    assert sink.buffers_out == source.buffers_in_local + source.buffers_in_remote
    assert sink.bytes_out == source.bytes_in_local + source.bytes_in_remote


def test_markers_stand_between_the_rows_they_stood_between(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit_marker(WatermarkStatus(True))
    sink.flush_all()
    sink.emit(numbers(0, 2))
    sink.emit_marker(WatermarkStatus(False))
    sink.emit_marker(Watermark(1))
    sink.emit_marker(Watermark(2))
    sink.emit(numbers(2, 2))
    sink.emit_event(EndOfData(StopMode.NO_DRAIN))
    sink.finish()
    sink.close()
    idle, rows, *rest = drain(source)
    source.close()
    assert isinstance(idle, BatchElement)
    assert isinstance(rows, BatchElement)
    assert (idle.batch.num_rows, idle.markers) == (0, (PlacedMarker(0, WatermarkStatus(True)),))
    assert rows.batch.num_rows == 4
    assert rows.markers == (PlacedMarker(2, WatermarkStatus(False)), PlacedMarker(2, Watermark(2)))
    assert events_of(rest) == [EndOfData(StopMode.NO_DRAIN), EndOfPartition()]


def test_timestamps_and_keys_travel_with_the_rows(edge: Callable[..., Edge]) -> None:
    ends = edge()
    keyed_type = BatchType(Types.LONG(), Types.STRING())
    sink = writer(ends.producer)
    source = gate(ends.consumer, [ends.location], batch_type=keyed_type)
    batch = (
        numbers(0, 3)
        .with_timestamps(np.array([10, 20, 30]))
        .with_keys(Types.STRING(), np.array([1, 2, 3], dtype=np.int32), keys=["a", "b", "c"])
    )
    source.request_partitions()
    sink.emit(batch)
    sink.finish()
    sink.close()
    element = next_element(source)
    drain(source)
    source.close()
    assert isinstance(element, BatchElement)
    assert element.batch.timestamps is not None
    assert element.batch.timestamps.tolist() == [10, 20, 30]
    assert list(element.batch.keys()) == ["a", "b", "c"]


def test_a_batch_larger_than_a_segment_is_cut_between_rows(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    producing = start_thread(
        "producer", lambda: (sink.emit(numbers(0, 1_000_000)), sink.finish(), sink.close())
    )
    elements = drain(source)
    producing.join()
    source.close()
    assert values_of(elements) == list(range(1_000_000))
    sizes = [
        element.batch.num_rows * 8 for element in elements if isinstance(element, BatchElement)
    ]
    assert len(sizes) >= 8
    assert max(sizes) <= sink.partition.pool.segment_size


def test_a_row_larger_than_a_segment_arrives_whole(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink = writer(ends.producer)
    source = gate(ends.consumer, [ends.location], batch_type=TEXTS)
    source.request_partitions()
    values = ["small", "x" * 5_000_000, "small again", "y" * 3_000_000]
    producing = start_thread(
        "producer", lambda: (sink.emit(texts(values)), sink.finish(), sink.close())
    )
    elements = drain(source)
    producing.join()
    source.close()
    assert values_of(elements) == values


@pytest.mark.parametrize("alignment", [AlignmentMode.ALIGNED, AlignmentMode.UNALIGNED])
def test_a_barrier_right_behind_a_row_larger_than_a_segment_parts_it_nowhere(
    edge: Callable[..., Edge], alignment: AlignmentMode
) -> None:
    is_past = alignment is AlignmentMode.UNALIGNED
    ends = edge()
    sink = writer(ends.producer, buffer_timeout_ms=0)
    source = gate(ends.consumer, [ends.location], batch_type=TEXTS)
    values = ["x" * 3_000_000, "behind"]
    assert sink.partition.pool.segment_size < len(values[0]) / 2
    sink.emit(texts(values[:1]))
    barrier = CheckpointBarrier(1, 0, CheckpointOptions(alignment=alignment))
    overtaken = [batch for _, every in sink.emit_barrier(barrier).overtaken() for batch in every]
    sink.emit(texts(values[1:]))
    sink.finish()
    sink.close()
    source.request_partitions()
    elements: list[GateElement] = []
    while (element := next_element(source)) is not None:
        elements.append(element)
        if events_of([element]) == [barrier] and not is_past:
            source.channels[0].resume()
    source.close()
    batches = [element for element in elements if isinstance(element, BatchElement)]
    assert [values_of([one]) for one in batches] == [[value] for value in values]
    # Caught whole where the barrier went past it, and sent whole all the same.
    caught = [one.arrow.column(0).to_pylist() for one in overtaken if one.arrow is not None]
    assert caught == ([values[:1]] if is_past else [])
    assert elements[0 if is_past else 1] == EventElement(0, barrier)


def test_a_row_larger_than_the_output_may_hold_is_a_clear_error(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink = writer(ends.producer)
    with pytest.raises(RecordTooLargeError, match=r"taskmanager\.memory\.segment-size"):
        sink.emit(texts(["x" * 20_000_000]))
    sink.close()
    sink.partition.release()


def test_a_changed_schema_is_announced_again(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink = writer(ends.producer, buffer_timeout_ms=0)
    source = gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit(numbers(0, 2))
    sink.emit(numbers(2, 2).with_timestamps(np.array([7, 8])))
    sink.emit(numbers(4, 2))
    sink.finish()
    sink.close()
    elements = [element for element in drain(source) if isinstance(element, BatchElement)]
    source.close()
    assert [element.batch.timestamps is None for element in elements] == [True, False, True]
    assert values_of(elements) == list(range(6))


def test_a_broadcast_reaches_every_channel_and_is_held_once(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink = writer(ends.producer, 3, PartitionerKind.BROADCAST)
    sources = [gate(ends.consumer, [ends.location], index) for index in range(3)]
    sink.emit(numbers(0, 100))
    sink.emit_marker(Watermark(1))
    sink.flush_all()
    assert sink.partition.pool.used == 1
    sink.finish()
    sink.close()
    for source in sources:
        source.request_partitions()
        assert values_of(drain(source)) == list(range(100))
        source.close()


def test_a_slow_consumer_back_pressures_its_producer(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    emitted = 0
    while sink.is_available and emitted < 1000:
        sink.emit(numbers(emitted * 20_000, 20_000))
        emitted += 1
        if emitted > 20:
            # A remote consumer that takes nothing holds at most its own segments and what fits the sockets.
            wait_until(lambda: True)
    assert emitted < 200
    available = threading.Event()
    sink.on_available(available.set)
    assert not available.is_set()
    values: list[int] = []
    while not available.is_set():
        element = next_element(source)
        assert element is not None
        values += values_of([element])
    sink.finish()
    sink.close()
    values += values_of(drain(source))
    source.close()
    assert values == list(range(emitted * 20_000))


def test_a_blocked_producer_is_woken_by_close(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            while True:
                sink.emit(numbers(0, 20_000))
        except CancelTaskException as error:
            errors.append(error)

    producing = start_thread("producer", produce)
    wait_until(lambda: sink.partition.pool._blocked_count == 1)
    sink.close()
    producing.join(10)
    assert len(errors) == 1
    with pytest.raises(ProducerFailedError, match="the producer was cancelled"):
        drain(source)
    source.close()


def test_a_closed_gate_lets_its_producer_run_free(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit(numbers(0, 10))
    sink.flush_all()
    next_element(source)
    source.close()
    with pytest.raises(CancelTaskException):
        source.poll()
    for _ in range(200):
        sink.emit(numbers(0, 20_000))
    sink.finish()
    sink.close()
    wait_until(lambda: ends.producer.partitions.partition_count == 0)


def test_one_stalled_channel_does_not_stop_its_neighbour(edge: Callable[..., Edge]) -> None:
    ends = edge()
    stalled_sink, sink = writer(ends.producer, number=0), writer(ends.producer, number=1)
    stalled = gate(ends.consumer, [ends.location])
    stalled.request_partitions()
    while stalled_sink.is_available:
        stalled_sink.emit(numbers(0, 20_000))
        threading.Event().wait(0.001)
    neighbour = gate(ends.consumer, [ends.location] * 2)
    # Only the second channel of this gate: the first partition has its consumer already.
    neighbour.channels[1].request()

    def produce() -> None:
        for start in range(0, 2_000_000, 20_000):
            sink.emit(numbers(start, 20_000))
        sink.finish()
        sink.close()

    producing = start_thread("producer", produce)
    received = 0
    while received < 2_000_000:
        element = next_element(neighbour)
        assert element is not None
        received += len(values_of([element]))
    producing.join()
    drain_end = next_element(neighbour)
    assert events_of([drain_end] if drain_end else []) == [EndOfPartition()]
    neighbour.close()
    stalled.close()
    stalled_sink.close()
    stalled_sink.partition.release()


def test_an_unaligned_barrier_overtakes_what_waits_on_its_channel(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    for start in range(0, 50, 10):
        sink.emit(numbers(start, 10))
        sink.flush_all()
    sink.emit_barrier(UNALIGNED)
    sink.finish()
    sink.close()
    source.request_partitions()
    elements = drain(source)
    source.close()
    assert isinstance(elements[0], EventElement)
    assert values_of(elements) == list(range(50))
    assert events_of(elements) == [UNALIGNED, EndOfPartition()]


def test_barriers_and_their_cancellations_arrive_as_they_were_sent(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    # Longer than what is received in pieces.
    options = CheckpointOptions(exclusive_uri="memory://" + "x" * 20_000, shared_uri="memory://s")
    sent = [CheckpointBarrier(7, 1_700_000_000_000, options, 12), CancelCheckpointMarker(8)]
    for event in sent:
        sink.partition.emit_event(event)
    sink.finish()
    sink.close()
    assert events_of(drain(source)) == [*sent, EndOfPartition()]
    source.close()


def test_nothing_follows_a_blocking_event_until_its_channel_is_resumed(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    channel = source.channels[0]
    for round_number in range(3):
        sink.partition.emit_event(EndOfData(StopMode.NO_DRAIN), blocks_upstream=True)
        sink.emit(numbers(round_number * 10, 10))
        sink.flush_all()
        # What overtakes is the proof that whatever could have come has come.
        sink.emit_barrier(UNALIGNED)
        events = [next_element(source), next_element(source)]
        assert {str(event) for event in events_of([e for e in events if e])} == {
            str(UNALIGNED),
            str(EndOfData(StopMode.NO_DRAIN)),
        }
        assert source.poll() is None
        channel.resume()
        element = next_element(source)
        assert values_of([element] if element else []) == list(
            range(round_number * 10, round_number * 10 + 10)
        )
    sink.finish()
    sink.close()
    drain(source)
    source.close()


def test_the_producer_learns_when_all_consumers_have_processed_its_data(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink = writer(ends.producer, 2)
    sources = [gate(ends.consumer, [ends.location], index) for index in range(2)]
    processed = threading.Event()
    sink.partition.on_all_data_processed(processed.set)
    sink.emit_event(EndOfData())
    for source in sources:
        assert not processed.is_set()
        source.request_partitions()
        element = next_element(source)
        assert events_of([element] if element else []) == [EndOfData()]
        source.channels[0].acknowledge_all_data()
    assert processed.wait(10)
    sink.finish()
    sink.close()
    for source in sources:
        drain(source)
        source.close()


def test_the_producer_learns_how_many_bytes_its_consumer_wants_in_flight(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    assert isinstance(sink.partition, PipelinedResultPartition)
    subpartition = sink.partition.subpartitions[0]
    sink.emit(numbers(0, 1))
    sink.flush_all()
    source.request_partitions()
    next_element(source)
    source.channels[0].request_in_flight_rows(123_456)
    wait_until(lambda: subpartition.in_flight_rows == 123_456)
    sink.finish()
    sink.close()
    drain(source)
    source.close()


def test_memory_of_the_minimum_size_is_slow_but_live(edge: Callable[..., Edge]) -> None:
    # 40 pages of 32 KiB for a gate of 10 and a partition of 2 to 10 segments.
    ends = edge(
        taskmanager_memory_network_min="1280kb",
        taskmanager_memory_network_max="1280kb",
        taskmanager_memory_network_fraction="0.0001",
    )
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    producing = start_thread(
        "producer",
        lambda: (
            [sink.emit(numbers(i * 1000, 1000)) for i in range(500)],
            sink.finish(),
            sink.close(),
        ),
    )
    assert values_of(drain(source)) == list(range(500_000))
    producing.join()
    source.close()


def test_what_is_closed_after_its_environment_still_gives_everything_back(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    sink.emit(numbers(0, 20_000))
    wait_until(lambda: source.is_available)
    ends.consumer.close()
    ends.producer.close()
    ends.producer.close()
    with pytest.raises(CancelTaskException):
        sink.emit(numbers(0, 20_000))
    sink.close()
    source.close()
    for pool in (ends.producer.buffer_pool, ends.consumer.buffer_pool):
        # The simulated network's thread outlives its environments.
        wait_until(lambda pool=pool: pool.count_idle_pages() == pool.total_pages)
