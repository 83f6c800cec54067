"""Rows that a barrier overtakes on its way out: none, those that wait, or those that wait once its time is over."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import PlacedMarker, Watermark
from headrace.graph.job_graph import PartitionerKind
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.pipelined_partition import PipelinedResultPartition
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    ResultSubpartitionView,
)
from headrace.network.writers.record_writer import RecordWriter
from tests.unit.network.exchange import numbers, partition_id, writer
from tests.unit.network.simulated import SimulatedCluster

UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
TIMEOUT = CheckpointOptions(aligned_timeout_ms=100)


def values_of(batches: list[SealedBatch]) -> list[int]:
    return [
        value
        for sealed in batches
        if sealed.arrow is not None
        for value in sealed.arrow.column(0).to_pylist()
    ]


def overtaken_by(capture: InFlightOutput) -> dict[int, list[int]]:
    return {index: values_of(list(batches)) for index, batches in capture.overtaken()}


@dataclass
class Output:
    """A partition of two subpartitions whose consumers read when the test says so."""

    partition: PipelinedResultPartition
    views: list[ResultSubpartitionView] = field(default_factory=list[ResultSubpartitionView])

    def emit(self, index: int, value: int) -> None:
        lease = self.partition.pool.borrow(1)
        self.partition.emit(index, SealedBatch(numbers(value, 1).columns(), ()), lease)

    def poll(self, index: int) -> object:
        element = self.views[index].poll(1 << 62)
        if isinstance(element, DataElement):
            if element.lease is not None:
                element.lease.release()
            return values_of([element.sealed])[0]
        return getattr(element, "event", element)


@pytest.fixture
def output() -> Output:
    return make_output()


def make_output() -> Output:
    memory = NetworkBufferPool(1 << 20, 1 << 10)
    pool = memory.create_local_pool(
        "test", required=10, maximum=500, segment_size=1 << 10, overdraft_max=0, wait=NeverWait()
    )
    partition = PipelinedResultPartition(partition_id(), 2, pool, 1000, ResultPartitionManager("a"))
    made = Output(partition)
    for index in range(2):
        made.views.append(partition.create_view(index, lambda: None, LOCAL_SEGMENT_BYTES))
    return made


def test_a_barrier_that_overtakes_captures_what_waits_and_leaves_it_in_the_queue(
    output: Output,
) -> None:
    output.emit(0, 1)
    output.emit(0, 2)
    barrier = CheckpointBarrier(7, 0, UNALIGNED)
    capture = output.partition.emit_barrier(barrier, {})
    assert overtaken_by(capture) == {0: [1, 2]}
    assert [output.poll(0) for _ in range(4)] == [barrier, 1, 2, None]
    assert output.poll(1) == barrier


def test_an_aligned_barrier_waits_in_line_and_overtakes_nothing(output: Output) -> None:
    output.emit(0, 1)
    barrier = CheckpointBarrier(7, 0)
    capture = output.partition.emit_barrier(barrier, {})
    assert capture.is_complete and capture.overtaken() == []
    output.emit(0, 2)
    assert [output.poll(0) for _ in range(3)] == [1, barrier, None]
    output.views[0].resume()
    assert output.poll(0) == 2


def test_a_barrier_whose_time_is_over_overtakes_where_it_still_waits(output: Output) -> None:
    barrier = CheckpointBarrier(7, 0, TIMEOUT, elapsed_ms=10)
    output.emit(0, 1)
    capture = output.partition.emit_barrier(barrier, {})
    output.emit(0, 2)
    assert output.poll(1) == barrier
    assert not capture.is_done
    output.partition.time_out_barrier(6)
    assert not capture.is_done
    output.partition.time_out_barrier(7)
    assert overtaken_by(capture) == {0: [1]}
    assert output.poll(0) == CheckpointBarrier(7, 0, TIMEOUT.with_unaligned(), elapsed_ms=100)
    # It blocks nobody any more.
    assert [output.poll(0) for _ in range(2)] == [1, 2]
    output.partition.time_out_barrier(7)


def test_a_barrier_that_all_consumers_take_in_order_has_overtaken_nothing(output: Output) -> None:
    output.emit(0, 1)
    capture = output.partition.emit_barrier(CheckpointBarrier(7, 0, TIMEOUT), {})
    done: list[bool] = []
    capture.on_done(lambda: done.append(capture.is_complete))
    for index in (0, 0, 1):
        output.poll(index)
    assert done == [True]
    assert capture.overtaken() == []


def test_a_newer_barrier_ends_what_is_known_of_the_older(output: Output) -> None:
    older = output.partition.emit_barrier(CheckpointBarrier(7, 0, TIMEOUT), {})
    newer = output.partition.emit_barrier(CheckpointBarrier(8, 0, TIMEOUT), {})
    assert older.is_done and not older.is_complete
    output.partition.time_out_barrier(8)
    assert newer.is_complete


def test_an_answer_that_comes_too_late_changes_nothing(output: Output) -> None:
    capture = output.partition.emit_barrier(CheckpointBarrier(7, 0, TIMEOUT), {})
    capture.abandon()
    assert output.poll(0) == CheckpointBarrier(7, 0, TIMEOUT)
    output.partition.time_out_barrier(7)
    assert capture.is_done and not capture.is_complete


def test_a_consumer_that_leaves_completes_and_a_producer_that_fails_abandons() -> None:
    left, failed = make_output(), make_output()
    captures = [
        each.partition.emit_barrier(CheckpointBarrier(7, 0, TIMEOUT), {}) for each in (left, failed)
    ]
    for view in left.views:
        view.release()
    failed.partition.fail(ValueError("no"))
    assert captures[0].is_complete
    assert captures[1].is_done and not captures[1].is_complete


STEPS = st.lists(
    st.sampled_from(
        [
            *("emit 0", "emit 1", "poll 0", "poll 1") * 3,
            *("barrier", "time out", "resume", "release 0", "release 1", "fail"),
        ]
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([UNALIGNED, TIMEOUT, CheckpointOptions()]))
def test_every_row_before_a_barrier_was_taken_before_it_or_overtaken_and_every_capture_ends(
    steps: list[str], options: CheckpointOptions
) -> None:
    """Flink's invariant: the promise of an output always completes, whatever its consumer does."""
    output, next_value = make_output(), 0
    emitted: list[list[int]] = [[], []]
    taken: list[list[object]] = [[], []]
    captures: dict[int, tuple[InFlightOutput, list[list[int]]]] = {}
    gone: set[int] = set()
    has_failed = False
    for step in [*steps, "time out", "release 0", "release 1"]:
        what, _, index_text = step.partition(" ")
        index = int(index_text) if index_text.isdigit() else 0
        if what == "emit" and not has_failed:
            output.emit(index, next_value)
            emitted[index].append(next_value)
            next_value += 1
        elif what == "poll" and index not in gone and not has_failed:
            element = output.poll(index)
            if element is not None:
                taken[index].append(element)
        elif what == "barrier":
            checkpoint_id = len(captures) + 1
            barrier = CheckpointBarrier(checkpoint_id, 0, options)
            capture = output.partition.emit_barrier(barrier, {})
            captures[checkpoint_id] = (capture, [list(rows) for rows in emitted])
        elif step == "time out":
            output.partition.time_out_barrier(len(captures))
        elif what == "resume":
            for view, subpartition in zip(
                output.views, output.partition.subpartitions, strict=True
            ):
                if subpartition.is_blocked:
                    view.resume()
        elif what == "release" and index not in gone:
            gone.add(index)
            output.views[index].release()
        elif what == "fail":
            has_failed = True
            output.partition.fail(None)
    for checkpoint_id, (capture, before) in captures.items():
        assert capture.is_done
        if not capture.is_complete or has_failed:
            continue
        overtaken = overtaken_by(capture)
        for index in range(2):
            ids = [getattr(each, "checkpoint_id", None) for each in taken[index]]
            if checkpoint_id in ids:
                ahead = taken[index][: ids.index(checkpoint_id)]
                rows = [each for each in ahead if isinstance(each, int)]
                assert rows + overtaken.get(index, []) == before[index]
    assert output.partition.pool.used == 0


@pytest.fixture
def producer() -> CreditBasedShuffleEnvironment:
    return SimulatedCluster().start("a")[0]


def take_all(sink: RecordWriter, index: int = 0) -> list[object]:
    """What the consumer of a subpartition finds, in order: values and events."""
    view = sink.partition.create_view(index, lambda: None, LOCAL_SEGMENT_BYTES)
    found: list[object] = []
    while (element := view.poll(1 << 62)) is not None:
        found += (
            values_of([element.sealed])
            if isinstance(element, DataElement)
            else [getattr(element, "event", None)]
        )
    return found


@pytest.mark.parametrize("kind", [PartitionerKind.REBALANCE, PartitionerKind.GLOBAL])
def test_rows_that_are_not_sealed_are_overtaken_too(
    producer: CreditBasedShuffleEnvironment, kind: PartitionerKind
) -> None:
    sink = writer(producer, kind=kind)
    sink.emit(numbers(0, 3))
    sink.emit_marker(Watermark(5))
    barrier = CheckpointBarrier(7, 0, UNALIGNED)
    capture = sink.emit_barrier(barrier)
    ((_, (sealed,)),) = capture.overtaken()
    assert values_of([sealed]) == [0, 1, 2]
    assert sealed.markers == (PlacedMarker(3, Watermark(5)),)
    sink.emit(numbers(3, 2))
    sink.flush_all()
    assert take_all(sink) == [barrier, 0, 1, 2, 3, 4]


def test_rows_before_an_aligned_barrier_stay_before_it_though_memory_is_short(
    producer: CreditBasedShuffleEnvironment,
) -> None:
    sink = writer(producer)
    value = 0
    while sink.is_available:
        sink.emit(numbers(value, 1))
        sink.flush_all()
        value += 1
    for _ in range(50):  # more than the overdraft; a writer that waited would raise here
        sink.emit(numbers(value, 1))
        value += 1
        sink.emit_barrier(CheckpointBarrier(value, 0))
    found = take_all_past_barriers(sink)
    assert [each for each in found if isinstance(each, int)] == list(range(value))


def take_all_past_barriers(sink: RecordWriter) -> list[object]:
    view = sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)
    found: list[object] = []
    while (element := view.poll(1 << 62)) is not None:
        if isinstance(element, DataElement):
            found += values_of([element.sealed])
        else:
            found.append(element)
            view.resume()
    return found


def test_what_was_caught_on_its_way_goes_first(producer: CreditBasedShuffleEnvironment) -> None:
    sink = writer(producer, channel_count=2)
    caught = SealedBatch(numbers(0, 3).columns(), (PlacedMarker(1, Watermark(9)),))
    sink.restore(1, [caught])
    sink.emit(numbers(3, 1))
    sink.flush_all()
    assert take_all(sink, 1)[:3] == [0, 1, 2]
