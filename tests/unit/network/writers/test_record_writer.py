"""RecordWriter: when rows are sealed, what stands between them, and who is told."""

import numpy as np
import pytest

from headrace.core.elements import (
    CancelTaskException,
    EndOfData,
    EndOfPartition,
    PlacedMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.record_batch import RecordBatch
from headrace.graph.job_graph import PartitionerKind
from headrace.network.errors import ProducerFailedError
from headrace.network.partitions.result_subpartition import DataElement
from headrace.network.writers.record_writer import (
    BroadcastRecordWriter,
    ChannelSelectorRecordWriter,
    PartitioningRecordWriter,
    RecordWriter,
)
from tests.unit.network.exchange import NUMBERS, numbers
from tests.unit.network.writer_edge import PLENTY, edge, keyed


def test_rows_wait_until_they_are_flushed() -> None:
    made = edge()
    made.writer.emit(numbers(0, 2))
    made.writer.emit(numbers(2, 2))
    assert made.read() == []
    assert made.notified == []
    made.writer.flush_all()
    assert made.notified == [0]
    assert made.read() == [[0, 1, 2, 3]]


def test_a_flush_with_nothing_new_is_no_news() -> None:
    made = edge()
    made.writer.flush_all()
    made.writer.flush_all()
    assert made.notified == []


def test_without_a_timeout_every_call_is_handed_over() -> None:
    made = edge(timeout_ms=0)
    made.writer.emit(numbers(0, 2))
    made.writer.emit_marker(Watermark(1))
    assert made.read() == [[0, 1], ([], (PlacedMarker(0, Watermark(1)),))]


def test_enough_bytes_are_handed_over_by_themselves() -> None:
    made = edge()
    made.writer.emit(numbers(0, 20_000))
    assert made.read() == [list(range(20_000))]


def test_enough_rows_are_handed_over_by_themselves() -> None:
    made = edge(headrace_network_seal__rows="3")
    made.writer.emit(numbers(0, 2))
    assert made.read() == []
    made.writer.emit(numbers(2, 1))
    assert made.read() == [[0, 1, 2]]


def test_a_large_batch_is_cut_to_segments() -> None:
    made = edge()
    made.writer.emit(numbers(0, 300_000))
    sizes = [len(rows) for rows in made.read() if isinstance(rows, list)]
    assert sum(sizes) == 300_000
    assert max(sizes) * 8 <= 1 << 20


def test_what_was_sealed_before_its_consumer_came_is_cut_to_its_segments() -> None:
    made = edge()
    late = edge(segment_size=4096)
    for each in (made, late):
        each.writer.emit(numbers(0, 1000))
        each.writer.flush_all()
    assert len(made.read()) == 1
    pieces = late.read()
    assert len(pieces) >= 2
    assert [row for rows in pieces if isinstance(rows, list) for row in rows] == list(range(1000))
    assert late.writer.partition.pool.used == 0


def test_markers_keep_their_place_and_stale_watermarks_go() -> None:
    made = edge()
    writer = made.writer
    writer.emit_marker(Watermark(1))
    writer.emit_marker(Watermark(2))
    writer.emit(numbers(0, 1))
    writer.emit_marker(Watermark(3))
    writer.emit_marker(WatermarkStatus(True))
    writer.emit_marker(WatermarkStatus(False))
    writer.emit_marker(Watermark(4))
    writer.flush_all()
    assert made.read() == [
        (
            [0],
            (
                PlacedMarker(0, Watermark(2)),
                PlacedMarker(1, Watermark(3)),
                PlacedMarker(1, WatermarkStatus(True)),
                PlacedMarker(1, WatermarkStatus(False)),
                PlacedMarker(1, Watermark(4)),
            ),
        )
    ]


def test_a_marker_reaches_every_channel_behind_its_rows() -> None:
    made = edge(channel_count=3)
    made.writer.emit(numbers(0, 2))
    made.writer.emit_marker(Watermark(7))
    made.writer.flush_all()
    assert made.read(0) == [([0], (PlacedMarker(1, Watermark(7)),))]
    assert made.read(1) == [([1], (PlacedMarker(1, Watermark(7)),))]
    assert made.read(2) == [([], (PlacedMarker(0, Watermark(7)),))]


def test_an_event_seals_what_is_before_it() -> None:
    made = edge(channel_count=2)
    made.writer.emit(numbers(0, 1))
    made.writer.emit_event(EndOfData())
    made.writer.finish()
    assert made.read(0) == [[0], EndOfData(), EndOfPartition()]
    assert made.read(1) == [EndOfData(), EndOfPartition()]


def test_a_broadcast_is_serialised_and_held_once() -> None:
    made = edge(channel_count=3, kind=PartitionerKind.BROADCAST, segment_size=1 << 20)
    made.writer.emit(numbers(0, 5))
    made.writer.flush_all()
    elements = [view.poll(PLENTY) for view in made.views]
    bodies = {id(element.sealed.body()) for element in elements if isinstance(element, DataElement)}
    assert len(bodies) == 1
    assert made.writer.partition.pool.used == 1
    for element in elements:
        assert isinstance(element, DataElement)
        assert element.lease is not None
        element.lease.release()
    assert made.writer.partition.pool.used == 0
    assert made.writer.buffers_out == 1


def test_a_full_channel_makes_the_writer_unavailable_until_it_is_read() -> None:
    made = edge(channel_count=2, kind=PartitionerKind.GLOBAL, timeout_ms=0)
    for start in range(10):
        assert made.writer.is_available
        made.writer.emit(numbers(start, 1))
    assert made.writer.partition.pool.used < made.writer.partition.pool.size
    assert not made.writer.is_available
    called: list[str] = []
    made.writer.on_available(lambda: called.append("free"))
    made.read(0)
    assert called == ["free"]


def test_a_batch_at_hand_may_go_into_overdraft() -> None:
    made = edge(timeout_ms=0)
    while made.writer.is_available:
        made.writer.emit(numbers(0, 1))
    for _ in range(5):
        made.writer.emit(numbers(0, 1))
    with pytest.raises(AssertionError, match="would block"):
        made.writer.emit(numbers(0, 1))


def test_counters_count_what_left() -> None:
    made = edge(channel_count=2)
    made.writer.emit(numbers(0, 10))
    assert (made.writer.records_out, made.writer.buffers_out) == (10, 0)
    made.writer.flush_all()
    assert made.writer.buffers_out == 2
    assert made.writer.bytes_out > 80


def test_rows_as_objects_become_columns_when_sealed() -> None:
    made = edge()
    made.writer.emit(RecordBatch.of_rows(NUMBERS, [1, 2]))
    made.writer.emit(RecordBatch.of_rows(NUMBERS, [3]))
    made.writer.flush_all()
    assert made.read() == [[1, 2, 3]]


def test_a_partition_is_released_when_its_task_and_all_consumers_have_let_go() -> None:
    made = edge(channel_count=2)
    made.writer.emit(numbers(0, 2))
    made.writer.finish()
    made.views[1].release()
    made.writer.close()
    assert made.read(0) == [[0], EndOfPartition()]
    assert made.released == []
    made.views[0].release()
    assert made.released == [made.writer.partition]
    assert made.network.idle_pages == made.network.total_pages


def test_a_failure_is_told_once_with_its_first_cause() -> None:
    made = edge()
    made.writer.emit(numbers(0, 2))
    made.writer.flush_all()
    made.writer.fail(ValueError("bad"))
    made.writer.fail(ValueError("worse"))
    made.writer.close()
    assert made.failures == ["ValueError: bad"]
    with pytest.raises(ProducerFailedError, match="ValueError: bad"):
        made.views[0].poll(PLENTY)
    with pytest.raises(CancelTaskException):
        made.writer.emit(numbers(0, 20_000))
    made.views[0].release()
    assert made.network.idle_pages == made.network.total_pages


def test_what_is_added_for_a_consumer_that_left_is_dropped() -> None:
    made = edge(timeout_ms=0)
    made.views[0].release()
    for _ in range(50):
        made.writer.emit(numbers(0, 1))
    assert made.writer.is_available
    made.writer.finish()
    made.writer.close()
    assert made.released == [made.writer.partition]


def test_rows_of_a_keyed_edge_wait_unsplit_until_there_are_enough_for_each_channel() -> None:
    made = edge(channel_count=2, kind=PartitionerKind.HASH, headrace_network_seal__rows="3")
    made.writer.emit(keyed(0, 5))
    assert [made.read(0), made.read(1)] == [[], []]
    made.writer.emit(keyed(5, 7))
    made.writer.flush_all()
    found = [made.read(0), made.read(1)]
    # Split and sealed once, although they came in two batches.
    assert [len(batches) for batches in found] == [1, 1]
    rows = [
        row for batches in found for batch in batches if isinstance(batch, list) for row in batch
    ]
    assert sorted(rows) == list(range(12))


def test_markers_of_a_keyed_edge_keep_their_place_among_the_rows_of_each_channel() -> None:
    made = edge(channel_count=2, kind=PartitionerKind.HASH)
    made.writer.emit(keyed(0, 20))
    made.writer.emit_marker(Watermark(1))
    made.writer.emit(keyed(20, 20))
    made.writer.emit_marker(Watermark(2))
    made.writer.flush_all()
    for channel in (0, 1):
        ((rows, markers),) = made.read(channel)  # type: ignore[misc]
        before = sum(row < 20 for row in rows)
        assert 0 < before < len(rows)
        assert markers == (
            PlacedMarker(before, Watermark(1)),
            PlacedMarker(len(rows), Watermark(2)),
        )


def test_without_a_timeout_rows_of_a_keyed_edge_do_not_wait_either() -> None:
    made = edge(channel_count=2, kind=PartitionerKind.HASH, timeout_ms=0)
    made.writer.emit(keyed(0, 20))
    (left,), (right,) = made.read(0), made.read(1)
    assert isinstance(left, list) and isinstance(right, list)
    assert sorted(left + right) == list(range(20))


def test_rows_whose_schema_changes_are_sealed_apart_and_in_order() -> None:
    made = edge()
    made.writer.emit(numbers(0, 2))
    made.writer.emit(numbers(2, 1).with_timestamps(np.array([7])))
    made.writer.emit(numbers(3, 1))
    made.writer.flush_all()
    assert made.read() == [[0, 1], [2], [3]]


@pytest.mark.parametrize(
    ("kind", "channel_count", "expected"),
    [
        (PartitionerKind.FORWARD, 1, ChannelSelectorRecordWriter),
        (PartitionerKind.REBALANCE, 3, ChannelSelectorRecordWriter),
        (PartitionerKind.HASH, 1, ChannelSelectorRecordWriter),
        (PartitionerKind.HASH, 3, PartitioningRecordWriter),
        (PartitionerKind.BROADCAST, 3, BroadcastRecordWriter),
    ],
)
def test_the_edge_decides_which_writer_is_made(
    kind: PartitionerKind, channel_count: int, expected: type[RecordWriter]
) -> None:
    assert type(edge(channel_count, kind).writer) is expected
