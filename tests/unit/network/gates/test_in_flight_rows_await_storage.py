"""Rows that an unaligned checkpoint captured may wait for a slow storage for any time: the exchange goes on."""

import pytest

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfPartition
from headrace.network.gates.gate import EventElement
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.partitions.in_flight_output import InFlightOutput
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.scripted_gate import rows_in
from tests.unit.network.simulated import SimulatedCluster

UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
ROWS = 6_000
"""In each batch: enough to be received in place."""


@pytest.mark.parametrize("is_local", [True, False])
def test_what_was_caught_on_either_side_holds_no_network_memory_and_no_credit(
    is_local: bool,
) -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer = producer if is_local else cluster.start("b")[0]
    sink, source = writer(producer, buffer_timeout_ms=0), gate(consumer, [location])
    source.request_partitions()
    kept: list[tuple[InFlightOutput, list[CapturedBatch]]] = []
    received = sent = 0
    # In all more than the output and the gate have segments for.
    for checkpoint_id in range(1, 9):
        cluster.loop.run_all()
        while sink.is_available:
            sink.emit(numbers(sent, ROWS))
            sent += ROWS
            cluster.loop.run_all()
        barrier = CheckpointBarrier(checkpoint_id, 0, UNALIGNED)
        output = sink.emit_barrier(barrier)
        cluster.loop.run_all()
        element = source.poll()
        assert element == EventElement(0, barrier)
        source.start_capture(checkpoint_id)
        kept.append((output, [batch for _, batch in source.stop_capture(checkpoint_id)]))
        while (element := source.poll()) is not None or cluster.loop.step():
            if element is not None:
                rows = values_of([element])
                assert rows == list(range(received, received + len(rows)))
                received += len(rows)
            del element
        assert sink.partition.pool.used == 0
        assert source.used_segment_count == 0
        if source.receiver is not None:
            (account,) = source.receiver.credits.accounts
            assert account.available == source.receiver.credits.credit_max
            assert source.receiver.region.pinned_count == 0
    assert received == sent
    pool = producer.buffer_pool
    batch_count = sum(
        len(batches) + sum(len(overtaken) for _, overtaken in output.overtaken())
        for output, batches in kept
    )
    assert batch_count > sink.partition.pool.maximum + source.segment_count
    sink.finish()
    sink.close()
    cluster.loop.run_all()
    assert source.poll() == EventElement(0, EndOfPartition())
    source.close()
    assert pool.count_idle_pages() == pool.total_pages
    # And it is what it was, whatever lies in its old place by now.
    for output, batches in kept:
        values = [value for batch in batches for value in rows_in(batch)]
        for _, overtaken in output.overtaken():
            for sealed in overtaken:
                assert sealed.arrow is not None
                values += sealed.arrow.column(0).to_pylist()
        assert values == list(range(values[0], values[0] + len(values)))
        assert len(values) >= 2 * ROWS
    cluster.assert_nothing_leaks()


ALIGNED = CheckpointOptions()


class CapturedEdge:
    """One channel, of whose rows a checkpoint catches those in front of its barrier."""

    def __init__(self, *, is_local: bool) -> None:
        self.cluster = SimulatedCluster()
        producer, location = self.cluster.start("a")
        consumer = producer if is_local else self.cluster.start("b")[0]
        self.sink, self.source = writer(producer), gate(consumer, [location])
        self.source.request_partitions()
        self.cluster.loop.run_all()
        self._sent = 0

    def send(self) -> None:
        self.sink.emit(numbers(self._sent, 1))
        self.sink.flush_all()
        self._sent += 1
        self.cluster.loop.run_all()

    def send_barrier(self, checkpoint_id: int, options: CheckpointOptions = ALIGNED) -> None:
        self.sink.emit_barrier(CheckpointBarrier(checkpoint_id, 0, options))
        self.cluster.loop.run_all()

    def read(self) -> list[int]:
        """All there is; the barriers that come block nobody."""
        seen: list[int] = []
        while (element := self.source.poll()) is not None:
            seen += values_of([element])
            if isinstance(element, EventElement):
                assert isinstance(element.event, CheckpointBarrier)
                if not element.event.options.is_unaligned:
                    self.source.resume(0)
            self.cluster.loop.run_all()
        return seen

    def captured(self, checkpoint_id: int) -> list[int]:
        batches = self.source.stop_capture(checkpoint_id)
        assert all(index == 0 for index, _ in batches)
        return [value for _, batch in batches for value in rows_in(batch)]

    def close(self) -> None:
        self.source.close()
        self.sink.close()
        self.cluster.assert_nothing_leaks()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_channel_keeps_what_its_task_reads_until_the_barrier_and_nothing_behind_it(
    is_local: bool,
) -> None:
    edge = CapturedEdge(is_local=is_local)
    edge.send()
    assert edge.read() == [0]
    edge.source.start_capture(7)
    edge.send()
    assert edge.read() == [1]
    edge.send()
    edge.send_barrier(7)
    edge.send()
    assert edge.read() == [2, 3]
    assert edge.captured(7) == [1, 2]
    assert edge.captured(7) == []
    edge.send()
    assert edge.read() == [4]
    # Nothing is kept where no checkpoint is taken, nor where its barrier came before the capture began.
    edge.send_barrier(8)
    assert edge.read() == []
    edge.source.start_capture(8)
    edge.send()
    assert edge.read() == [5]
    assert edge.captured(8) == []
    edge.close()


@pytest.mark.parametrize("is_local", [True, False])
def test_a_capture_that_was_given_up_leaves_nothing_to_the_next_one(is_local: bool) -> None:
    edge = CapturedEdge(is_local=is_local)
    edge.source.start_capture(7)
    edge.send()
    assert edge.read() == [0]
    edge.source.start_capture(8)
    (channel,) = edge.source.channels
    assert channel.stop_capture(7) == edge.captured(7) == []
    edge.send()
    # The barrier of the one that was given up ends no other.
    edge.send_barrier(7)
    edge.send()
    assert edge.read() == [1, 2]
    edge.send_barrier(8, UNALIGNED)
    edge.send()
    assert edge.read() == [3]
    assert edge.captured(8) == [1, 2]
    edge.close()
