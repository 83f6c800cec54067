"""RecordWriter: one subtask's rows, markers and events on their way to one partition.

Rows wait per channel, as references, in a BatchBuilder. They are sealed into one batch when they are enough bytes or
rows, when an event must not overtake them, or when a flush comes. A batch that is large enough already is sealed as it
is. `create_record_writer` chooses the class by the edge:

    ChannelSelectorRecordWriter    whole batches, or a few parts of each, to the channels that a selector names;
                                   an edge with a single channel is the simplest case
    PartitioningRecordWriter       rows of a batch go to many channels, as on a keyed edge: batches wait undivided until
                                   splitting them is worth while
    BroadcastRecordWriter          each batch is sealed once, for all channels
    SortingRecordWriter            a sort-merge partition, which does the splitting itself, region by region

Source: Flink RecordWriter, ChannelSelectorRecordWriter, BroadcastRecordWriter, RecordWriterBuilder.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.core.barriers import CheckpointBarrier
from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.elements import (
    EndOfOutputChannelState,
    LatencyMarker,
    PlacedMarker,
    StreamEvent,
    TimeMarker,
)
from headrace.core.record_batch import RecordBatch
from headrace.network.batches.channel_selectors import Channels, ChannelSelector
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS, batch_rows
from headrace.network.flow.latency_governor import FlushObserved, LatencyGovernor
from headrace.network.memory.local_buffer_pool import SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.result_partition import ResultPartition
from headrace.network.stored.sort_merge_partition import SortMergePartition
from headrace.network.writers.batch_builder import MARKERS_MAX, BatchBuilder
from headrace.network.writers.partition_buffer import ROWS_PER_CHANNEL, PartitionBuffer

SEAL_BYTES: Final = ConfigOption(
    "headrace.network.seal-size", SizeBytes, SizeBytes(128 * 1024),
    "Bytes of rows for one channel at which they are sent, whatever the buffer timeout; where rows are split among "
    "many consumers, at least 16 KB or 256 rows for each of them.",
)  # fmt: skip
SEAL_ROWS: Final = ConfigOption(
    "headrace.network.seal-rows", int, 16384,
    "Rows for one channel at which they are sent, whatever the buffer timeout; with the same exception as the size.",
)  # fmt: skip
FLUSH_ALWAYS: Final = 0
FULL_BATCHES_ONLY: Final = -1
PIECE_FACTOR: Final = 2
"""A batch of more rows than are enough by this is cut."""
HANDED_OVER_TOGETHER_MAX: Final = 32
"""Batches that are sealed before any of them is handed over. To hand over wakes the network thread, which shares the
interpreter, and often the core, with the task: done one by one, each batch costs two changes of threads."""

_SHARE_OF_SORTING_POOL: Final = 4
"""A sort-merge partition is handed at most a quarter of its memory in one go."""

Lend = Callable[[int, int], SegmentLease | None]
"""Takes segments for a batch of so many bytes and references."""


class RecordWriter(ABC):
    """Writes to all subpartitions of one partition. Called by the task's thread; `close` and `fail` by any.

    `buffer_timeout_ms`: 0 hands over after each call, -1 only full batches, else the task calls `flush_all` after it;
    with a latency target, and unless it is -1, after what its governor chose (`hold_ms`). `builder_count`: how many
    batches are built at a time.
    """

    def __init__(
        self,
        partition: ResultPartition,
        builder_count: int,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self.partition: Final = partition
        self.buffer_timeout_ms: Final = buffer_timeout_ms
        self.hard_back_pressured_ns = 0
        self.records_out = 0
        self.bytes_out = 0
        self.buffers_out = 0
        self._clock = clock
        self._pool = partition.pool
        self._seal_bytes = min(settings.get_option(SEAL_BYTES), self._pool.segment_size)
        self._seal_rows = settings.get_option(SEAL_ROWS)
        self._builders = [BatchBuilder() for _ in range(builder_count)]
        # Sealed within the present call, and handed over before it returns.
        self._sealed: list[tuple[int, SealedBatch, SegmentLease]] = []
        self.governor: Final = (
            None
            if buffer_timeout_ms == FULL_BATCHES_ONLY
            else LatencyGovernor.from_settings(settings, builder_count, self._seal_rows)
        )
        self._flushes_always = buffer_timeout_ms == FLUSH_ALWAYS and self.governor is None
        self._held_since_ns: int | None = None

    @property
    def hold_ms(self) -> float:
        """Longest time that the task may hold back rows before it calls `flush_all`; see `buffer_timeout_ms`."""
        return self.buffer_timeout_ms if self.governor is None else self.governor.choice.hold_ms

    @property
    def is_available(self) -> bool:
        """Return whether the next batch will find room; the task should do something else while it does not."""
        return self._pool.is_available

    @property
    def rows_wanted(self) -> int:
        """Rows that should be emitted at once at most: more would be in flight at once than consumers wish."""
        return self._least_batch_rows() * self.partition.subpartition_count

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, as soon as the writer is available; now if it is."""
        self._pool.on_available(callback)

    @abstractmethod
    def emit(self, batch: RecordBatch) -> None:
        """Send rows to the channels they belong to; waits only past the overdraft. CancelTaskException after close."""

    def emit_marker(self, marker: TimeMarker) -> None:
        """Send a watermark or a change of idleness to every channel, behind the rows emitted so far."""
        for builder in self._builders:
            builder.append_marker(marker)
        self._seal_all(lambda builder: self._flushes_always or builder.is_crowded)

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """Send a latency marker to one channel, behind the rows emitted so far."""
        addressed = self._builders[channel]
        addressed.append_marker(marker)
        if self._flushes_always or addressed.is_crowded:
            self._seal_all(lambda builder: builder is addressed)

    def limit_at_first(self, in_flight_rows: int) -> None:
        """Let so many rows wait for each consumer until it says itself how many it wants."""
        self.partition.limit_at_first(in_flight_rows)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Send an event to every channel, behind everything emitted so far; see QueuedEvent."""
        self.flush_all()
        self.partition.emit_event(event, blocks_upstream=blocks_upstream)

    def emit_barrier(self, barrier: CheckpointBarrier) -> InFlightOutput:
        """Send a barrier to every channel, as its options say; return what it overtakes. Never waits.

        One that overtakes leaves rows that are not sealed yet behind it; they count as overtaken.
        """
        # What is sealed here is in memory anyway: the barrier need not wait until a consumer makes room.
        self._distribute(self._pool.borrow)
        if barrier.options.is_unaligned:
            return self.partition.emit_barrier(barrier, self._unsealed())
        self._seal_all(_has_some, self._pool.borrow)
        return self.partition.emit_barrier(barrier, {})

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """Have a barrier that may time out overtake what stands before it, wherever it still waits."""
        self.partition.time_out_barrier(checkpoint_id)

    def restore(self, channel: int, batches: Iterable[SealedBatch]) -> None:
        """Hand over what a checkpoint caught on its way to `channel`, before anything is emitted. Never waits."""
        for sealed in batches:
            for piece in sealed.cut(self._pool.segment_size):
                self.partition.prepare(channel, piece)
                self.partition.emit(channel, piece, self._pool.borrow(piece.size_bytes))

    def finish_restore(self) -> None:
        """Tell consumers that all was restored; they read nothing new before they have what others restored too."""
        self.partition.emit_event(EndOfOutputChannelState(), blocks_upstream=True)

    def flush_all(self) -> None:
        """Hand over everything that waits."""
        if self.governor is not None:
            self._govern(self.governor)
        self._distribute()
        self._seal_all(_has_some)

    def finish(self) -> None:
        """Hand over what waits and end the partition."""
        self.flush_all()
        self.partition.finish()

    def fail(self, cause: BaseException) -> None:
        """End the partition with an error that its consumers will see. Any thread."""
        self.partition.fail(cause)

    def close(self) -> None:
        """Release the partition; consumers see a failure where it was not finished. Idempotent, any thread."""
        if self.partition.is_finished:
            self.partition.close()
        else:
            self.partition.fail(None)

    def _count(self, batch: RecordBatch) -> None:
        """Take note of rows that are emitted."""
        if self.governor is not None and self._held_since_ns is None:
            self._held_since_ns = self._clock.monotonic_ns()
        self.records_out += batch.num_rows

    def _govern(self, governor: LatencyGovernor) -> None:
        """Tell the governor of a flush that comes, where rows wait for it, and do as it chooses from now on."""
        since_ns, self._held_since_ns = self._held_since_ns, None
        now_ns = self._clock.monotonic_ns()
        if since_ns is None or not governor.is_due(now_ns):
            return
        seen = FlushObserved(
            now_ns, self.records_out, self.partition.longest_queue, (now_ns - since_ns) / 1e6
        )
        self._limit_rows(governor.flushed(seen).rows)

    def _limit_rows(self, row_count: int) -> None:
        """Seal batches of so many rows from now on."""
        self._seal_rows = row_count

    def _distribute(self, lend: Lend | None = None) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Bring rows that wait undivided to the builders of their channels."""

    def _add(self, channel: int, rows: pa.RecordBatch) -> None:
        """Add rows behind those that wait for a channel; what has another schema is sealed before."""
        # Not `nbytes`, which walks every buffer and takes ten times as long.
        size_bytes = pa.ipc.get_record_batch_size(rows)
        self._make_acceptable(channel, rows.schema)
        self._append(channel, rows, size_bytes, size_bytes)

    def _make_acceptable(self, channel: int, schema: pa.Schema, lend: Lend | None = None) -> None:
        if not self._builders[channel].accepts(schema):
            self._seal(channel, lend)
            self._builders[channel].accepts(schema)

    def _append(
        self,
        channel: int,
        rows: pa.RecordBatch,
        size_bytes: float,
        exact_bytes: int | None = None,
        lend: Lend | None = None,
    ) -> None:
        builder = self._builders[channel]
        builder.append(rows, size_bytes, exact_bytes)
        if (
            builder.size_estimate >= self._seal_bytes
            or builder.row_count >= min(self._seal_rows, self._wished_rows(channel))
            or builder.is_crowded
            or self._flushes_always
        ):
            self._seal(channel, lend)

    def _wished_rows(self, channel: int) -> int:
        """Rows of a batch for a consumer: a slow one wants less in flight than a full one."""
        wanted = self.partition.in_flight_rows(channel)
        return UNLIMITED_ROWS if wanted is None else batch_rows(wanted)

    def _least_batch_rows(self) -> int:
        """Rows of a batch for the slowest consumer."""
        count = self.partition.subpartition_count
        wishes = [self.partition.in_flight_rows(channel) for channel in range(count)]
        return min(
            (batch_rows(each) for each in wishes if each is not None), default=UNLIMITED_ROWS
        )

    def _unsealed(self) -> dict[int, SealedBatch]:
        """Return the unsealed rows of each channel that has some."""
        return {
            channel: builder.peek()
            for channel, builder in enumerate(self._builders)
            if not builder.is_empty
        }

    def _seal_all(self, is_due: Callable[[BatchBuilder], bool], lend: Lend | None = None) -> None:
        """Seal what waits for each channel where it is due, and hand it over."""
        try:
            for channel, builder in enumerate(self._builders):
                if is_due(builder):
                    self._seal(channel, lend)
        finally:
            self._hand_over()

    def _seal(self, channel: int, lend: Lend | None = None) -> None:
        for piece in self._pieces(channel):
            # Before any of them is handed over: whoever is woken then takes turns with this thread.
            self.partition.prepare(channel, piece)
            # On its own line: to wait for it hands over what was sealed, and begins a new list.
            lease = self._lease_for(piece, 1, lend)
            self._sealed.append((channel, piece, lease))
            if len(self._sealed) >= HANDED_OVER_TOGETHER_MAX:
                self._hand_over()

    def _pieces(self, channel: int) -> list[SealedBatch]:
        """Take what waits for a channel, cut to what fits a segment and its consumer wants."""
        assert not self.partition.is_finished, f"{self.partition.partition_id} has ended"
        rows_max = PIECE_FACTOR * self._wished_rows(channel)
        return self._builders[channel].seal().cut(self._pool.segment_size, rows_max)

    def _lease_for(self, piece: SealedBatch, references: int, lend: Lend | None) -> SegmentLease:
        lease = (lend or self._pool.try_lease)(piece.size_bytes, references)
        if lease is None:
            lease = self._wait_for_lease(piece.size_bytes, references)
        self.bytes_out += piece.size_bytes
        self.buffers_out += 1
        return lease

    def _wait_for_lease(self, size_bytes: int, references: int) -> SegmentLease:
        started_ns = self._clock.monotonic_ns()
        # Consumers give back only what they have.
        self._hand_over()
        self.partition.make_room()
        try:
            return self._pool.lease(size_bytes, references)
        finally:
            self.hard_back_pressured_ns += self._clock.monotonic_ns() - started_ns

    def _hand_over(self) -> None:
        """Give what was sealed to the partition, also after an error: its segments must not be lost."""
        sealed, self._sealed = self._sealed, []
        given = 0
        try:
            for channel, piece, lease in sealed:
                given += 1
                self.partition.emit(channel, piece, lease)
        finally:
            for _, _, lease in sealed[given:]:
                lease.release()


class ChannelSelectorRecordWriter(RecordWriter):
    """Sends each batch, or its parts, at once to the builders of the channels that a selector names."""

    def __init__(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings,
    ) -> None:
        super().__init__(
            partition, partition.subpartition_count, buffer_timeout_ms, clock, settings
        )
        self._selector = selector

    def emit(self, batch: RecordBatch) -> None:
        self._count(batch)
        try:
            for channel, rows in self._selector.select(batch):
                self._add(channel, rows.to_arrow())
        finally:
            self._hand_over()


class PartitioningRecordWriter(RecordWriter):
    """Collects batches whose rows go to many channels in a PartitionBuffer, and splits several of them at once."""

    def __init__(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings,
    ) -> None:
        count = partition.subpartition_count
        super().__init__(partition, count, buffer_timeout_ms, clock, settings)
        self._selector = selector
        self._undivided = PartitionBuffer(count, min(ROWS_PER_CHANNEL, self._seal_rows))

    @property
    def rows_wanted(self) -> int:
        return self._undivided.rows_with(self._least_batch_rows())

    def emit(self, batch: RecordBatch) -> None:
        self._count(batch)
        self._undivided.append(batch, self._selector.channels_of(batch))
        if self._flushes_always or self._undivided.is_enough:
            self._distribute()

    def emit_marker(self, marker: TimeMarker) -> None:
        self._undivided.append_marker(marker)
        self._marker_added()

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        self._undivided.append_marker(marker, channel)
        self._marker_added()

    def _marker_added(self) -> None:
        if self._flushes_always:
            self.flush_all()
        elif self._undivided.is_enough:
            self._distribute()

    def _limit_rows(self, row_count: int) -> None:
        super()._limit_rows(row_count)
        self._limit_undivided()

    def _limit_undivided(self) -> None:
        rows_per_channel = min(ROWS_PER_CHANNEL, self._seal_rows)
        self._undivided.limit_rows(rows_per_channel, self._least_batch_rows())

    def _distribute(self, lend: Lend | None = None) -> None:
        if self._undivided.is_empty:
            return
        try:
            for share in self._undivided.split():
                builder = self._builders[share.channel]
                if share.schema is not None:
                    self._make_acceptable(share.channel, share.schema, lend)
                builder.append_markers(share.markers)
                if share.rows is not None:
                    self._append(share.channel, share.rows, share.size_bytes, lend=lend)
                elif builder.is_crowded:
                    self._seal(share.channel, lend)
            self._limit_undivided()
        finally:
            self._hand_over()


class BroadcastRecordWriter(RecordWriter):
    """Seals each batch once, for all channels."""

    def __init__(
        self, partition: ResultPartition, buffer_timeout_ms: int, clock: Clock, settings: Settings
    ) -> None:
        super().__init__(partition, 1, buffer_timeout_ms, clock, settings)
        # Latency markers for one channel each, which go behind the rows that wait for all.
        self._behind: list[tuple[int, LatencyMarker]] = []

    @property
    def rows_wanted(self) -> int:
        return self._least_batch_rows()

    def emit(self, batch: RecordBatch) -> None:
        self._count(batch)
        self._add(0, batch.to_arrow())

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """Send a latency marker to one channel, behind all rows that are sealed together; they wait no less for it."""
        if self.partition.subpartition_count == 1:
            super().emit_latency_marker(marker, channel)
            return
        self._behind.append((channel, marker))
        if self._builders[0].is_empty:
            self._send_behind(None)
        elif len(self._behind) >= MARKERS_MAX:
            self._seal(0)

    def _wished_rows(self, channel: int) -> int:
        return self._least_batch_rows()

    def _unsealed(self) -> dict[int, SealedBatch]:
        (builder,) = self._builders
        channels = range(0 if builder.is_empty else self.partition.subpartition_count)
        return {channel: builder.peek() for channel in channels}

    def _seal(self, channel: int, lend: Lend | None = None) -> None:
        for piece in self._pieces(channel):
            lease = self._lease_for(piece, self.partition.subpartition_count, lend)
            self.partition.broadcast(piece, lease)
        if self._behind:
            self._send_behind(lend)

    def _send_behind(self, lend: Lend | None) -> None:
        addressed, self._behind = self._behind, []
        for channel in sorted({channel for channel, _ in addressed}):
            mine = tuple(PlacedMarker(0, marker) for whose, marker in addressed if whose == channel)
            sealed = SealedBatch(None, mine)
            self.partition.emit(channel, sealed, self._lease_for(sealed, 1, lend))


class SortingRecordWriter(RecordWriter):
    """Hands batches to a sort-merge partition whole, with the channel of each row."""

    def __init__(
        self,
        partition: SortMergePartition,
        selector: ChannelSelector,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings,
    ) -> None:
        super().__init__(partition, 1, buffer_timeout_ms, clock, settings)
        self._selector = selector
        self._sorter = partition
        self._seal_bytes = settings.get_option(SEAL_BYTES)
        self._limit_bytes = self._pool.maximum * self._pool.segment_size // _SHARE_OF_SORTING_POOL
        self._rows = self._builders[0]
        self._channels: list[Channels] = []

    def emit(self, batch: RecordBatch) -> None:
        """Send rows to the channels they belong to. StorageError, as on a full disk."""
        self.records_out += batch.num_rows
        rows = batch.to_arrow()
        if not self._rows.accepts(rows.schema):
            self.flush_all()
            self._rows.accepts(rows.schema)
        size_bytes = pa.ipc.get_record_batch_size(rows)
        self._rows.append(rows, size_bytes, size_bytes)
        self._channels.append(self._selector.channels_of(batch))
        if self._rows.size_estimate >= self._seal_bytes or self._rows.row_count >= self._seal_rows:
            self.flush_all()

    def emit_marker(self, marker: TimeMarker) -> None:
        self._rows.append_marker(marker)
        if self._rows.is_crowded:
            self.flush_all()

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """Not supported: a marker that lies in a file until its consumers start would measure no latency."""
        raise AssertionError("latency markers end before blocking results")

    def flush_all(self) -> None:
        """Hand over everything that waits; nobody sees it before the end in any case."""
        if self._rows.is_empty:
            return
        channels = np.concatenate([np.zeros(0, dtype=np.int32), *self._channels])
        self._channels.clear()
        start = 0
        for piece in self._rows.seal().cut(self._limit_bytes):
            end = start + piece.row_count
            self._sorter.collect(piece, channels[start:end], self._lease_for(piece, 1, None))
            start = end


def create_record_writer(
    partition: ResultPartition,
    selector: ChannelSelector,
    buffer_timeout_ms: int,
    clock: Clock,
    settings: Settings | None = None,
) -> RecordWriter:
    """Return the writer that suits an edge and the kind of its partition."""
    options = settings or Settings()
    if selector.is_broadcast:
        return BroadcastRecordWriter(partition, buffer_timeout_ms, clock, options)
    if isinstance(partition, SortMergePartition):
        return SortingRecordWriter(partition, selector, buffer_timeout_ms, clock, options)
    deals_rows = selector.deals_rows and partition.subpartition_count > 1
    kind = PartitioningRecordWriter if deals_rows else ChannelSelectorRecordWriter
    return kind(partition, selector, buffer_timeout_ms, clock, options)


def _has_some(builder: BatchBuilder) -> bool:
    return not builder.is_empty
