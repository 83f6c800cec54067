"""Input channels with rows and barriers in any order, and what a task makes of them."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st

from headrace.core.barriers import (
    AlignmentMode,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.core.elements import EndOfPartition
from headrace.task.checkpointing.barrier_tracker import AtLeastOnceBarrierTracker
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
    DeclineCheckpoint,
    ExactlyOnceBarrierHandler,
    PrioritiseAnnounced,
    ResumeChannels,
    ScheduleAlignmentTimeout,
    StartChannelCapture,
    StopChannelCapture,
    TriggerSnapshot,
    blocks_upstream,
)

ALIGNED = CheckpointOptions()


TIMEOUT = CheckpointOptions(aligned_timeout_ms=100)


UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)


def barrier(number: int, options: CheckpointOptions = ALIGNED) -> CheckpointBarrier:
    return CheckpointBarrier(number, 1000 * number, options)


Item = int | CheckpointBarrier | CancelCheckpointMarker | EndOfPartition


@dataclass
class Channel:
    """A producer's script, and what has arrived of it and waits, each with its place in the script."""

    script: list[Item]
    next: int = 0
    is_blocked: bool = False
    queue: deque[tuple[int, Item]] = field(default_factory=lambda: deque[tuple[int, Item]]())
    front: deque[tuple[int, Item]] = field(default_factory=lambda: deque[tuple[int, Item]]())
    barrier_places: dict[int, int] = field(default_factory=lambda: {})
    resumed_count: int = 0
    blocking_count: int = 0


@dataclass
class Taken:
    """A checkpoint: what the task had processed of each channel, and what was captured of it."""

    processed: list[list[int]]
    captured: list[list[int]]
    is_complete: bool
    is_aborted: bool = False


class World:
    """A task with its channels, without threads: every step is one thing that may happen next."""

    def __init__(self, scripts: list[list[Item]], *, at_least_once: bool = False) -> None:
        self.channels = [Channel(script) for script in scripts]
        kind = AtLeastOnceBarrierTracker if at_least_once else ExactlyOnceBarrierHandler
        self.handler = kind(len(scripts))
        self.processed: list[list[int]] = [[] for _ in scripts]
        self.taken: dict[int, Taken] = {}
        self.declined: list[int] = []
        self.met: list[int] = []
        """Checkpoints that the task has heard of in their turn, by a barrier, an announcement or a cancellation."""
        self.timers: list[int] = []
        self.capturing: int | None = None

    def arrive(self, index: int) -> None:
        channel = self.channels[index]
        if channel.is_blocked or channel.next == len(channel.script):
            return
        place, item = channel.next, channel.script[channel.next]
        channel.next += 1
        if not isinstance(item, CheckpointBarrier):
            channel.queue.append((place, item))
            is_awaited = self.capturing is not None and self.capturing not in channel.barrier_places
            if isinstance(item, int) and self.capturing is not None and is_awaited:
                self.taken[self.capturing].captured[index].append(item)
            return
        channel.barrier_places[item.checkpoint_id] = place
        if item.options.is_unaligned:
            channel.front.append((place, item))
            return
        channel.queue.append((place, item))
        if blocks_upstream(item):
            channel.is_blocked = True
            channel.blocking_count += 1
        if item.options.is_timeoutable:
            self.handle(AnnouncementReceived(index, item, place))

    def take(self, index: int) -> None:
        channel = self.channels[index]
        waiting = channel.front or channel.queue
        if not waiting:
            return
        match waiting.popleft()[1]:
            case int() as row:
                self.processed[index].append(row)
            case CheckpointBarrier() as item:
                self.handle(BarrierReceived(index, item))
            case CancelCheckpointMarker(checkpoint_id):
                self.handle(CancelMarkerReceived(index, checkpoint_id))
            case EndOfPartition():
                self.handle(ChannelEnded(index))

    def fire(self, index: int) -> None:
        if self.timers:
            self.handle(AlignmentTimedOut(self.timers.pop(index % len(self.timers))))

    def handle(self, event: BarrierEvent) -> None:
        before = self.newest_id
        actions = self.handler.handle(event)
        if self.newest_id != before:
            assert self.newest_id > before
            self.met.append(self.newest_id)
        for action in actions:
            self.perform(action)

    @property
    def newest_id(self) -> int:
        handler = self.handler
        return handler.checkpoint_id if isinstance(handler, ExactlyOnceBarrierHandler) else 0

    def perform(self, action: BarrierAction) -> None:
        match action:
            case TriggerSnapshot(taken, options):
                if self.capturing != taken.checkpoint_id:
                    self.begin(taken.checkpoint_id, is_complete=True)
                assert self.capturing is None or options.is_unaligned
            case ResumeChannels(indices):
                for index in indices:
                    channel = self.channels[index]
                    assert channel.is_blocked
                    channel.is_blocked = False
                    channel.resumed_count += 1
            case StartChannelCapture(checkpoint_id):
                self.begin(checkpoint_id, is_complete=False)
                self.capturing = checkpoint_id
                for index, channel in enumerate(self.channels):
                    end = channel.barrier_places.get(checkpoint_id, len(channel.script))
                    ahead = [item for place, item in channel.queue if place < end]
                    rows = [item for item in ahead if isinstance(item, int)]
                    self.taken[checkpoint_id].captured[index] += rows
            case StopChannelCapture(checkpoint_id, is_complete):
                assert self.capturing == checkpoint_id
                self.capturing = None
                self.taken[checkpoint_id].is_complete = is_complete
                self.taken[checkpoint_id].is_aborted = not is_complete
            case PrioritiseAnnounced(index, sequence):
                channel = self.channels[index]
                (item,) = [each for each in channel.queue if each[0] == sequence]
                channel.queue.remove(item)
                channel.front.append(item)
            case DeclineCheckpoint(checkpoint_id):
                self.declined.append(checkpoint_id)
            case ScheduleAlignmentTimeout(checkpoint_id):
                self.timers.append(checkpoint_id)
            case BeginAlignment() | BroadcastCancelMarker():
                pass

    def begin(self, checkpoint_id: int, *, is_complete: bool) -> None:
        assert checkpoint_id not in self.taken
        captured: list[list[int]] = [[] for _ in self.channels]
        self.taken[checkpoint_id] = Taken(list(map(list, self.processed)), captured, is_complete)

    def run_out(self) -> None:
        """Let everything happen that still can."""
        for _ in range(10 * sum(len(channel.script) for channel in self.channels) + 10):
            for index in range(len(self.channels)):
                self.arrive(index)
                self.take(index)


def rows_before(script: list[Item], checkpoint_id: int) -> list[int]:
    rows: list[int] = []
    for item in script:
        match item:
            case CheckpointBarrier() if item.checkpoint_id == checkpoint_id:
                return rows
            case int():
                rows.append(item)
            case _:
                pass
    return rows


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Item]]:
    """Channels that agree on the barriers, but for some that were cancelled or never came, and have rows in between."""
    channel_count = draw(st.integers(1, 4))
    modes = draw(st.lists(st.sampled_from([ALIGNED, TIMEOUT, UNALIGNED]), min_size=1, max_size=4))
    found: list[list[Item]] = []
    for _ in range(channel_count):
        script: list[Item] = []
        for checkpoint_id, options in enumerate(modes, 1):
            script += range(len(script), len(script) + draw(st.integers(0, 3)))
            fate = draw(st.sampled_from(["comes"] * 8 + ["has overtaken", "cancelled", "lost"]))
            if fate == "cancelled":
                script.append(CancelCheckpointMarker(checkpoint_id))
            elif fate == "has overtaken" and options.is_timeoutable:
                script.append(barrier(checkpoint_id, options.with_unaligned()))
            elif fate != "lost":
                script.append(barrier(checkpoint_id, options))
        script += range(len(script), len(script) + draw(st.integers(0, 2)))
        if draw(st.booleans()):
            script.append(EndOfPartition())
        found.append(script)
    return found
