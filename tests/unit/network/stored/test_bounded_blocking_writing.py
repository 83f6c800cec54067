"""A bounded blocking partition that is written beside its task: in order, within bounds, and on bad disks."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.elements import EndOfPartition
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import StorageError
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.bounded_blocking_partition import (
    BEHIND_BYTES,
    CHUNK_BYTES,
    BoundedBlockingPartition,
)
from headrace.network.stored.file_format import BatchCompressor
from headrace.network.stored.io_pool import InlineIo, IoExecutor, ThreadIoPool
from headrace.network.stored.spill_files import SpillDirectories
from headrace.network.stored.stored_partition import PartitionStorage
from headrace.network.stored.stored_view import READ_BYTES, ReadMemory
from tests.unit.network.exchange import partition_id
from tests.unit.network.faulty_files import FaultyFileLayer
from tests.unit.network.stored.held_io import HeldIo

CHANNELS, ROWS = 3, 20_000
BATCH_BYTES = 8 * ROWS
SEGMENT = 256 << 10
BATCHES = 3 * BEHIND_BYTES // BATCH_BYTES


@pytest.fixture
def layer() -> FaultyFileLayer:
    return FaultyFileLayer()


@pytest.fixture
def io() -> Iterator[ThreadIoPool]:
    pool = ThreadIoPool("written", 2)
    yield pool
    pool.close()


def partition(io: IoExecutor, path: Path, layer: FaultyFileLayer) -> BoundedBlockingPartition:
    memory = NetworkBufferPool(4 * SEGMENT, SEGMENT)
    pool = memory.create_local_pool(
        "written",
        required=2,
        maximum=4,
        segment_size=SEGMENT,
        overdraft_max=0,
        wait=NeverWait(),
    )
    files = SpillDirectories([path], io.submit, layer)
    storage = PartitionStorage(io, files, ReadMemory(1 << 20))
    manager = ResultPartitionManager("a")
    return BoundedBlockingPartition(
        partition_id(), CHANNELS, pool, storage, manager, BatchCompressor(0)
    )


def emit(sink: BoundedBlockingPartition, number: int) -> None:
    """Batch `number`, of numbers that no other one has, for one channel; every fifth for all."""
    rows = pa.array(range(number * ROWS, (number + 1) * ROWS))
    sealed = SealedBatch(pa.RecordBatch.from_arrays([rows], names=["n"]), ())
    is_for_all = number % 5 == 0
    lease = sink.pool.try_lease(sealed.size_bytes, CHANNELS if is_for_all else 1)
    assert lease is not None, "what is on its way holds no segment"
    if is_for_all:
        sink.broadcast(sealed, lease)
    else:
        sink.emit(number % CHANNELS, sealed, lease)


def numbers_of(sink: BoundedBlockingPartition, index: int) -> list[int]:
    """The numbers of the batches that a consumer reads, in order; the end is looked for."""
    cursor = sink._cursor(index)  # pyright: ignore[reportPrivateUsage]
    found: list[int] = []
    ends = 0
    while cursor.next_offset is not None:
        for undecoded in cursor.read(READ_BYTES):
            element = undecoded.decode()
            if isinstance(element, SealedBatch):
                assert element.arrow is not None
                found.append(element.arrow.column(0)[0].as_py() // ROWS)
            else:
                ends += element == EndOfPartition()
    cursor.close()
    assert ends == 1
    return found


def test_the_task_goes_on_while_what_it_emitted_is_written(
    tmp_path: Path, layer: FaultyFileLayer
) -> None:
    held = HeldIo()
    sink = partition(held, tmp_path, layer)
    for number in range(BEHIND_BYTES // BATCH_BYTES // 2):
        emit(sink, number)
    assert held.jobs, "something is on its way"
    assert [file.stat().st_size for file in tmp_path.rglob("result-*")] == [0]
    assert sink.pool.used == 0
    sink.release()
    held.close()


@pytest.mark.slow
def test_what_was_written_beside_the_task_is_read_in_the_order_of_emission(
    tmp_path: Path, layer: FaultyFileLayer, io: ThreadIoPool
) -> None:
    layer.short_writes = True
    sink = partition(io, tmp_path, layer)
    for number in range(BATCHES):
        emit(sink, number)
    sink.finish()
    for index in range(CHANNELS):
        assert numbers_of(sink, index) == [
            number for number in range(BATCHES) if number % 5 == 0 or number % CHANNELS == index
        ]
    sink.release()


class LazyBehind:
    """Writes only when it is waited for: as a disk that is slower than its task."""

    def __init__(self) -> None:
        self.pending: deque[tuple[int, Callable[[], None]]] = deque()
        self.most_bytes = 0

    @property
    def pending_bytes(self) -> int:
        return sum(size for size, _ in self.pending)

    def await_room(self, size_bytes: int) -> None:
        while self.pending and self.pending_bytes + size_bytes > BEHIND_BYTES:
            self.pending.popleft()[1]()

    def submit(self, size_bytes: int, write: Callable[[], None]) -> None:
        self.pending.append((size_bytes, write))
        self.most_bytes = max(self.most_bytes, self.pending_bytes)

    def drain(self) -> None:
        while self.pending:
            self.pending.popleft()[1]()


@pytest.mark.slow
def test_the_task_waits_where_more_than_the_bound_would_be_on_its_way(
    tmp_path: Path, layer: FaultyFileLayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = partition(InlineIo(), tmp_path, layer)
    behind = LazyBehind()
    chunks = sink._chunks  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(chunks, "_behind", behind)
    for number in range(BATCHES):
        emit(sink, number)
    sink.finish()
    assert BEHIND_BYTES // 2 < behind.most_bytes <= BEHIND_BYTES
    assert len(numbers_of(sink, 0)) > BATCHES // CHANNELS
    sink.release()


@pytest.mark.parametrize("is_concurrent", [True, False])
def test_a_full_disk_reaches_the_task_with_one_of_its_next_calls_at_the_end_at_last(
    tmp_path: Path, layer: FaultyFileLayer, io: ThreadIoPool, is_concurrent: bool
) -> None:
    layer.space_bytes = CHUNK_BYTES + 100
    sink = partition(io if is_concurrent else InlineIo(), tmp_path, layer)
    with pytest.raises(StorageError, match="No space left on device"):
        for number in range(BATCHES):
            emit(sink, number)
    # Others may have made room since: what is lost stays lost.
    layer.space_bytes = None
    with pytest.raises(StorageError, match="No space left on device"):
        sink.finish()
    assert not sink.is_finished
    sink.fail(None)
    assert sink.pool.used == 0


def test_the_last_of_a_result_that_does_not_fit_fails_its_end(
    tmp_path: Path, layer: FaultyFileLayer, io: ThreadIoPool
) -> None:
    layer.space_bytes = BATCH_BYTES // 2
    sink = partition(io, tmp_path, layer)
    emit(sink, 1)
    with pytest.raises(StorageError, match="No space left on device"):
        sink.finish()
    assert not sink.is_finished
    sink.fail(None)


@pytest.mark.parametrize("jobs_before", [0, 1, 2])
def test_one_that_is_released_while_it_is_written_leaves_no_file_and_stops_nobody(
    tmp_path: Path, layer: FaultyFileLayer, jobs_before: int
) -> None:
    held = HeldIo()
    sink = partition(held, tmp_path, layer)
    for number in range(BEHIND_BYTES // BATCH_BYTES // 2):
        emit(sink, number)
    for _ in range(min(jobs_before, len(held.jobs))):
        held.run_one()
    sink.release()
    held.close()
    assert list(tmp_path.rglob("result-*")) == []
    sink.finish()
    assert sink.pool.used == 0
