"""AtLeastOnceBarrierTracker: decides when a subtask takes a checkpoint without blocking channels, at least once.

Source: Flink CheckpointBarrierTracker.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.core.barriers import CheckpointBarrier
from headrace.task.checkpointing.barriers import (
    AlignmentTimedOut,
    AnnouncementReceived,
    BarrierAction,
    BarrierEvent,
    BarrierReceived,
    BeginAlignment,
    BroadcastCancelMarker,
    CancelMarkerReceived,
    ChannelEnded,
    CheckpointAborted,
    CheckpointTriggered,
    DeclineCheckpoint,
    ResumeChannels,
    TriggerSnapshot,
    blocks_upstream,
)

TRACKED_MAX: Final = 50
"""Most checkpoints whose barriers are counted at the same time; beyond it the oldest is forgotten."""


class AtLeastOnceBarrierTracker:
    """Counts the barriers of several checkpoints at once, and never blocks a channel.

    Rows after the barrier on a fast channel are in the state too, and are processed again after a failure.
    """

    def __init__(self, channel_count: int) -> None:
        self._open: Final = set(range(channel_count))
        self._tracked: dict[int, _Tracked] = {}  # in order of their ids
        self._last_id = 0  # newest one taken or aborted; older ones are ignored

    def missing(self, checkpoint_id: int) -> frozenset[int] | None:
        tracked = self._tracked.get(checkpoint_id)
        return None if tracked is None else frozenset(tracked.waiting)

    def handle(self, event: BarrierEvent) -> list[BarrierAction]:
        match event:
            case BarrierReceived(channel, barrier):
                resume = [ResumeChannels((channel,))] if blocks_upstream(barrier) else []
                return [*resume, *self._count((channel,), barrier)]
            case CancelMarkerReceived(_, checkpoint_id):
                return self._cancelled(checkpoint_id)
            case ChannelEnded(channel):
                return self._channel_ended(channel)
            case CheckpointAborted(checkpoint_id):
                is_tracked = self._tracked.pop(checkpoint_id, None) is not None
                return [BroadcastCancelMarker(checkpoint_id)] if is_tracked else []
            case CheckpointTriggered(barrier):
                return self._count(tuple(self._open), barrier)
            case AnnouncementReceived() | AlignmentTimedOut():
                return []

    def _count(self, channels: Iterable[int], barrier: CheckpointBarrier) -> list[BarrierAction]:
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id <= self._last_id:
            return []
        actions: list[BarrierAction] = []
        if checkpoint_id not in self._tracked:
            actions.append(BeginAlignment(barrier))
            self._tracked[checkpoint_id] = _Tracked(barrier, set(self._open))
            self._tracked = dict(sorted(self._tracked.items()))
            if len(self._tracked) > TRACKED_MAX:
                self._last_id = max(self._last_id, next(iter(self._tracked)))
                del self._tracked[self._last_id]
        tracked = self._tracked.get(checkpoint_id)
        if tracked is None:
            return []
        tracked.waiting.difference_update(channels)
        return actions if tracked.waiting else [*actions, self._take(tracked)]

    def _take(self, tracked: "_Tracked") -> BarrierAction:
        self._forget_up_to(tracked.barrier.checkpoint_id)
        return TriggerSnapshot(tracked.barrier, tracked.barrier.options)

    def _channel_ended(self, channel: int) -> list[BarrierAction]:
        self._open.discard(channel)
        complete: list[_Tracked] = []
        for tracked in self._tracked.values():
            tracked.waiting.discard(channel)
            if not tracked.waiting:
                complete.append(tracked)
        return [self._take(tracked) for tracked in complete]

    def _cancelled(self, checkpoint_id: int) -> list[BarrierAction]:
        if checkpoint_id <= self._last_id:
            return []
        ids = sorted({checkpoint_id, *(each for each in self._tracked if each < checkpoint_id)})
        self._forget_up_to(checkpoint_id)
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
        return [DeclineCheckpoint(each, reason) for each in ids]

    def _forget_up_to(self, checkpoint_id: int) -> None:
        self._last_id = checkpoint_id
        self._tracked = {key: one for key, one in self._tracked.items() if key > checkpoint_id}


@dataclass(slots=True)
class _Tracked:
    barrier: CheckpointBarrier
    waiting: set[int]
