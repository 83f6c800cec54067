"""A sort-merge partition that is written beside its task: where the disk is full, and where it is released."""

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import EndOfData, EndOfPartition, StopMode
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import StorageError
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.chunk_writer import RegionWriter
from headrace.network.stored.file_format import BatchCompressor
from headrace.network.stored.io_pool import InlineIo, IoExecutor, ThreadIoPool
from headrace.network.stored.partitioned_file import Extent, PartitionedFileWriter
from headrace.network.stored.sort_merge_partition import RegionCursor, SortMergePartition
from headrace.network.stored.spill_files import SpillDirectories
from headrace.network.stored.stored_partition import PartitionStorage
from headrace.network.stored.stored_view import ReadMemory
from tests.unit.network.exchange import partition_id
from tests.unit.network.faulty_files import FaultyFileLayer
from tests.unit.network.stored.held_io import HeldIo

CHANNELS, ROWS = 4, 4000
SEGMENT, SEGMENTS = 32 << 10, 16


@pytest.fixture
def layer() -> FaultyFileLayer:
    return FaultyFileLayer()


@pytest.fixture
def io() -> Iterator[ThreadIoPool]:
    pool = ThreadIoPool("written", 2)
    yield pool
    pool.close()


def partition(io: IoExecutor, path: Path, layer: FaultyFileLayer) -> SortMergePartition:
    """One of 256 KB regions."""
    memory = NetworkBufferPool(SEGMENTS * SEGMENT, SEGMENT)
    pool = memory.create_local_pool(
        "written",
        required=SEGMENTS,
        maximum=SEGMENTS,
        segment_size=SEGMENT,
        overdraft_max=0,
        wait=NeverWait(),
    )
    files = SpillDirectories([path], io.submit, layer)
    storage = PartitionStorage(io, files, ReadMemory(1 << 20))
    manager = ResultPartitionManager("a")
    return SortMergePartition(partition_id(), CHANNELS, pool, storage, manager, BatchCompressor(0))


def collect(sink: SortMergePartition, start: int) -> None:
    values = np.arange(start, start + ROWS)
    sealed = SealedBatch(pa.RecordBatch.from_arrays([pa.array(values)], names=["n"]), ())
    lease = sink.pool.try_lease(sealed.size_bytes)
    assert lease is not None
    sink.collect(sealed, (values % CHANNELS).astype(np.int32), lease)


def test_regions_are_on_their_way_while_the_task_collects_the_next(
    tmp_path: Path, layer: FaultyFileLayer
) -> None:
    held = HeldIo()
    sink = partition(held, tmp_path, layer)
    for start in range(0, 9 * ROWS, ROWS):
        collect(sink, start)
    assert held.jobs, "a region is being written"
    assert sink.written_bytes == 0
    assert sink.pool.used * SEGMENT <= sink.pool.maximum * SEGMENT // 2
    held.close()
    assert sink.written_bytes > 8 * ROWS * 8


@pytest.mark.parametrize("end", ["fail", "release", "close"])
def test_memory_of_what_was_collected_comes_back_when_its_task_is_cancelled(
    tmp_path: Path, layer: FaultyFileLayer, end: str
) -> None:
    sink = partition(InlineIo(), tmp_path, layer)
    collect(sink, 0)
    assert sink.pool.used > 0
    lease = sink.pool.try_lease(1)
    assert lease is not None
    sink.fail(None) if end == "fail" else getattr(sink, end)()
    # What the task was about to emit when it was cancelled.
    sink.collect(SealedBatch(None, ()), np.zeros(0, dtype=np.int32), lease)
    assert sink.pool.used == 0


def test_what_was_written_beside_the_task_is_read_in_the_order_of_emission(
    tmp_path: Path, layer: FaultyFileLayer, io: ThreadIoPool
) -> None:
    layer.short_writes = True
    sink = partition(io, tmp_path, layer)
    for start in range(0, 40 * ROWS, ROWS):
        collect(sink, start)
    sink.finish()
    file = sink.file
    assert file is not None
    assert file.region_count > 3
    assert file.data.size == sink.written_bytes == file.data.path.stat().st_size
    for index in range(CHANNELS):
        assert read(sink, index)[:-1] == list(range(index, 40 * ROWS, CHANNELS))
    sink.release()


@pytest.mark.parametrize("is_concurrent", [True, False])
def test_a_full_disk_reaches_the_task_with_one_of_its_next_calls_at_the_end_at_last(
    tmp_path: Path, layer: FaultyFileLayer, io: ThreadIoPool, is_concurrent: bool
) -> None:
    layer.space_bytes = 300_000
    sink = partition(io if is_concurrent else InlineIo(), tmp_path, layer)
    with pytest.raises(StorageError, match="No space left on device"):
        for start in range(0, 400 * ROWS, ROWS):
            collect(sink, start)
    # Others may have made room since: what is lost stays lost.
    layer.space_bytes = None
    with pytest.raises(StorageError, match="No space left on device"):
        sink.finish()
    assert sink.file is None
    sink.fail(None)
    assert sink.pool.used == 0


@pytest.mark.parametrize("jobs_before", [0, 1, 2])
def test_one_that_is_released_while_it_is_written_leaves_no_file_and_stops_nobody(
    tmp_path: Path, layer: FaultyFileLayer, jobs_before: int
) -> None:
    held = HeldIo()
    sink = partition(held, tmp_path, layer)
    for start in range(0, 18 * ROWS, ROWS):
        if sink.pool.used >= 7:
            # The region before must be written first, or the task would wait for it here.
            held.close()
        collect(sink, start)
    for _ in range(min(jobs_before, len(held.jobs))):
        held.run_one()
    sink.release()
    held.close()
    assert list(tmp_path.rglob("result-*")) == []
    sink.finish()
    assert sink.file is None
    assert sink.pool.used == 0


def test_batches_that_are_regions_of_their_own_are_bounded_on_their_way_too(
    tmp_path: Path, layer: FaultyFileLayer
) -> None:
    held = HeldIo()
    writer = PartitionedFileWriter(SpillDirectories([tmp_path], held.submit, layer), 1)
    sealed = SealedBatch(pa.RecordBatch.from_pydict({"n": list(range(ROWS))}), ())
    limit = 3 * sealed.size_bytes
    regions = RegionWriter(writer, BatchCompressor(0), held, limit)

    def write() -> None:
        for _ in range(20):
            begin = regions.position
            regions.write(sealed)
            regions.end_region([Extent(begin, regions.position - begin)])

    task = threading.Thread(target=write)
    task.start()
    most = 0
    while task.is_alive() or held.jobs:
        most = max(most, regions.pending_bytes)
        if held.jobs:
            held.run_one()
        else:
            task.join(0.001)
    assert 0 < most <= limit
    file = regions.finish()
    assert file.region_count == 20
    writer.let_go()
    held.close()


@given(
    steps=st.lists(
        st.sampled_from(["collect", "single", "broadcast", "event", "spill"]), max_size=12
    )
)
def test_the_extents_of_a_region_tile_it_and_what_is_for_all_is_there_once(
    steps: list[str],
) -> None:
    with TemporaryDirectory() as name:
        sink = partition(InlineIo(), Path(name), FaultyFileLayer())
        emitted: list[list[Any]] = [[] for _ in range(CHANNELS)]
        for number, step in enumerate(steps):
            rows = SealedBatch(pa.RecordBatch.from_pydict({"n": [number, number]}), ())
            match step:
                case "collect":
                    collect(sink, number)
                    for row in range(number, number + ROWS):
                        emitted[row % CHANNELS].append(row)
                case "single":
                    sink.emit(number % CHANNELS, rows, sink.pool.borrow(rows.size_bytes))
                    emitted[number % CHANNELS] += [number, number]
                case "broadcast":
                    sink.broadcast(rows, sink.pool.borrow(rows.size_bytes, CHANNELS))
                    for each in emitted:
                        each.extend([number, number])
                case "event":
                    sink.emit_event(EndOfData(StopMode.DRAIN))
                    for each in emitted:
                        each.append(EndOfData(StopMode.DRAIN))
                case _:
                    sink.spill()
        sink.finish()
        file = sink.file
        assert file is not None
        end = 0
        for region in range(file.region_count):
            extents = {file.extent(region, index) for index in range(CHANNELS)}
            for extent in sorted(extents, key=lambda each: (each.offset, each.length)):
                if extent.length:
                    assert extent.offset == end
                    end = extent.end
        assert end == file.data.size
        for index in range(CHANNELS):
            assert read(sink, index) == [*emitted[index], EndOfPartition()]
        sink.release()
        assert sink.pool.used == 0


def read(sink: SortMergePartition, index: int) -> list[Any]:
    """Values and events of one subpartition."""
    cursor = RegionCursor(sink, index, lambda: None)
    found: list[Any] = []
    while cursor.next_offset is not None:
        for undecoded in cursor.read(1 << 20):
            element = undecoded.decode()
            if isinstance(element, SealedBatch):
                assert element.arrow is not None
                found += element.arrow.column(0).to_pylist()
            else:
                found.append(element)
    return found
