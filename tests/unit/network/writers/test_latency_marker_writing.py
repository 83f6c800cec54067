"""RecordWriter and latency markers: one channel gets each, behind the rows before it, and nothing is sealed for it."""

import pytest

from headrace.core.elements import EndOfData, LatencyMarker, PlacedMarker, Watermark
from headrace.core.ids import OperatorId
from headrace.graph.job_graph import PartitionerKind
from headrace.network.writers.batch_builder import MARKERS_MAX
from tests.unit.network.exchange import numbers
from tests.unit.network.writer_edge import Edge, edge, keyed

BROADCAST, HASH = PartitionerKind.BROADCAST, PartitionerKind.HASH
MARK, LATER = (LatencyMarker(time_ms, OperatorId(b"s" * 16), 1) for time_ms in (5, 6))


def alone(*markers: LatencyMarker) -> tuple[list[int], tuple[PlacedMarker, ...]]:
    return [], tuple(PlacedMarker(0, marker) for marker in markers)


def read_all(made: Edge) -> list[list[object]]:
    return [made.read(channel) for channel in range(len(made.views))]


def test_on_a_keyed_edge_it_stands_behind_its_channels_rows_of_before() -> None:
    made = edge(3, HASH)
    made.writer.emit(keyed(0, 12))
    made.writer.emit_latency_marker(MARK, 1)
    made.writer.emit(keyed(12, 12))
    assert read_all(made) == [[], [], []]
    made.writer.flush_all()
    first, second, third = read_all(made)
    assert all(isinstance(rows, list) for rows in (*first, *third))
    ((rows, markers),) = second  # type: ignore[misc]
    before = [row for row in rows if row < 12]
    assert rows[: len(before)] == before
    assert markers == (PlacedMarker(len(before), MARK),)


def test_on_a_single_channel_it_stands_where_it_was_emitted() -> None:
    made = edge()
    made.writer.emit(numbers(0, 2))
    made.writer.emit_latency_marker(MARK, 0)
    made.writer.emit(numbers(2, 1))
    made.writer.flush_all()
    assert made.read() == [([0, 1, 2], (PlacedMarker(2, MARK),))]


def test_watermarks_on_both_sides_of_it_are_both_kept() -> None:
    made = edge()
    made.writer.emit_marker(Watermark(1))
    made.writer.emit_latency_marker(MARK, 0)
    made.writer.emit_marker(Watermark(2))
    made.writer.flush_all()
    wanted = (Watermark(1), MARK, Watermark(2))
    assert made.read() == [([], tuple(PlacedMarker(0, each) for each in wanted))]


@pytest.mark.parametrize("flush", ["flush", "event"])
def test_of_a_broadcast_it_goes_to_one_behind_rows_that_are_not_parted_for_it(flush: str) -> None:
    made = edge(2, BROADCAST)
    made.writer.emit(numbers(0, 2))
    made.writer.emit_latency_marker(MARK, 1)
    made.writer.emit(numbers(2, 1))
    assert read_all(made) == [[], []]
    if flush == "flush":
        made.writer.flush_all()
        assert read_all(made) == [[[0, 1, 2]], [[0, 1, 2], alone(MARK)]]
    else:
        made.writer.emit_event(EndOfData())
        assert read_all(made) == [[[0, 1, 2], EndOfData()], [[0, 1, 2], alone(MARK), EndOfData()]]
    assert made.writer.partition.pool.used == 0


def test_where_no_rows_of_a_broadcast_wait_it_goes_at_once() -> None:
    made = edge(2, BROADCAST)
    made.writer.emit_latency_marker(MARK, 0)
    assert read_all(made) == [[alone(MARK)], []]


def test_a_broadcast_that_is_never_enough_is_handed_over_with_as_many_markers_as_may_wait() -> None:
    made = edge(2, BROADCAST)
    made.writer.emit(numbers(0, 1))
    for _ in range(MARKERS_MAX - 1):
        made.writer.emit_latency_marker(MARK, 0)
    assert read_all(made) == [[], []]
    made.writer.emit_latency_marker(LATER, 1)
    assert read_all(made) == [[[0], alone(*[MARK] * (MARKERS_MAX - 1))], [[0], alone(LATER)]]


@pytest.mark.parametrize("kind", [PartitionerKind.RESCALE, HASH, BROADCAST])
def test_without_a_timeout_it_is_handed_over_at_once(kind: PartitionerKind) -> None:
    made = edge(2, kind, timeout_ms=0)
    made.writer.emit_latency_marker(MARK, 1)
    assert read_all(made) == [[], [alone(MARK)]]
