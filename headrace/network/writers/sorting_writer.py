"""SortingRecordWriter: rows for a sort-merge partition, which does the splitting by consumer itself, region by region.

Source: Flink RecordWriter over SortMergeResultPartition.
"""

from typing import Final

import numpy as np

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.elements import LatencyMarker, TimeMarker
from headrace.core.record_batch import RecordBatch
from headrace.network.batches.batch_builder import BatchBuilder, WireRows
from headrace.network.batches.channel_selectors import ChannelSelector
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.stored.sort_merge_partition import SortMergePartition
from headrace.network.stored.sort_merge_regions import Channels
from headrace.network.writers.record_writer import SEAL_BYTES, RecordWriter

_SHARE_OF_POOL: Final = 4
"""What is handed over in one go takes at most a quarter of the partition's memory."""


class SortingRecordWriter(RecordWriter):
    """A RecordWriter that hands batches over whole, with the channel of each row."""

    def __init__(
        self,
        partition: SortMergePartition,
        selector: ChannelSelector,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(partition, selector, buffer_timeout_ms, clock, settings)
        self._sorter = partition
        self._seal_bytes = (settings or Settings()).get_option(SEAL_BYTES)
        self._limit_bytes = self._pool.maximum * self._pool.segment_size // _SHARE_OF_POOL
        self._rows = BatchBuilder()
        self._channels: list[Channels] = []

    def emit(self, batch: RecordBatch) -> None:
        """See RecordWriter. StorageError, as on a full disk."""
        self.records_out += batch.num_rows
        rows = WireRows.of(batch.to_arrow())
        if not self._rows.accepts(rows.schema):
            self.flush_all()
            self._rows.accepts(rows.schema)
        self._rows.append(rows)
        self._channels.append(self._selector.channels_of(batch))
        if self._rows.size_estimate >= self._seal_bytes or self._rows.row_count >= self._seal_rows:
            self.flush_all()

    def emit_marker(self, marker: TimeMarker) -> None:
        self._rows.append_marker(marker)
        if self._rows.is_crowded:
            self.flush_all()

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """See RecordWriter. What lies in files until its consumers start says nothing of latency."""
        raise AssertionError("latency markers end before blocking results")

    def flush_all(self) -> None:
        """Hand over everything that waits; nobody sees it before the end in any case."""
        if self._rows.is_empty:
            return
        channels = np.concatenate([np.zeros(0, dtype=np.int32), *self._channels])
        self._channels.clear()
        start = 0
        for piece in self._rows.seal().cut(self._limit_bytes):
            lease = self._pool.try_lease(piece.size_bytes)
            if lease is None:
                lease = self._wait_for_lease(piece.size_bytes, 1)
            self.bytes_out += piece.size_bytes
            self.buffers_out += 1
            end = start + piece.row_count
            self._sorter.collect(piece, channels[start:end], lease)
            start = end


def create_record_writer(
    partition: ResultPartition,
    selector: ChannelSelector,
    buffer_timeout_ms: int,
    clock: Clock,
    settings: Settings | None = None,
) -> RecordWriter:
    """Return the writer that suits the kind of partition."""
    if isinstance(partition, SortMergePartition) and not selector.is_broadcast:
        return SortingRecordWriter(partition, selector, buffer_timeout_ms, clock, settings)
    return RecordWriter(partition, selector, buffer_timeout_ms, clock, settings)
