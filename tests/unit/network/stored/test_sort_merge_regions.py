"""The pure parts of the sort-merge partition: regions, index, reading order; and what a crash leaves."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import PlacedMarker, StreamMarker, Watermark
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import StorageError
from headrace.network.stored.chunk_writer import MESSAGE_BYTES
from headrace.network.stored.file_format import BatchCompressor, encode_batch, pieces_bytes
from headrace.network.stored.partitioned_file import Extent, PartitionedFile, PartitionedFileWriter
from headrace.network.stored.read_scheduler import next_to_read
from headrace.network.stored.sort_merge_regions import (
    RUN_BYTES,
    RUN_BYTES_PER_CHANNEL,
    SortedRun,
    batches_of,
    plan_region,
    rotated,
    run_bytes,
    sort_run,
)
from headrace.network.stored.spill_files import SpillDirectories
from headrace.network.stored.stored_view import (
    READ_AHEAD_BYTES,
    READ_BYTES,
    SHORT_READ_BYTES,
    ReadCandidate,
    may_read,
    read_size,
)
from tests.unit.network.faulty_files import FaultyFileLayer

ROWS = st.lists(st.integers(0, 6), max_size=60)


@given(channels=ROWS, marker_rows=st.lists(st.integers(0, 60), max_size=8))
def test_a_region_keeps_the_order_of_rows_and_markers_within_a_subpartition(
    channels: list[int], marker_rows: list[int]
) -> None:
    markers: list[tuple[int, StreamMarker]] = [
        (min(row, len(channels)), Watermark(number))
        for number, row in enumerate(sorted(marker_rows))
    ]
    plan = plan_region(np.array(channels, dtype=np.int32), 7)
    for channel in range(7):
        rows = [row for row, each in enumerate(channels) if each == channel]
        assert plan.rows_of(channel).tolist() == rows
        # Of watermarks at one place the last one counts.
        expected = {sum(row < at for row in rows): marker for at, marker in markers}
        assert plan.markers_of(channel, markers) == tuple(
            PlacedMarker(offset, marker) for offset, marker in expected.items()
        )


@given(count=st.integers(1, 40), first=st.integers(0, 100))
def test_every_subpartition_has_its_turn_once(count: int, first: int) -> None:
    assert [channel for run in rotated(count, first) for channel in run] == [
        (first + turn) % count for turn in range(count)
    ]


@given(
    runs=st.lists(
        st.tuples(
            st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=4),
            st.lists(st.integers(0, 48), max_size=4),
        ),
        max_size=5,
    ),
    batch_bytes=st.sampled_from([1, 60, 10_000]),
)
def test_a_subpartition_is_its_rows_and_markers_of_all_runs_in_the_order_of_emission(
    runs: list[tuple[list[list[int]], list[int]]], batch_bytes: int
) -> None:
    emitted: list[list[int]] = [[] for _ in range(5)]  # a marker is -1 - timestamp
    made: list[SortedRun] = []
    number = stamp = 0
    for batches, marker_rows in runs:
        row_count = sum(map(len, batches))
        at = sorted(min(row, row_count) for row in marker_rows)
        markers: list[tuple[int, StreamMarker]] = []
        arrow: list[pa.RecordBatch] = []
        numbers: list[int] = []
        for channels in batches:
            for channel in channels:
                while at and at[0] == len(numbers):
                    stamp = _mark(emitted, markers, at.pop(0), stamp)
                emitted[channel].append(number)
                numbers.append(number)
                number += 1
            rows = numbers[len(numbers) - len(channels) :]
            arrow.append(pa.RecordBatch.from_pydict({"n": pa.array(rows, pa.int64())}))
        while at:
            stamp = _mark(emitted, markers, at.pop(0), stamp)
        each = [np.array(channels, dtype=np.int32) for channels in batches]
        made.append(sort_run(arrow, each, 5, markers))
    for channel in range(5):
        found: list[int] = []
        for sealed in batches_of(made, channel, batch_bytes):
            values = [] if sealed.arrow is None else sealed.arrow.column(0).to_pylist()
            begin = 0
            for placed in sealed.markers:
                assert isinstance(placed.marker, Watermark)
                found += [*values[begin : placed.row_offset], -1 - placed.marker.timestamp_ms]
                begin = placed.row_offset
            found += values[begin:]
        assert _without_passed_marks(found) == _without_passed_marks(emitted[channel])


def _mark(
    emitted: list[list[int]], markers: list[tuple[int, StreamMarker]], row: int, stamp: int
) -> int:
    markers.append((row, Watermark(stamp)))
    for each in emitted:
        each.append(-1 - stamp)
    return stamp + 1


def _without_passed_marks(trace: list[int]) -> list[int]:
    """Of watermarks with no row between them only the last one."""
    following = [*trace[1:], 0][: len(trace)]
    return [each for each, after in zip(trace, following, strict=True) if each >= 0 or after >= 0]


def test_what_is_sorted_at_once_suits_the_number_of_consumers_and_the_memory() -> None:
    assert run_bytes(8, 64 << 20) == RUN_BYTES
    assert run_bytes(512, 64 << 20) == 512 * RUN_BYTES_PER_CHANNEL
    assert run_bytes(1 << 16, 64 << 20) == 16 << 20
    assert run_bytes(8, 1) == 1


@given(
    candidates=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=8),
)
def test_who_has_nothing_is_read_for_first_and_then_the_lowest_offset(
    candidates: list[tuple[int, int]],
) -> None:
    chosen = next_to_read(
        [
            ReadCandidate(number, queued, offset, 1)
            for number, (queued, offset) in enumerate(candidates)
        ],
        3,
    )
    assert [(each.queued_bytes > 0, each.offset) for each in chosen] == sorted(
        (queued > 0, offset) for queued, offset in candidates
    )[:3]


def test_memory_bounds_reading_ahead_but_never_starves_anybody() -> None:
    assert may_read(0, 10**12, 1)
    assert may_read(READ_AHEAD_BYTES - 1, 0, 1)
    assert not may_read(READ_AHEAD_BYTES, 0, 10**12)
    assert not may_read(1, 1, 1)


def directories(path: Path, layer: FaultyFileLayer | None = None) -> SpillDirectories:
    return SpillDirectories([path], lambda job: job(), layer or FaultyFileLayer())


def write_regions(
    writer: PartitionedFileWriter, lengths: list[list[int]]
) -> tuple[list[list[Extent]], PartitionedFile]:
    """Regions of which subpartition k has so many bytes."""
    written: list[list[Extent]] = []
    for region in lengths:
        extents = [Extent(writer.append([bytes(length)]), length) for length in region]
        writer.end_region(extents)
        written.append(extents)
    return written, writer.finish()


@given(
    lengths=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), max_size=6),
    index_memory_bytes=st.sampled_from([0, 100, 1 << 20]),
)
def test_an_index_says_where_every_part_of_every_region_lies(
    lengths: list[list[int]], index_memory_bytes: int
) -> None:
    with TemporaryDirectory() as name:
        files = directories(Path(name))
        writer = PartitionedFileWriter(files, 3, index_memory_bytes)
        written, file = write_regions(writer, lengths)
        again = PartitionedFile.open(*_paths(files), FaultyFileLayer(), lambda job: job())
        for each in (file, again):
            assert each.region_count == len(lengths)
            found = [[each.extent(region, k) for k in range(3)] for region in range(len(lengths))]
            assert found == written
        again.close()
        # Regions lie one behind the other, and nothing lies between their parts.
        end = 0
        for region in written:
            for extent in region:
                assert extent.offset == end
                end = extent.end
        assert end == file.data.size
        writer.let_go()
        assert files.files() == []
        files.close()


def _paths(files: SpillDirectories) -> tuple[Path, Path]:
    data, index = sorted(files.files(), key=lambda path: path.suffix)
    return data, index


def test_wherever_the_writer_dies_there_is_a_whole_partition_or_none(tmp_path: Path) -> None:
    outcomes: list[bool] = []
    for calls in range(12):
        layer = FaultyFileLayer()
        files = directories(tmp_path, layer)
        layer.calls_left = calls
        has_finished = True
        try:
            write_regions(PartitionedFileWriter(files, 3, 0), [[1, 2, 3], [0, 5, 0]])
        except StorageError:
            has_finished = False
        paths = files.files() if calls else []
        index = [path for path in paths if path.suffix == ".index"]
        assert bool(index) == has_finished
        if index:
            data = index[0].with_suffix(".data")
            PartitionedFile.open(data, index[0], FaultyFileLayer(), lambda job: job()).close()
        outcomes.append(has_finished)
        files.close()
    assert outcomes == sorted(outcomes)
    assert outcomes[0] is False and outcomes[-1] is True


@pytest.mark.parametrize("spoil", ["flip", "cut index", "cut data", "no data"])
def test_half_a_partition_is_refused(tmp_path: Path, spoil: str) -> None:
    files = directories(tmp_path)
    writer = PartitionedFileWriter(files, 2)
    batch = SealedBatch(pa.RecordBatch.from_pydict({"n": [1]}), ())
    pieces = encode_batch(batch, batch.body(), writer.schemas, BatchCompressor(0))
    offset = writer.append(pieces)
    writer.end_region([Extent(offset, pieces_bytes(pieces)), Extent(offset, 0)])
    writer.finish()
    data, index = _paths(files)
    content = index.read_bytes()
    match spoil:
        case "flip":
            index.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
        case "cut index":
            index.write_bytes(content[20:])
        case "cut data":
            data.write_bytes(data.read_bytes()[:-1])
        case _:
            data.unlink()
    with pytest.raises(StorageError):
        PartitionedFile.open(data, index, FaultyFileLayer(), lambda job: job())
    writer.let_go()
    files.close()


def test_where_memory_is_short_little_is_read_in_one_go() -> None:
    assert read_size(0, 64 << 20) == READ_BYTES
    assert read_size(64 << 20, 64 << 20) == SHORT_READ_BYTES


def test_a_short_read_holds_a_whole_batch_as_it_is_stored() -> None:
    # With its header, and the markers that a batch may have: else it would be read twice.
    assert MESSAGE_BYTES + 8192 <= SHORT_READ_BYTES < READ_BYTES
