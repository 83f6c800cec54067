"""Captured output is sent again first after a restore: no row of any sender, and no barrier, overtakes it."""

import pytest

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfOutputChannelState
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.gate import BatchElement
from headrace.network.gates.single_input_gate import UpstreamRecovery, recover_together
from headrace.network.partitions.result_subpartition import DataElement, ResultSubpartitionView
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.scripted_gate import Gate, polled, rows
from tests.unit.network.simulated import SimulatedCluster

UNALIGNED = CheckpointBarrier(7, 0, CheckpointOptions(alignment=AlignmentMode.UNALIGNED))
TIMEOUT = CheckpointBarrier(7, 0, CheckpointOptions(aligned_timeout_ms=100))
END = EndOfOutputChannelState()


def restored(sink: RecordWriter, *values: int) -> None:
    for value in values:
        sink.restore(0, [SealedBatch(numbers(value, 1).columns(), ())])
    sink.finish_restore()


def emitted(sink: RecordWriter, value: int) -> None:
    sink.emit(numbers(value, 1))
    sink.flush_all()


def overtaken_by(sink: RecordWriter, barrier: CheckpointBarrier) -> list[int]:
    capture = sink.emit_barrier(barrier)
    sink.time_out_barrier(barrier.checkpoint_id)
    assert capture.is_complete
    return [
        value
        for _, batches in capture.overtaken()
        for sealed in batches
        if sealed.arrow is not None
        for value in sealed.arrow.column(0).to_pylist()
    ]


def taken(view: ResultSubpartitionView) -> list[object]:
    """All that the view hands out now: rows as their values, events as they are."""
    found: list[object] = []
    while (element := view.poll(1 << 20)) is not None:
        if isinstance(element, DataElement):
            assert element.sealed.arrow is not None
            found += element.sealed.arrow.column(0).to_pylist()
            if element.lease is not None:
                element.lease.release()
        else:
            found.append(getattr(element, "event", element))
    return found


def test_the_last_channel_resumes_all() -> None:
    recovery = UpstreamRecovery([1, 2])
    told = [recovery.recovered(*place) for place in ((1, 1), (0, 0), (1, 0))]
    assert [list(places) for places in told] == [[], [], [(0, 0), (1, 0), (1, 1)]]


def test_gates_of_one_task_resume_their_channels_once_all_of_them_have_recovered() -> None:
    quick, late = Gate(1), Gate(2)
    recover_together([quick.gate, late.gate])
    for each in (quick, late):
        each.gate.request_partitions()
    quick.scripted[0].give(END)
    late.scripted[1].give(END)
    assert polled(quick.gate) == polled(late.gate) == []
    late.scripted[0].give(rows(1))
    late.scripted[0].give(END)
    channels = [*quick.scripted.values(), *late.scripted.values()]
    assert not any("resume" in channel.calls for channel in channels)
    assert polled(late.gate) == [(0, 1)]
    assert [channel.calls.count("resume") for channel in channels] == [1, 1, 1]


def test_a_gate_resumes_its_channels_once_all_have_recovered_and_tells_nobody() -> None:
    made = Gate(2)
    made.gate.request_partitions()
    made.scripted[0].give(rows(1))
    made.scripted[0].give(END)
    assert polled(made.gate) == [(0, 1)]
    assert "resume" not in made.scripted[0].calls
    made.scripted[1].give(END)
    assert polled(made.gate) == []
    assert [channel.calls.count("resume") for channel in made.scripted.values()] == [1, 1]


@pytest.mark.parametrize("consumer_name", ["a", "b"])
def test_a_new_row_waits_for_what_another_sender_restores(consumer_name: str) -> None:
    cluster = SimulatedCluster()
    producer, there = cluster.start("a")
    consumer = producer if consumer_name == "a" else cluster.start("b")[0]
    quick, late = (writer(producer, number=number) for number in (0, 1))
    source = gate(consumer, [there, there])
    source.request_partitions()
    restored(quick)
    emitted(quick, 2)
    found: list[int] = []

    def read() -> None:
        cluster.loop.run_for(1000)
        while (element := source.poll()) is not None:
            assert isinstance(element, BatchElement)
            found.extend(values_of([element]))
            del element
        cluster.loop.run_for(1000)

    read()
    assert found == []
    restored(late, 0, 1)
    read()
    read()
    assert found == [0, 1, 2]
    for each in (quick, late):
        each.finish()
        each.close()
    source.close()
    cluster.assert_nothing_leaks()


@pytest.mark.parametrize("barrier", [UNALIGNED, TIMEOUT])
@pytest.mark.parametrize("taken_before", [False, True])
def test_a_barrier_overtakes_what_is_new_and_not_what_was_restored(
    barrier: CheckpointBarrier, taken_before: bool
) -> None:
    producer, _ = SimulatedCluster().start("a")
    sink = writer(producer)
    view = sink.partition.create_view(0, lambda: None, 1 << 62)
    restored(sink, 0, 1)
    emitted(sink, 2)
    found = taken(view) if taken_before else []
    assert overtaken_by(sink, barrier) == [2]
    emitted(sink, 3)
    found += taken(view)
    assert found == [0, 1, END]
    assert not view.has_priority_event
    view.resume()
    assert view.has_priority_event
    (overtaking, *values) = taken(view)
    assert isinstance(overtaking, CheckpointBarrier) and overtaking.options.is_unaligned
    assert values == [2, 3]
    # The next one is held up by nothing.
    emitted(sink, 4)
    assert overtaken_by(sink, CheckpointBarrier(8, 0, UNALIGNED.options)) == [4]
    assert view.has_priority_event
    view.release()
    sink.close()


def test_a_barrier_that_is_held_survives_a_late_consumer_elsewhere() -> None:
    producer, _ = SimulatedCluster().start("a")
    sink = writer(producer)
    restored(sink, 0)
    emitted(sink, 1)
    assert overtaken_by(sink, UNALIGNED) == [1]
    view = sink.partition.create_view(0, lambda: None, 1 << 15)
    assert taken(view) == [0, END]
    view.resume()
    assert taken(view) == [UNALIGNED, 1]
    view.release()
    sink.close()
