"""SortMergePartition: collects rows in memory, sorts them by consumer and stores them in regions.

It has two files, whatever the number of consumers; each consumer reads long stretches with a RegionCursor.
Broadcast rows are stored once. Sorted rows wait in half of the partition's memory; the other half holds the
previous region, which the I/O pool writes meanwhile (see chunk_writer.py).
Source: Flink SortMergeResultPartition, PartitionedFileReader.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.core.config import ConfigOption
from headrace.core.elements import StreamEvent, StreamMarker
from headrace.core.ids import ResultPartitionId
from headrace.network.batches.channel_selectors import Channels
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import CorruptFileError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, SegmentLease
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.stored.chunk_writer import JOINED_BYTES, RegionWriter
from headrace.network.stored.file_format import (
    BatchCompressor,
    PreparedElement,
    UndecodedElement,
    element_bytes,
    prepare_event,
    split_elements,
)
from headrace.network.stored.partitioned_file import Extent, PartitionedFile, PartitionedFileWriter
from headrace.network.stored.sort_merge_regions import (
    SortedRun,
    batches_of,
    rotated,
    run_bytes,
    sort_run,
)
from headrace.network.stored.stored_partition import (
    PartitionStorage,
    StoredPartition,
)
from headrace.network.stored.stored_view import CoalescedRead

SORT_SHUFFLE_MIN_PARALLELISM: Final = ConfigOption(
    "taskmanager.network.sort-shuffle.min-parallelism", int, 8,
    "Least number of consumers for which a blocking result is sorted by consumer before it is stored.",
)  # fmt: skip
SORT_SHUFFLE_MIN_BUFFERS: Final = ConfigOption(
    "taskmanager.network.sort-shuffle.min-buffers", int, 512,
    "The least memory in which a sort-merge result collects its rows, in segments; an eighth of free memory if more, "
    "and up to a quarter for hundreds of consumers.",
)  # fmt: skip
REGION_BYTES_MAX: Final = 256 << 20


class RegionSource(Protocol):
    """Partition as seen by its cursor; its file exists once it is finished."""

    @property
    def file(self) -> PartitionedFile | None:
        """File of the partition, or None until it is finished. Any thread."""
        ...

    @property
    def is_finished(self) -> bool:
        """Return whether the partition may be read. Any thread."""
        ...


class RegionCursor:
    """Reads the extents of one subpartition, region by region. Implements SubpartitionCursor.

    Source: Flink PartitionedFileReader.
    """

    def __init__(self, partition: RegionSource, index: int, let_go: Callable[[], None]) -> None:
        self.close: Final = let_go
        self._partition = partition
        self._index = index
        self._next_region = 0
        self._extent = Extent(0, 0)

    @property
    def next_offset(self) -> int | None:
        """File offset of the next element; None before the partition is finished or at its end."""
        file = self._partition.file
        if file is None or not self._partition.is_finished:
            return None
        if self._extent.length == 0 and self._next_region == file.region_count:
            return None
        return self._extent.offset

    def next_length(self, limit_bytes: int) -> int:
        """Return the remaining bytes of the current extent, within the limit."""
        return min(limit_bytes, self._extent.length)

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> Sequence[UndecodedElement]:
        """Return about `limit_bytes` of elements. CorruptFileError if the file was damaged."""
        file = self._partition.file
        assert file is not None
        if not self._extent.length:
            self._go_on(file)
        if not self._extent.length:
            return ()
        place = str(file.data.path)
        offset, length = self._extent.offset, min(limit_bytes, self._extent.length)
        data = None if stretch is None else stretch.read(file.data, offset, length)
        if data is None:
            data = file.data.read(offset, length)
        found = list(split_elements(data, file.schemas, place, offset))
        if not found:
            # The length is used before its checksum is verified: a damaged one may exceed the file by far.
            size = element_bytes(data, place)
            if size > self._extent.length:
                raise CorruptFileError(
                    place, "an element is longer than the index of the file says"
                )
            data = file.data.read(offset, size)
            found = list(split_elements(data, file.schemas, place, offset))
        done = found[-1].end
        self._extent = Extent(self._extent.offset + done, self._extent.length - done)
        if not self._extent.length:
            self._go_on(file)
        return found

    def _go_on(self, file: PartitionedFile) -> None:
        """Move to the next region that has data for this subpartition."""
        while not self._extent.length and self._next_region < file.region_count:
            self._extent = file.extent(self._next_region, self._index)
            self._next_region += 1


class SortMergePartition(StoredPartition):
    """Stores rows in regions sorted by consumer. Best written by SortingRecordWriter, which does not split batches."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        manager: ResultPartitionManager,
        compressor: BatchCompressor,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, manager)
        self._region_bytes = min(REGION_BYTES_MAX, pool.maximum * pool.segment_size // 2)
        self._run_bytes = run_bytes(subpartition_count, self._region_bytes)
        self._file: PartitionedFile | None = None
        self._runs: list[SortedRun] = []
        # Contents of the run that is being collected.
        self._batches: list[tuple[pa.RecordBatch, Channels]] = []
        self._markers: list[tuple[int, StreamMarker]] = []
        self._row_count = self._unsorted_bytes = 0
        self._shared: list[SealedBatch] = []  # batches for all consumers
        # Leases of the region's runs or shared batches. Guarded by the lock, because a cancelling thread takes them.
        self._leases: list[tuple[SegmentLease, int]] = []
        self._segment_count = self._size_bytes = 0
        self._writer = PartitionedFileWriter(storage.directories, subpartition_count)
        self._regions = RegionWriter(self._writer, compressor, storage.io, self._region_bytes)

    def collect(self, sealed: SealedBatch, channels: Channels, lease: SegmentLease) -> None:
        """Collect rows; `channels`, shape (num_rows,), gives the subpartition of each; markers are for all.

        StorageError of this or an earlier write.
        """
        self._keep(lease, 1)
        if self._shared or self._has_other_schema(sealed):
            self.spill()
        for placed in sealed.markers:
            self._markers.append((self._row_count + placed.row_offset, placed.marker))
        if sealed.arrow is not None:
            self._batches.append((sealed.arrow, channels))
        self._row_count += sealed.row_count
        self._unsorted_bytes += sealed.size_bytes
        if self._unsorted_bytes >= self._run_bytes:
            self._sort_run()
        self._spill_if_full(sealed)

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Collect a batch; one with markers for this subpartition gets a region of its own.

        StorageError of this or an earlier write.
        """
        if not sealed.markers:
            self.collect(sealed, np.full(sealed.row_count, index, dtype=np.int32), lease)
            return
        self._keep(lease, 1)
        self.spill()
        self._write(lambda: self._write_single_region(index, sealed))

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """Store a batch once for all subpartitions. StorageError of this or an earlier write."""
        self._keep(lease, self.subpartition_count)
        if self._runs or self._batches or self._markers:
            self.spill()
        self._shared.append(sealed)
        self._spill_if_full(sealed)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Store an event for all subpartitions. StorageError of this or an earlier write."""
        self.spill()
        self._write(lambda: self._write_shared_region([prepare_event(event)]))

    def make_room(self) -> None:
        self.spill()

    def spill(self) -> None:
        """Store the collected rows as one region. Task's thread. StorageError of this or an earlier write."""
        self._sort_run()
        runs, self._runs = self._runs, []
        shared, self._shared = self._shared, []
        leases = self._take_leases()
        size, self._size_bytes, self._segment_count = self._size_bytes, 0, 0
        try:
            if shared or runs:
                # The previous region may use half of the memory, and this one has the other half.
                self._regions.await_room(size)
            if shared:
                self._write(lambda: self._write_shared_region(shared))
            elif runs:
                self._write(lambda: self._write_region(runs))
        finally:
            # Pending writes have a bound of their own, and no longer count as collected.
            _release(leases)

    def close(self) -> None:
        """Close the partition and drop collected rows that are not stored yet."""
        super().close()
        _release(self._take_leases())

    def _sort_run(self) -> None:
        if not self._batches and not self._markers:
            return
        batches, self._batches = self._batches, []
        markers, self._markers = self._markers, []
        self._row_count = self._unsorted_bytes = 0
        rows, channels = [each for each, _ in batches], [each for _, each in batches]
        del batches
        self._runs.append(sort_run(rows, channels, self.subpartition_count, markers))

    def _keep(self, lease: SegmentLease, references: int) -> None:
        self._segment_count += lease.count
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._leases.append((lease, references))
        if is_closed:
            _release([(lease, references)])

    def _take_leases(self) -> list[tuple[SegmentLease, int]]:
        with self._lock:
            leases, self._leases = self._leases, []
        return leases

    def _spill_if_full(self, sealed: SealedBatch) -> None:
        self._size_bytes += sealed.size_bytes
        # Before the pool is exhausted: only this task returns its segments.
        if self._size_bytes >= self._region_bytes or 2 * self._segment_count >= self.pool.size:
            self.spill()

    def _has_other_schema(self, sealed: SealedBatch) -> bool:
        if sealed.arrow is None:
            return False
        known = self._runs[-1].rows if self._runs else None
        if self._batches:
            known = self._batches[0][0]
        return known is not None and not known.schema.equals(sealed.arrow.schema)

    def _write_region(self, runs: Sequence[SortedRun]) -> None:
        extents = [Extent(0, 0)] * self.subpartition_count
        for part in rotated(self.subpartition_count, self.partition_id.partition_number):
            for channel in part:
                begin = self._regions.position
                for sealed in batches_of(runs, channel, JOINED_BYTES):
                    self._regions.write(sealed)
                extents[channel] = Extent(begin, self._regions.position - begin)
        self._regions.end_region(extents)

    def _write_shared_region(self, elements: Sequence[SealedBatch | PreparedElement]) -> None:
        begin = self._regions.position
        for element in elements:
            if isinstance(element, SealedBatch):
                self._regions.write(element)
            else:
                self._regions.add(element)
        extent = Extent(begin, self._regions.position - begin)
        self._regions.end_region([extent] * self.subpartition_count)

    def _write_single_region(self, index: int, sealed: SealedBatch) -> None:
        begin = self._regions.position
        self._regions.write(sealed)
        extents = [Extent(begin, 0)] * self.subpartition_count
        extents[index] = Extent(begin, self._regions.position - begin)
        self._regions.end_region(extents)

    def _write(self, write: Callable[[], None]) -> None:
        """Call `write` with the files retained, or not at all if the partition was released while its task runs."""
        if self.is_released or not self._writer.retain():
            return
        try:
            write()
        finally:
            self._writer.let_go()

    def _complete(self) -> None:
        def finish() -> None:
            self._file = self._regions.finish()

        self._write(finish)

    @property
    def file(self) -> PartitionedFile | None:
        """File of the partition, or None until it is finished. Any thread."""
        return self._file

    @property
    def written_bytes(self) -> int:
        """Bytes of data handed to the operating system so far. Any thread; a snapshot."""
        return self._writer.data.size

    def _cursor(self, index: int) -> "RegionCursor":
        self._writer.retain()
        return RegionCursor(self, index, self._writer.let_go)

    def _discard(self) -> None:
        self._writer.let_go()


def _release(leases: Sequence[tuple[SegmentLease, int]]) -> None:
    for lease, references in leases:
        lease.release(references)
