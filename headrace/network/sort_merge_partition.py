"""SortMergePartition: rows are collected in memory, brought into the order of their consumers, and stored by regions.

Two files, however many consumers there are; each consumer reads long stretches of them. What is the same for all of
them is stored once. Rows wait in half of the partition's memory; the other half is for the copy in order.
Source: Flink SortMergeResultPartition.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.core.config import ConfigOption
from headrace.core.elements import StreamEvent, StreamMarker
from headrace.core.ids import ResultPartitionId
from headrace.network.batch_writer import BatchWriter
from headrace.network.batches import SealedBatch
from headrace.network.compression import BatchCompressor
from headrace.network.local_pool import LocalBufferPool, SegmentLease
from headrace.network.partitioned_file import PartitionedFile, PartitionedFileWriter
from headrace.network.sort_merge_index import Extent
from headrace.network.sort_merge_regions import Channels, plan_region, rotated, take_steps
from headrace.network.stored_batches import (
    StoredElement,
    decode_elements,
    element_bytes,
    encode_batch,
    encode_stored_event,
    pieces_bytes,
)
from headrace.network.stored_partition import PartitionOwner, PartitionStorage, StoredPartition

SORT_SHUFFLE_MIN_PARALLELISM: Final = ConfigOption(
    "taskmanager.network.sort-shuffle.min-parallelism", int, 8,
    "Blocking results of so many consumers are sorted by consumer before they are stored; others as they come.",
)  # fmt: skip
SORT_SHUFFLE_MIN_BUFFERS: Final = ConfigOption(
    "taskmanager.network.sort-shuffle.min-buffers", int, 512,
    "The least memory in which a sort-merge result collects its rows, in segments; an eighth of what is free if more.",
)  # fmt: skip
REGION_BYTES_MAX: Final = 256 << 20
MESSAGE_BYTES: Final = 128 << 10
"""What is stored as one batch; consumers with smaller segments cut it again."""
WRITE_BYTES: Final = 8 << 20
"""What is handed to the operating system in one go."""


class SortMergePartition(StoredPartition):
    """See the module. Best written to by a SortingRecordWriter, which does not split batches by consumer first."""

    def __init__(
        self,
        partition_id: ResultPartitionId,
        subpartition_count: int,
        pool: LocalBufferPool,
        storage: PartitionStorage,
        owner: PartitionOwner,
        compressor: BatchCompressor,
    ) -> None:
        super().__init__(partition_id, subpartition_count, pool, storage, owner)
        self._region_bytes = min(REGION_BYTES_MAX, pool.maximum * pool.segment_size // 2)
        self._writer = PartitionedFileWriter(storage.directories, subpartition_count)
        self._encoder = _Encoder(self._writer, compressor)
        self._file: PartitionedFile | None = None
        self._collected: list[tuple[pa.RecordBatch, Channels]] = []
        self._markers: list[tuple[int, StreamMarker]] = []
        self._shared: list[SealedBatch] = []  # what is the same for all consumers
        self._leases: list[tuple[SegmentLease, int]] = []
        self._row_count = self._size_bytes = 0

    def collect(self, sealed: SealedBatch, channels: Channels, lease: SegmentLease) -> None:
        """Take rows of which `channels` (shape (num_rows,)) says whose they are; markers are for all. StorageError."""
        self._keep(lease, 1)
        if self._shared or self._has_other_schema(sealed):
            self.spill()
        for placed in sealed.markers:
            self._markers.append((self._row_count + placed.row_offset, placed.marker))
        if sealed.arrow is not None:
            self._collected.append((sealed.arrow, channels))
        self._row_count += sealed.row_count
        self._spill_if_full(sealed)

    def emit(self, index: int, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition. StorageError. A region of its own where it has markers, which are for one alone."""
        if not sealed.markers:
            self.collect(sealed, np.full(sealed.row_count, index, dtype=np.int32), lease)
            return
        self._keep(lease, 1)
        self.spill()
        self._write(lambda: self._write_single_region(index, sealed))

    def broadcast(self, sealed: SealedBatch, lease: SegmentLease) -> None:
        """See ResultPartition: stored once, found by all. StorageError."""
        self._keep(lease, self.subpartition_count)
        if self._collected or self._markers:
            self.spill()
        self._shared.append(sealed)
        self._spill_if_full(sealed)

    def emit_event(
        self, event: StreamEvent, *, is_priority: bool = False, blocks_upstream: bool = False
    ) -> None:
        """See ResultPartition. StorageError."""
        self.spill()
        self._write(lambda: self._write_shared_region([encode_stored_event(event)]))

    def make_room(self) -> None:
        """See ResultPartition."""
        self.spill()

    def spill(self) -> None:
        """Store what was collected as one region. By the task's thread. StorageError."""
        collected, self._collected = self._collected, []
        markers, self._markers = self._markers, []
        shared, self._shared = self._shared, []
        self._row_count = self._size_bytes = 0
        try:
            if shared:
                self._write(lambda: self._write_shared_region(shared))
            elif collected or markers:
                self._write(lambda: self._write_region(collected, markers))
        finally:
            leases, self._leases = self._leases, []
            for lease, references in leases:
                for _ in range(references):
                    lease.release()

    def _keep(self, lease: SegmentLease, references: int) -> None:
        self._leases.append((lease, references))

    def _spill_if_full(self, sealed: SealedBatch) -> None:
        self._size_bytes += sealed.size_bytes
        # Before the pool has nothing left: nobody but this task will give anything back.
        if self._size_bytes >= self._region_bytes or 2 * self.pool.used >= self.pool.size:
            self.spill()

    def _has_other_schema(self, sealed: SealedBatch) -> bool:
        if not self._collected or sealed.arrow is None:
            return False
        return not self._collected[0][0].schema.equals(sealed.arrow.schema)

    def _write_region(
        self,
        collected: list[tuple[pa.RecordBatch, Channels]],
        markers: Sequence[tuple[int, StreamMarker]],
    ) -> None:
        count = self.subpartition_count
        no_channels = np.zeros(0, dtype=np.int32)
        plan = plan_region(np.concatenate([no_channels, *(c for _, c in collected)]), count)
        rows = pa.concat_batches([batch for batch, _ in collected]) if collected else None
        collected.clear()  # One copy less while the rows are brought into order.
        row_bytes = rows.nbytes / rows.num_rows if rows is not None else 0.0
        extents = [Extent(0, 0)] * count
        for run in rotated(count, self.partition_id.partition_number):
            for step in take_steps(plan, run, row_bytes):
                start = int(plan.starts[step.start])
                taken = None
                if rows is not None:
                    taken = rows.take(pa.array(plan.order[start : plan.starts[step.stop]]))
                for channel in step:
                    begin = self._encoder.position
                    first, stop = plan.starts[channel] - start, plan.starts[channel + 1] - start
                    share = taken.slice(first, stop - first) if taken and stop > first else None
                    sealed = SealedBatch(share, plan.markers_of(channel, markers))
                    if share is not None or sealed.markers:
                        self._encoder.write(sealed)
                    extents[channel] = Extent(begin, self._encoder.position - begin)
        self._encoder.flush()
        self._writer.end_region(extents)

    def _write_shared_region(self, elements: Sequence[SealedBatch | list[Any]]) -> None:
        begin = self._encoder.position
        for element in elements:
            if isinstance(element, SealedBatch):
                self._encoder.write(element)
            else:
                self._encoder.add(element)
        extent = Extent(begin, self._encoder.position - begin)
        self._encoder.flush()
        self._writer.end_region([extent] * self.subpartition_count)

    def _write_single_region(self, index: int, sealed: SealedBatch) -> None:
        begin = self._encoder.position
        self._encoder.write(sealed)
        extents = [Extent(begin, 0)] * self.subpartition_count
        extents[index] = Extent(begin, self._encoder.position - begin)
        self._encoder.flush()
        self._writer.end_region(extents)

    def _write(self, write: Callable[[], None]) -> None:
        """Call `write` with the files retained; not at all where the partition was withdrawn under its task."""
        if self.is_released or not self._writer.retain():
            return
        try:
            write()
        finally:
            self._writer.let_go()

    def _complete(self) -> None:
        def finish() -> None:
            self._file = self._writer.finish()

        self._write(finish)

    @property
    def file(self) -> PartitionedFile | None:
        """What was written, once it is finished. Any thread."""
        return self._file

    @property
    def written_bytes(self) -> int:
        """Bytes of data that were handed to the operating system. By the writing thread."""
        return self._writer.data.size

    def _cursor(self, index: int) -> "RegionCursor":
        self._writer.retain()
        return RegionCursor(self, index, self._writer.let_go)

    def _discard(self) -> None:
        self._writer.let_go()


class _Encoder:
    """Gathers encoded batches for large writes."""

    def __init__(self, writer: PartitionedFileWriter, compressor: BatchCompressor) -> None:
        self._writer = writer
        self._compressor = compressor
        self._batch_writer = BatchWriter()
        self._pieces: list[Any] = []
        self._pending_bytes = 0

    @property
    def position(self) -> int:
        """Where in the file the next batch will lie."""
        return self._writer.data.size + self._pending_bytes

    def write(self, sealed: SealedBatch) -> None:
        """Add a batch, in messages of a handy size."""
        for piece in sealed.cut(MESSAGE_BYTES):
            piece.write(self._batch_writer)
            self.add(encode_batch(piece, piece.body(), self._writer.schemas, self._compressor))

    def add(self, pieces: Sequence[Any]) -> None:
        """Add what is encoded."""
        self._pieces += pieces
        self._pending_bytes += pieces_bytes(pieces)
        if self._pending_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Have everything written."""
        pieces, self._pieces, self._pending_bytes = self._pieces, [], 0
        if pieces:
            self._writer.append(pieces)


class RegionSource(Protocol):
    """What a cursor needs of a partition whose file is there once it is finished."""

    @property
    def file(self) -> PartitionedFile | None:
        """What was written, once it is finished. Any thread."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether it may be read. Any thread."""
        ...


class RegionCursor:
    """Goes through the extents of one subpartition. Implements SubpartitionCursor."""

    def __init__(self, partition: RegionSource, index: int, let_go: Callable[[], None]) -> None:
        self.close: Final = let_go
        self._partition = partition
        self._index = index
        self._next_region = 0
        self._extent = Extent(0, 0)

    @property
    def next_offset(self) -> int | None:
        """See SubpartitionCursor: nothing before the partition is finished."""
        file = self._partition.file
        if file is None or not self._partition.is_finished:
            return None
        if self._extent.length == 0 and self._next_region == file.region_count:
            return None
        return self._extent.offset

    def read(self, limit_bytes: int) -> Sequence[StoredElement]:
        """See SubpartitionCursor."""
        file = self._partition.file
        assert file is not None
        if not self._extent.length:
            self._go_on(file)
        if not self._extent.length:
            return ()
        place = str(file.data.path)
        data = file.data.read(self._extent.offset, min(limit_bytes, self._extent.length))
        found = list(decode_elements(data, file.schemas, place))
        if not found:
            data = file.data.read(self._extent.offset, element_bytes(data, place))
            found = list(decode_elements(data, file.schemas, place))
        done = found[-1][1]
        self._extent = Extent(self._extent.offset + done, self._extent.length - done)
        if not self._extent.length:
            self._go_on(file)
        return [element for element, _ in found]

    def _go_on(self, file: PartitionedFile) -> None:
        """To the next region that has anything for this subpartition."""
        while not self._extent.length and self._next_region < file.region_count:
            self._extent = file.extent(self._next_region, self._index)
            self._next_region += 1
