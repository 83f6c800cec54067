"""RecordWriter: writes the rows, markers and events of one subtask to one partition.

Rows wait per channel, as references, in a BatchBuilder. They are sealed into one batch when there are enough bytes or
rows, when an event must not overtake them, or at a flush. A batch that is large enough already is sealed as it
is. `create_record_writer` chooses the class by the edge:

    ChannelSelectorRecordWriter    whole batches, or a few parts of each, to the channels that a selector names;
                                   an edge with a single channel is the simplest case
    PartitioningRecordWriter       rows of a batch go to many channels, as on a keyed edge: batches wait unsplit until
                                   splitting them pays off
    BroadcastRecordWriter          each batch is sealed once, for all channels
    SortingRecordWriter            a sort-merge partition, which splits by itself, region by region

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
    "Bytes of rows for one channel at which they are sent, whatever the buffer timeout; if rows are split among "
    "many consumers, at least 16 KB or 256 rows for each of them.",
)  # fmt: skip
SEAL_ROWS: Final = ConfigOption(
    "headrace.network.seal-rows", int, 16384,
    "Rows for one channel at which they are sent, whatever the buffer timeout; with the same exception as the size.",
)  # fmt: skip
FLUSH_ALWAYS: Final = 0
FULL_BATCHES_ONLY: Final = -1
PIECE_FACTOR: Final = 2
"""Factor of the wanted rows above which a batch is cut."""
HANDED_OVER_TOGETHER_MAX: Final = 32
"""Number of batches that are sealed before any of them is handed over.

Handing over wakes the network thread, which shares the interpreter, and often the core, with the task: done one by one,
each batch would cost two thread switches.
"""

_SHARE_OF_SORTING_POOL: Final = 4
"""Divisor of a sort-merge partition's memory: it is given at most this share at once."""

Lend = Callable[[int, int], SegmentLease | None]
"""Takes segments for a batch of the given bytes and references; returns None if there are none."""


class RecordWriter(ABC):
    """Writes to all subpartitions of one partition. Called on the task's thread; `close` and `fail` on any.

    `buffer_timeout_ms`: with 0 each call hands over, with -1 only full batches are, otherwise the task calls
    `flush_all` after this time; with a latency target, and unless it is -1, after the time that the governor chose
    (`hold_ms`). `builder_count`: number of batches that are built at the same time.
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
        # Batches sealed within the current call, and handed over before it returns.
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
        """Longest time in ms that the task may hold back rows before it calls `flush_all`; see `buffer_timeout_ms`."""
        return self.buffer_timeout_ms if self.governor is None else self.governor.choice.hold_ms

    @property
    def is_available(self) -> bool:
        """Return whether the next batch will find room; if not, the task should do other work."""
        return self._pool.is_available

    @property
    def rows_wanted(self) -> int:
        """Most rows to emit at once; more would exceed the rows that consumers want in flight."""
        return self._least_batch_rows() * self.partition.subpartition_count

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on any thread, as soon as the writer is available; immediately if it is now."""
        self._pool.on_available(callback)

    @abstractmethod
    def emit(self, batch: RecordBatch) -> None:
        """Send rows to their channels; waits only beyond the overdraft. CancelTaskException after close."""

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
        """Set the rows in flight that apply to each consumer until it announces its own limit."""
        self.partition.limit_at_first(in_flight_rows)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Send an event to every channel, behind everything emitted so far; see QueuedEvent."""
        self.flush_all()
        self.partition.emit_event(event, blocks_upstream=blocks_upstream)

    def emit_barrier(self, barrier: CheckpointBarrier) -> InFlightOutput:
        """Send a barrier to every channel according to its options; return the batches it overtakes. Never waits.

        Unsealed rows count as overtaken if it overtakes, and stay behind it.
        """
        # Rows sealed here are in memory anyway: the barrier need not wait until a consumer makes room.
        self._distribute(self._pool.borrow)
        if barrier.options.is_unaligned:
            return self.partition.emit_barrier(barrier, self._unsealed())
        self._seal_all(_has_some, self._pool.borrow)
        return self.partition.emit_barrier(barrier, {})

    def time_out_barrier(self, checkpoint_id: int) -> None:
        """Let a barrier that may time out overtake all batches that are still queued before it."""
        self.partition.time_out_barrier(checkpoint_id)

    def restore(self, channel: int, batches: Iterable[SealedBatch]) -> None:
        """Hand over the in-flight batches of `channel` from a checkpoint, before any other rows. Never waits."""
        for sealed in batches:
            for piece in sealed.cut(self._pool.segment_size):
                self.partition.prepare(channel, piece)
                self.partition.emit(channel, piece, self._pool.borrow(piece.size_bytes))

    def finish_restore(self) -> None:
        """Tell consumers that all batches were restored.

        They read no new rows before other senders have done the same.
        """
        self.partition.emit_event(EndOfOutputChannelState(), blocks_upstream=True)

    def flush_all(self) -> None:
        """Hand over all rows that are held back."""
        if self.governor is not None:
            self._govern(self.governor)
        self._distribute()
        self._seal_all(_has_some)

    def finish(self) -> None:
        """Hand over all rows that are held back, and end the partition."""
        self.flush_all()
        self.partition.finish()

    def fail(self, cause: BaseException) -> None:
        """End the partition with an error that its consumers get. Any thread."""
        self.partition.fail(cause)

    def close(self) -> None:
        """Release the partition; its consumers get a failure if it was not finished. Idempotent, any thread."""
        if self.partition.is_finished:
            self.partition.close()
        else:
            self.partition.fail(None)

    def _count(self, batch: RecordBatch) -> None:
        """Count emitted rows."""
        if self.governor is not None and self._held_since_ns is None:
            self._held_since_ns = self._clock.monotonic_ns()
        self.records_out += batch.num_rows

    def _govern(self, governor: LatencyGovernor) -> None:
        """Report a flush of held rows to the governor, and apply its choice."""
        since_ns, self._held_since_ns = self._held_since_ns, None
        now_ns = self._clock.monotonic_ns()
        if since_ns is None or not governor.is_due(now_ns):
            return
        seen = FlushObserved(
            now_ns, self.records_out, self.partition.longest_queue, (now_ns - since_ns) / 1e6
        )
        self._limit_rows(governor.flushed(seen).rows)

    def _limit_rows(self, row_count: int) -> None:
        """Seal batches of `row_count` rows from now on."""
        self._seal_rows = row_count

    def _distribute(self, lend: Lend | None = None) -> None:  # noqa: B027  (what most kinds do: nothing)
        """Pass rows that wait unsplit to the builders of their channels."""

    def _add(self, channel: int, rows: pa.RecordBatch) -> None:
        """Add rows behind those of a channel; rows with another schema are sealed first."""
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
        """Return the rows of one batch for a consumer, by the rows in flight that it wants."""
        wanted = self.partition.in_flight_rows(channel)
        return UNLIMITED_ROWS if wanted is None else batch_rows(wanted)

    def _least_batch_rows(self) -> int:
        """Return the rows of one batch for the consumer that wants the fewest."""
        count = self.partition.subpartition_count
        wishes = [self.partition.in_flight_rows(channel) for channel in range(count)]
        return min(
            (batch_rows(each) for each in wishes if each is not None), default=UNLIMITED_ROWS
        )

    def _unsealed(self) -> dict[int, SealedBatch]:
        """Return the unsealed rows of each channel that has any."""
        return {
            channel: builder.peek()
            for channel, builder in enumerate(self._builders)
            if not builder.is_empty
        }

    def _seal_all(self, is_due: Callable[[BatchBuilder], bool], lend: Lend | None = None) -> None:
        """Seal the rows of each channel that is due, and hand them over."""
        try:
            for channel, builder in enumerate(self._builders):
                if is_due(builder):
                    self._seal(channel, lend)
        finally:
            self._hand_over()

    def _seal(self, channel: int, lend: Lend | None = None) -> None:
        for piece in self._pieces(channel):
            # Seal all before handing over: a woken thread then competes with this one.
            self.partition.prepare(channel, piece)
            # On its own line: waiting for it hands over the sealed batches, and begins a new list.
            lease = self._lease_for(piece, 1, lend)
            self._sealed.append((channel, piece, lease))
            if len(self._sealed) >= HANDED_OVER_TOGETHER_MAX:
                self._hand_over()

    def _pieces(self, channel: int) -> list[SealedBatch]:
        """Seal the rows of a channel, cut to pieces that fit a segment and the consumer's limit."""
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
        # Consumers return only segments that they have received.
        self._hand_over()
        self.partition.make_room()
        try:
            return self._pool.lease(size_bytes, references)
        finally:
            self.hard_back_pressured_ns += self._clock.monotonic_ns() - started_ns

    def _hand_over(self) -> None:
        """Pass sealed batches to the partition, also after an error, so that their segments are not lost."""
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
    """Sends each batch, or its parts, at once to the builders of the channels that a selector chooses."""

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
        # Latency markers for one channel each, sent behind the rows held for all channels.
        self._behind: list[tuple[int, LatencyMarker]] = []

    @property
    def rows_wanted(self) -> int:
        return self._least_batch_rows()

    def emit(self, batch: RecordBatch) -> None:
        self._count(batch)
        self._add(0, batch.to_arrow())

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """Send a latency marker to one channel, behind the rows held for all, which do not leave earlier for it."""
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
    """Passes whole batches to a sort-merge partition, with the channel of each row."""

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
        """Send rows to their channels. StorageError, for example on a full disk."""
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
        """Not supported: a marker stored until its consumers start would not measure latency."""
        raise AssertionError("latency markers end before blocking results")

    def flush_all(self) -> None:
        """Hand over all rows that are held back; consumers read them only after the end."""
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
    """Return the writer that fits an edge and the kind of its partition."""
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
