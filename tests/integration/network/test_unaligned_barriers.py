"""Unaligned barriers over all kinds of channels: what overtakes, what is announced, what is captured on either side."""

import random
from collections.abc import Callable

import msgspec
import pytest

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfPartition
from headrace.core.threads import start_thread
from headrace.network.gates.gate import BarrierAnnouncement, BatchElement, EventElement, GateElement
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.in_flight_output import InFlightOutput
from testkit.waiting import wait_until
from tests.integration.network.conftest import Edge
from tests.unit.network.exchange import gate, next_element, numbers, values_of, writer

pytestmark = pytest.mark.integration

UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
TIMEOUT = CheckpointOptions(aligned_timeout_ms=100)


def rows_of(batches: list[tuple[int, CapturedBatch]]) -> list[int]:
    found: list[int] = []
    for _, batch in batches:
        arrow = batch.read()
        assert arrow is not None and arrow.num_rows == batch.row_count
        found += arrow.column(0).to_pylist()
    return found


def overtaken_by(capture: InFlightOutput) -> list[int]:
    return [
        value
        for _, batches in capture.overtaken()
        for sealed in batches
        if sealed.arrow is not None
        for value in sealed.arrow.column(0).to_pylist()
    ]


def taken(source: SingleInputGate) -> GateElement:
    element = next_element(source)
    assert element is not None
    return element


def is_remote(ends: Edge) -> bool:
    return ends.producer is not ends.consumer


def test_what_a_barrier_overtakes_is_captured_on_one_side_or_the_other(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    for start in range(0, 500, 10):
        sink.emit(numbers(start, 10))
        sink.flush_all()
        if not sink.is_available:
            break
    emitted = start + 10
    if is_remote(ends):
        # One to process, and one that stays in flight.
        wait_until(lambda: source.queue_length > 1)
    processed = values_of([taken(source)])
    barrier = CheckpointBarrier(7, 0, UNALIGNED)
    sink.emit(numbers(emitted, 5))
    capture = sink.emit_barrier(barrier)
    # It waits for no turn and for no credit, and has overtaken what came before it.
    wait_until(lambda: source.has_priority_event)
    assert taken(source) == EventElement(0, barrier)
    source.start_capture(7)
    in_flight = rows_of(source.stop_capture(7))
    assert processed + in_flight + overtaken_by(capture) == list(range(emitted + 5))
    assert not is_remote(ends) or in_flight
    finish_and_drain(sink, source, emitted + 5 - len(processed))


def finish_and_drain(sink: object, source: SingleInputGate, row_count: int) -> None:
    """Whatever was captured is delivered all the same."""
    values: list[int] = []

    def read() -> None:
        while (element := next_element(source)) is not None:
            values.extend(values_of([element]))

    thread = start_thread("reads", read)
    sink.finish()  # type: ignore[attr-defined]
    sink.close()  # type: ignore[attr-defined]
    thread.join(10)
    assert len(values) == row_count
    source.close()


def test_an_announced_barrier_is_let_through_with_what_stands_before_it_captured(
    edge: Callable[..., Edge],
) -> None:
    ends = edge()
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    for start in (0, 10):
        sink.emit(numbers(start, 10))
        sink.flush_all()
    if is_remote(ends):
        wait_until(lambda: source.queue_length == 2)
    barrier = CheckpointBarrier(7, 0, TIMEOUT)
    capture = sink.emit_barrier(barrier)
    if not is_remote(ends):
        # Nothing announces it: its producer, in the same process, has the time-out.
        sink.partition.time_out_barrier(7)
        late = msgspec.structs.replace(barrier, options=TIMEOUT.with_unaligned(), elapsed_ms=100)
        assert taken(source) == EventElement(0, late)
        assert overtaken_by(capture) == list(range(20))
    else:
        wait_until(lambda: source.has_priority_event)
        element = taken(source)
        assert isinstance(element, EventElement)
        assert element.event == BarrierAnnouncement(barrier, 2)
        source.prioritise(0, 2)
        assert source.has_priority_event
        assert taken(source) == EventElement(0, barrier)
        source.start_capture(7)
        assert rows_of(source.stop_capture(7)) == list(range(20))
        assert capture.is_complete and not capture.overtaken()
        # It came in line, so its producer has stopped.
        source.resume(0)
    sink.partition.time_out_barrier(7)
    finish_and_drain(sink, source, 20)


def test_what_comes_until_the_barrier_does_is_captured(edge: Callable[..., Edge]) -> None:
    ends = edge()
    sinks = [writer(ends.producer, number=number) for number in range(2)]
    source = gate(ends.consumer, [ends.location, ends.location])
    source.request_partitions()
    barrier = CheckpointBarrier(7, 0, UNALIGNED)
    first = sinks[0].emit_barrier(barrier)
    assert taken(source) == EventElement(0, barrier)
    source.start_capture(7)
    sinks[1].emit(numbers(0, 10))
    sinks[1].flush_all()
    assert values_of([taken(source)]) == list(range(10))
    second = sinks[1].emit_barrier(barrier)
    assert taken(source) == EventElement(1, barrier)
    for sink in sinks:
        sink.emit(numbers(10, 10))
        sink.flush_all()
    for _ in range(2):
        taken(source)
    captured = source.stop_capture(7)
    assert [index for index, _ in captured] == [1]
    assert rows_of(captured) == list(range(10))
    assert first.overtaken() == second.overtaken() == []
    for sink in sinks:
        sink.finish()
        sink.close()
    while next_element(source) is not None:
        pass
    source.close()


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_processed_or_captured_once_while_both_sides_run(
    edge: Callable[..., Edge], seed: int
) -> None:
    """A producer on a thread of its own; barriers of every kind at any moment; switches at any moment."""
    ends, chance = edge(), random.Random(seed)
    sink, source = writer(ends.producer), gate(ends.consumer, [ends.location])
    source.request_partitions()
    before: dict[int, int] = {}
    outputs: dict[int, InFlightOutput] = {}

    def produce() -> None:
        value, own = 0, random.Random(seed + 1000)
        for checkpoint_id in range(1, 9):
            for _ in range(own.randrange(30)):
                sink.emit(numbers(value, 3))
                value += 3
                if own.random() < 0.7:
                    sink.flush_all()
            before[checkpoint_id] = value
            options = own.choice([UNALIGNED, TIMEOUT, CheckpointOptions()])
            outputs[checkpoint_id] = sink.emit_barrier(CheckpointBarrier(checkpoint_id, 0, options))
            if own.random() < 0.5:
                sink.partition.time_out_barrier(checkpoint_id)
        sink.finish()
        sink.close()

    thread = start_thread("produces", produce)
    processed: list[int] = []
    snapshots: dict[int, tuple[int, list[int]]] = {}
    while (element := next_element(source)) is not None:
        match element:
            case BatchElement():
                processed += values_of([element])
            case EventElement(_, BarrierAnnouncement() as announced) if chance.random() < 0.5:
                source.prioritise(0, announced.sequence)
            case EventElement(_, CheckpointBarrier() as barrier):
                source.start_capture(barrier.checkpoint_id)
                rows = rows_of(source.stop_capture(barrier.checkpoint_id))
                snapshots[barrier.checkpoint_id] = (len(processed), rows)
                if not barrier.options.is_unaligned:
                    source.resume(0)
            case EventElement(_, EndOfPartition()):
                break
            case _:
                pass
    thread.join(10)
    source.close()
    assert processed == list(range(before[8]))
    for checkpoint_id, (count, in_flight) in snapshots.items():
        capture = outputs[checkpoint_id]
        if capture.is_complete:
            rows = processed[:count] + in_flight + overtaken_by(capture)
            assert rows == list(range(before[checkpoint_id])), checkpoint_id
