"""Barrier handling: decides when a subtask takes a checkpoint, unblocks channels and captures in-flight data. Pure.

    exactly once         WAITING --first barrier or announcement--> COLLECTING --last barrier or end--> WAITING
                         COLLECTING --newer barrier, cancellation, abort--> WAITING, and every blocked channel goes on
      aligned            the snapshot is taken with the last barrier; until then early channels are blocked
      unaligned          it is taken with the first; until the last, in-flight data is captured
      with time-out      aligned, until the time-out or an overtaking barrier: then unaligned

The producer blocks a channel after a barrier that did not overtake, until the channel is resumed. The options of a
barrier choose one of the three ways, so that one handler serves all, also savepoints, which are always aligned. There
is no clock: a barrier carries the time since its checkpoint was triggered, and the caller's timer fires as an
event. Channels are numbered over all inputs of the subtask.
Source: Flink SingleCheckpointBarrierHandler and its states; Chandy and Lamport 1985; Carbone et al. 2015.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.core.barriers import CheckpointBarrier, CheckpointOptions


@dataclass(frozen=True, slots=True)
class BarrierReceived:
    """A barrier arrived on a channel, in order or with priority."""

    channel: int
    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class AnnouncementReceived:
    """A barrier that may time out was announced as element `sequence` of the channel, perhaps behind data."""

    channel: int
    barrier: CheckpointBarrier
    sequence: int


@dataclass(frozen=True, slots=True)
class CancelMarkerReceived:
    """No barrier `checkpoint_id` will follow on this channel."""

    channel: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """The channel delivered its EndOfPartition."""

    channel: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The coordinator aborted a checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AlignmentTimedOut:
    """The timer of ScheduleAlignmentTimeout fired; it has no effect for a checkpoint that is over."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class CheckpointTriggered:
    """The coordinator triggers a task with inputs directly, as if the barrier had come on each open channel."""

    barrier: CheckpointBarrier


BarrierEvent = (
    BarrierReceived
    | AnnouncementReceived
    | CancelMarkerReceived
    | ChannelEnded
    | CheckpointAborted
    | AlignmentTimedOut
    | CheckpointTriggered
)


@dataclass(frozen=True, slots=True)
class BeginAlignment:
    """Start to measure the alignment: the first barrier or announcement of a checkpoint has arrived."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class ScheduleAlignmentTimeout:
    """Send AlignmentTimedOut to the handler after `delay_ms`."""

    checkpoint_id: int
    delay_ms: int


@dataclass(frozen=True, slots=True)
class TriggerSnapshot:
    """Take the checkpoint now. `options`: the ones that this subtask uses and sends downstream."""

    barrier: CheckpointBarrier
    options: CheckpointOptions


@dataclass(frozen=True, slots=True)
class ResumeChannels:
    """Let the blocked producers of these channels continue."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartChannelCapture:
    """Capture the data before barrier `checkpoint_id` on every channel, until the barrier arrives.

    Directly precedes its TriggerSnapshot.
    """

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class StopChannelCapture:
    """End the capture and store the captured data if `is_complete`, as every barrier has arrived; otherwise drop it."""

    checkpoint_id: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class PrioritiseAnnounced:
    """Let the announced barrier, element `sequence` of the channel, overtake the data before it."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """Report the decline to the coordinator, the operators and, by a cancel marker, downstream tasks.

    Once per checkpoint.
    """

    checkpoint_id: int
    reason: CheckpointFailureReason


@dataclass(frozen=True, slots=True)
class BroadcastCancelMarker:
    """Tell downstream tasks that no barrier will come; the coordinator already knows."""

    checkpoint_id: int


BarrierAction = (
    BeginAlignment
    | ScheduleAlignmentTimeout
    | TriggerSnapshot
    | ResumeChannels
    | StartChannelCapture
    | StopChannelCapture
    | PrioritiseAnnounced
    | DeclineCheckpoint
    | BroadcastCancelMarker
)


class BarrierHandler(Protocol):
    """Decides about checkpoints from events; returns actions that are performed in order."""

    def handle(self, event: BarrierEvent) -> list[BarrierAction]:
        """Process an event and return the actions to perform."""
        ...

    def missing(self, checkpoint_id: int) -> frozenset[int] | None:
        """Return the channels whose barrier is awaited; None if this checkpoint awaits none. Any thread."""
        ...


def blocks_upstream(barrier: CheckpointBarrier) -> bool:
    """Return whether the producer of a channel stops after this barrier until it is resumed."""
    options = barrier.options
    return options.is_exactly_once and not options.is_unaligned


class ExactlyOnceBarrierHandler:
    """Aligns barriers, or lets them overtake. One checkpoint at a time: a newer one ends it.

    A cancel marker ends its checkpoint even if that was only announced. Flink instead waits for a barrier on another
    channel and blocks that channel until the coordinator's abort arrives.
    """

    def __init__(self, channel_count: int, *, counts_ended_channels: bool = True) -> None:
        """Set `counts_ended_channels`: True lets checkpoints go on after some channels ended.

        Otherwise an end aborts one.
        """
        self._open: Final = set(range(channel_count))
        self._counts_ended_channels = counts_ended_channels
        self.checkpoint_id = 0
        """Newest checkpoint seen, pending or over."""
        self._pending: CheckpointBarrier | None = None
        self._waiting: set[int] = set()  # channels whose barrier or end is still to come
        self._blocked: set[int] = set()
        self._announced: dict[int, int] = {}
        self._is_unaligned = False
        self._is_triggered = False
        self._has_barrier = False

    @property
    def is_pending(self) -> bool:
        """True if a checkpoint has begun here and barriers are still missing."""
        return self._pending is not None

    def missing(self, checkpoint_id: int) -> frozenset[int] | None:
        # Read each field once, because another thread may call; copying a set of numbers is one interpreter step.
        waiting, pending = frozenset(self._waiting), self._pending
        return waiting if pending is not None and pending.checkpoint_id == checkpoint_id else None

    def handle(self, event: BarrierEvent) -> list[BarrierAction]:
        match event:
            case BarrierReceived(channel, barrier):
                return self._barrier_received(channel, barrier)
            case AnnouncementReceived(channel, barrier, sequence):
                return self._announced_on(channel, barrier, sequence)
            case CancelMarkerReceived(_, checkpoint_id):
                return self._cancelled(checkpoint_id)
            case ChannelEnded(channel):
                return self._channel_ended(channel)
            case CheckpointAborted(checkpoint_id):
                return self._aborted(checkpoint_id)
            case AlignmentTimedOut(checkpoint_id):
                is_meant = self._is_current(checkpoint_id) and not self._is_unaligned
                return self._switch() if is_meant else []
            case CheckpointTriggered(barrier):
                return self._triggered(barrier)

    def _barrier_received(self, channel: int, barrier: CheckpointBarrier) -> list[BarrierAction]:
        is_blocked = blocks_upstream(barrier)
        is_new = barrier.checkpoint_id > self.checkpoint_id
        actions = self._begin(barrier) if is_new else []
        if not self._is_current(barrier.checkpoint_id) or channel not in self._waiting:
            # Too late: aborted, subsumed or taken without this channel.
            return [ResumeChannels((channel,))] if is_blocked else []
        if is_blocked:
            self._blocked.add(channel)
        actions += self._arrived((channel,), barrier)
        return actions + self._timer(barrier) if is_new else actions

    def _arrived(self, channels: Iterable[int], barrier: CheckpointBarrier) -> list[BarrierAction]:
        """Record barriers of the pending checkpoint."""
        self._waiting.difference_update(channels)
        for channel in channels:
            self._announced.pop(channel, None)
        self._has_barrier = True
        has_overtaken = barrier.options.is_unaligned
        if not self._is_unaligned and (has_overtaken or (self._waiting and _is_overdue(barrier))):
            return self._switch()
        return self._advance()

    def _announced_on(
        self, channel: int, barrier: CheckpointBarrier, sequence: int
    ) -> list[BarrierAction]:
        is_new = barrier.checkpoint_id > self.checkpoint_id
        actions = self._begin(barrier) if is_new else []
        if not self._is_current(barrier.checkpoint_id) or channel not in self._waiting:
            return []
        if self._is_unaligned:
            return [PrioritiseAnnounced(channel, sequence)]
        self._announced[channel] = sequence
        return actions + self._timer(barrier) if is_new else actions

    def _cancelled(self, checkpoint_id: int) -> list[BarrierAction]:
        if checkpoint_id < self.checkpoint_id or (
            checkpoint_id == self.checkpoint_id and not self.is_pending
        ):
            return []
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
        if self._is_current(checkpoint_id):
            return self._give_up(reason)
        actions = self._give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        self.checkpoint_id = checkpoint_id
        return [*actions, DeclineCheckpoint(checkpoint_id, reason)]

    def _channel_ended(self, channel: int) -> list[BarrierAction]:
        self._open.discard(channel)
        self._announced.pop(channel, None)
        self._blocked.discard(channel)
        if not self.is_pending or channel not in self._waiting:
            return []
        if not self._counts_ended_channels:
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
            return self._give_up(reason)
        self._waiting.discard(channel)
        return self._advance()

    def _aborted(self, checkpoint_id: int) -> list[BarrierAction]:
        if not self._is_current(checkpoint_id):
            return []
        is_triggered = self._is_triggered
        actions = self._let_go(is_complete=False)
        return actions if is_triggered else [*actions, BroadcastCancelMarker(checkpoint_id)]

    def _triggered(self, barrier: CheckpointBarrier) -> list[BarrierAction]:
        if barrier.checkpoint_id > self.checkpoint_id:
            return self._begin(barrier) + self._arrived(self._open, barrier)
        if self._is_current(barrier.checkpoint_id):
            return self._arrived(tuple(self._waiting), barrier)
        return []

    def _begin(self, barrier: CheckpointBarrier) -> list[BarrierAction]:
        actions = self._give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        self.checkpoint_id = barrier.checkpoint_id
        self._pending = barrier
        self._waiting = set(self._open)
        self._is_unaligned = self._is_triggered = self._has_barrier = False
        return [*actions, BeginAlignment(barrier)]

    def _timer(self, barrier: CheckpointBarrier) -> list[BarrierAction]:
        """Return the alignment timer of a checkpoint that has just begun, if it may time out and is not over."""
        options = barrier.options
        if not self.is_pending or self._is_unaligned or not options.is_timeoutable:
            return []
        delay_ms = max(0, options.aligned_timeout_ms - barrier.elapsed_ms)
        return [ScheduleAlignmentTimeout(barrier.checkpoint_id, delay_ms)]

    def _switch(self) -> list[BarrierAction]:
        """Let barriers of this checkpoint overtake from now on."""
        self._is_unaligned = True
        actions: list[BarrierAction] = [
            PrioritiseAnnounced(channel, sequence)
            for channel, sequence in sorted(self._announced.items())
        ]
        self._announced.clear()
        return actions + self._advance() if self._has_barrier else actions

    def _advance(self) -> list[BarrierAction]:
        """Take the checkpoint if it is due, and end it if no barrier is missing."""
        pending = self._pending
        assert pending is not None
        actions: list[BarrierAction] = []
        if (
            self._is_unaligned
            and not self._is_triggered
            and (self._has_barrier or not self._waiting)
        ):
            actions.append(StartChannelCapture(pending.checkpoint_id))
            actions.append(TriggerSnapshot(pending, pending.options.with_unaligned()))
            self._is_triggered = True
        if self._waiting:
            return actions
        if not self._is_triggered:
            options = pending.options.with_unaligned_supported()
            actions.append(TriggerSnapshot(pending, options))
        return actions + self._let_go(is_complete=True)

    def _give_up(self, reason: CheckpointFailureReason) -> list[BarrierAction]:
        """Decline the pending checkpoint, if there is one."""
        if self._pending is None:
            return []
        checkpoint_id = self._pending.checkpoint_id
        return [*self._let_go(is_complete=False), DeclineCheckpoint(checkpoint_id, reason)]

    def _let_go(self, *, is_complete: bool) -> list[BarrierAction]:
        """End the pending checkpoint: unblock all channels, and stop capturing."""
        pending = self._pending
        assert pending is not None
        actions: list[BarrierAction] = []
        if self._is_unaligned and self._is_triggered:
            actions.append(StopChannelCapture(pending.checkpoint_id, is_complete))
        if self._blocked:
            actions.append(ResumeChannels(tuple(sorted(self._blocked))))
        self._pending = None
        self._waiting.clear()
        self._blocked.clear()
        self._announced.clear()
        return actions

    def _is_current(self, checkpoint_id: int) -> bool:
        return self._pending is not None and self._pending.checkpoint_id == checkpoint_id


def _is_overdue(barrier: CheckpointBarrier) -> bool:
    options = barrier.options
    return options.is_timeoutable and barrier.elapsed_ms >= options.aligned_timeout_ms
