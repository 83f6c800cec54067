"""RecordWriter: one subtask's rows, markers and events on their way to one partition.

Rows wait per channel as references and are sealed into one batch when they are enough bytes or rows, when an event
must not overtake them, or when a flush comes. A batch that is large enough already is sealed as it is. Where each row
has a channel of its own, as on a keyed edge, they wait unsplit before, until splitting them is worth while.
Source: Flink RecordWriter, ChannelSelectorRecordWriter, BroadcastRecordWriter.
"""

from collections.abc import Callable, Iterable
from typing import Final

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
from headrace.network.batches.batch_builder import MARKERS_MAX, BatchBuilder, WireRows
from headrace.network.batches.channel_selectors import ChannelSelector
from headrace.network.batches.partition_buffer import ROWS_PER_CHANNEL, PartitionBuffer
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS, batch_rows
from headrace.network.flow.latency_governor import FlushObserved, LatencyGovernor
from headrace.network.memory.local_buffer_pool import SegmentLease
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.result_partition import ResultPartition

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

Lend = Callable[[int, int], SegmentLease | None]
"""Takes segments for a batch of so many bytes and references."""


class RecordWriter:
    """Writes to all subpartitions of one partition. Called by the task's thread; `close` and `fail` by any.

    `buffer_timeout_ms`: 0 hands over after each call, -1 only full batches, else the task calls `flush_all` after it;
    with a latency target, and unless it is -1, after what its governor chose (`hold_ms`).
    """

    def __init__(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        buffer_timeout_ms: int,
        clock: Clock,
        settings: Settings | None = None,
    ) -> None:
        options = settings or Settings()
        self.partition: Final = partition
        self.buffer_timeout_ms: Final = buffer_timeout_ms
        self.hard_back_pressured_ns = 0
        self.records_out = 0
        self.bytes_out = 0
        self.buffers_out = 0
        self._selector = selector
        self._clock = clock
        self._pool = partition.pool
        self._seal_bytes = min(options.get_option(SEAL_BYTES), self._pool.segment_size)
        self._seal_rows = options.get_option(SEAL_ROWS)
        # A broadcast has one list of rows for all its channels: they are sealed once.
        pending_count = 1 if selector.is_broadcast else partition.subpartition_count
        self._pending = [BatchBuilder() for _ in range(pending_count)]
        rows_per_channel = min(ROWS_PER_CHANNEL, self._seal_rows)
        is_split = selector.deals_rows and pending_count > 1
        self._unsplit = PartitionBuffer(pending_count, rows_per_channel) if is_split else None
        # Of a broadcast, whose rows wait for all channels at once: what goes to one of them behind these.
        self._behind_broadcast: list[tuple[int, LatencyMarker]] = []
        # Sealed within the present call, and handed over before it returns.
        self._sealed: list[tuple[int, SealedBatch, SegmentLease]] = []
        self.governor: Final = (
            None
            if buffer_timeout_ms == FULL_BATCHES_ONLY
            else LatencyGovernor.from_settings(options, pending_count, self._seal_rows)
        )
        self._flushes_always = buffer_timeout_ms == FLUSH_ALWAYS and self.governor is None
        self._held_since_ns: int | None = None

    @property
    def hold_ms(self) -> float:
        """Longest time that the task may hold back rows before it calls `flush_all`; see `buffer_timeout_ms`."""
        return self.buffer_timeout_ms if self.governor is None else self.governor.choice.hold_ms

    @property
    def is_available(self) -> bool:
        """Whether the next batch will find room; the task should do something else while it does not."""
        return self._pool.is_available

    def on_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, as soon as the writer is available; now if it is."""
        self._pool.on_available(callback)

    def emit(self, batch: RecordBatch) -> None:
        """Send rows to the channels they belong to; waits only past the overdraft. CancelTaskException after close."""
        if self.governor is not None and self._held_since_ns is None:
            self._held_since_ns = self._clock.monotonic_ns()
        self.records_out += batch.num_rows
        if self._unsplit is not None:
            self._unsplit.append(batch, self._selector.channels_of(batch))
            if self._flushes_always or self._unsplit.is_enough:
                self._split(self._unsplit)
            return
        selection = [(0, batch)] if self._selector.is_broadcast else self._selector.select(batch)
        try:
            for channel, rows in selection:
                wire_rows = WireRows.of(rows.to_arrow())
                self._make_acceptable(channel, wire_rows.schema)
                self._append(channel, wire_rows)
        finally:
            self._hand_over()

    def emit_marker(self, marker: TimeMarker) -> None:
        """Send a watermark or a change of idleness to every channel, behind the rows emitted so far."""
        if self._unsplit is not None:
            self._unsplit.append_marker(marker)
            if self._flushes_always:
                self.flush_all()
            elif self._unsplit.is_enough:
                self._split(self._unsplit)
            return
        for pending in self._pending:
            pending.append_marker(marker)
        self._seal_all(lambda pending: self._flushes_always or pending.is_crowded)

    def emit_latency_marker(self, marker: LatencyMarker, channel: int) -> None:
        """Send a latency marker to one channel, behind the rows emitted so far.

        Rows that wait for all channels are sealed no earlier for its sake: it goes behind all that are sealed together.
        """
        if self._unsplit is not None:
            self._unsplit.append_marker(marker, channel)
            if self._flushes_always:
                self.flush_all()
            elif self._unsplit.is_enough:
                self._split(self._unsplit)
        elif self._selector.is_broadcast and self.partition.subpartition_count > 1:
            self._behind_broadcast.append((channel, marker))
            if self._pending[0].is_empty:
                self._send_behind_broadcast(None)
            elif len(self._behind_broadcast) >= MARKERS_MAX:
                self._seal(0)
        else:
            pending = self._pending[channel]
            pending.append_marker(marker)
            if self._flushes_always or pending.is_crowded:
                self._seal_all(lambda one: one is pending)

    def limit_at_first(self, in_flight_rows: int) -> None:
        """Let so many rows wait for each consumer until it says itself how many it wants."""
        self.partition.limit_at_first(in_flight_rows)

    def emit_event(self, event: StreamEvent, *, blocks_upstream: bool = False) -> None:
        """Send an event to every channel, behind everything emitted so far; see subpartition.QueuedEvent."""
        self.flush_all()
        self.partition.emit_event(event, blocks_upstream=blocks_upstream)

    def emit_barrier(self, barrier: CheckpointBarrier) -> InFlightOutput:
        """Send a barrier to every channel, as its options say; return what it overtakes. Never waits.

        One that overtakes leaves rows that are not sealed yet behind it; they count as overtaken.
        """
        # What is sealed here is in memory anyway: the barrier need not wait until a consumer makes room.
        if self._unsplit is not None and not self._unsplit.is_empty:
            self._split(self._unsplit, self._pool.borrow)
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
                self.partition.emit(channel, piece, self._pool.borrow(piece.size_bytes))

    def finish_restore(self) -> None:
        """All was restored: consumers are told, and read nothing new before they have what others restored too."""
        self.partition.emit_event(EndOfOutputChannelState(), blocks_upstream=True)

    def flush_all(self) -> None:
        """Hand over everything that waits."""
        if self.governor is not None:
            self._govern(self.governor)
        if self._unsplit is not None and not self._unsplit.is_empty:
            self._split(self._unsplit)
        self._seal_all(_has_some)

    def finish(self) -> None:
        """Hand over what waits and end the partition."""
        self.flush_all()
        self.partition.finish()

    def fail(self, cause: BaseException) -> None:
        """End the partition with an error that its consumers will see. Any thread."""
        self.partition.fail(cause)

    def close(self) -> None:
        """Let go of the partition; consumers see a failure where it was not finished. Idempotent, any thread."""
        if self.partition.is_finished:
            self.partition.close()
        else:
            self.partition.fail(None)

    def _govern(self, governor: LatencyGovernor) -> None:
        """Tell the governor of a flush that comes, where rows wait for it, and do as it chooses from now on."""
        since_ns, self._held_since_ns = self._held_since_ns, None
        now_ns = self._clock.monotonic_ns()
        if since_ns is None or not governor.is_due(now_ns):
            return
        seen = FlushObserved(
            now_ns, self.records_out, self.partition.longest_queue, (now_ns - since_ns) / 1e6
        )
        self._seal_rows = governor.flushed(seen).rows
        if self._unsplit is not None:
            self._limit_unsplit(self._unsplit)

    def _limit_unsplit(self, unsplit: PartitionBuffer) -> None:
        unsplit.limit_rows(min(ROWS_PER_CHANNEL, self._seal_rows), self._least_batch_rows())

    def _split(self, unsplit: PartitionBuffer, lend: Lend | None = None) -> None:
        try:
            for share in unsplit.split():
                pending = self._pending[share.channel]
                if share.rows is not None:
                    self._make_acceptable(share.channel, share.rows.schema, lend)
                pending.append_markers(share.markers)
                if share.rows is not None:
                    self._append(share.channel, share.rows, lend)
                elif pending.is_crowded:
                    self._seal(share.channel, lend)
            self._limit_unsplit(unsplit)
        finally:
            self._hand_over()

    def _make_acceptable(self, channel: int, schema: pa.Schema, lend: Lend | None = None) -> None:
        if not self._pending[channel].accepts(schema):
            self._seal(channel, lend)
            self._pending[channel].accepts(schema)

    def _append(self, channel: int, rows: WireRows, lend: Lend | None = None) -> None:
        pending = self._pending[channel]
        pending.append(rows)
        if (
            pending.size_estimate >= self._seal_bytes
            or pending.row_count >= min(self._seal_rows, self._wished_rows(channel))
            or pending.is_crowded
            or self._flushes_always
        ):
            self._seal(channel, lend)

    @property
    def rows_wanted(self) -> int:
        """Rows that should be emitted at once at most: more would be in flight at once than consumers wish."""
        least = self._least_batch_rows()
        if self._unsplit is not None:
            return self._unsplit.rows_with(least)
        return least if self._selector.is_broadcast else least * self.partition.subpartition_count

    def _wished_rows(self, channel: int) -> int:
        """Rows of a batch for a consumer: a slow one wants less in flight than a full one."""
        if self._selector.is_broadcast:
            return self._least_batch_rows()
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
        count = self.partition.subpartition_count
        pending = self._pending * count if self._selector.is_broadcast else self._pending
        return {channel: one.peek() for channel, one in enumerate(pending) if not one.is_empty}

    def _seal_all(self, is_due: Callable[[BatchBuilder], bool], lend: Lend | None = None) -> None:
        """Seal what waits for each channel where it is due, and hand it over."""
        try:
            for channel, pending in enumerate(self._pending):
                if is_due(pending):
                    self._seal(channel, lend)
        finally:
            self._hand_over()

    def _seal(self, channel: int, lend: Lend | None = None) -> None:
        assert not self.partition.is_finished, f"{self.partition.partition_id} has ended"
        is_broadcast = self._selector.is_broadcast
        references = self.partition.subpartition_count if is_broadcast else 1
        rows_max = PIECE_FACTOR * self._wished_rows(channel)
        for piece in self._pending[channel].seal().cut(self._pool.segment_size, rows_max):
            if not is_broadcast:
                # Before any of them is handed over: whoever is woken then takes turns with this thread.
                self.partition.prepare(channel, piece)
            lease = self._lease_for(piece, references, lend)
            if is_broadcast:
                self.partition.broadcast(piece, lease)
                continue
            self._sealed.append((channel, piece, lease))
            if len(self._sealed) >= HANDED_OVER_TOGETHER_MAX:
                self._hand_over()

        if self._behind_broadcast:
            self._send_behind_broadcast(lend)

    def _send_behind_broadcast(self, lend: Lend | None) -> None:
        addressed, self._behind_broadcast = self._behind_broadcast, []
        for channel in sorted({channel for channel, _ in addressed}):
            mine = tuple(PlacedMarker(0, marker) for whose, marker in addressed if whose == channel)
            sealed = SealedBatch(None, mine)
            self.partition.emit(channel, sealed, self._lease_for(sealed, 1, lend))

    def _lease_for(self, piece: SealedBatch, references: int, lend: Lend | None) -> SegmentLease:
        lease = (lend or self._pool.try_lease)(piece.size_bytes, references)
        if lease is None:
            lease = self._wait_for_lease(piece.size_bytes, references)
        self.bytes_out += piece.size_bytes
        self.buffers_out += 1
        return lease

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

    def _wait_for_lease(self, size_bytes: int, references: int) -> SegmentLease:
        started_ns = self._clock.monotonic_ns()
        # Consumers give back only what they have.
        self._hand_over()
        self.partition.make_room()
        try:
            return self._pool.lease(size_bytes, references)
        finally:
            self.hard_back_pressured_ns += self._clock.monotonic_ns() - started_ns


def _has_some(pending: BatchBuilder) -> bool:
    return not pending.is_empty
