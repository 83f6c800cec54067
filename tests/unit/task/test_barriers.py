"""When a subtask takes its part of a checkpoint: the table of "State and time" 3.3, then its laws under any order."""

from collections import deque
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.checkpoint.failure_reasons import CheckpointFailureReason
from headrace.core.checkpoints import (
    AlignmentMode,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.core.elements import EndOfPartition
from headrace.task.barriers import (
    TRACKED_MAX,
    AlignmentTimedOut,
    AnnouncementReceived,
    AtLeastOnceBarrierTracker,
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
UNALIGNED_LATE = TIMEOUT.with_unaligned()
UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
AT_LEAST_ONCE = CheckpointOptions(alignment=AlignmentMode.AT_LEAST_ONCE)
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
CANCELLED = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
ENDED = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM


def barrier(
    number: int, options: CheckpointOptions = ALIGNED, elapsed_ms: int = 0
) -> CheckpointBarrier:
    return CheckpointBarrier(number, 1000 * number, options, elapsed_ms)


def after(channel_count: int, *events: BarrierEvent) -> ExactlyOnceBarrierHandler:
    handler = ExactlyOnceBarrierHandler(channel_count)
    for event in events:
        handler.handle(event)
    return handler


def test_an_early_channel_stays_blocked_until_the_last_barrier() -> None:
    handler = ExactlyOnceBarrierHandler(2)
    assert handler.handle(BarrierReceived(0, barrier(7))) == [BeginAlignment(barrier(7))]
    assert handler.handle(BarrierReceived(1, barrier(7))) == [
        TriggerSnapshot(barrier(7), ALIGNED),
        ResumeChannels((0, 1)),
    ]
    assert not handler.is_pending


def test_a_task_of_one_channel_takes_the_checkpoint_at_once_and_needs_no_timer() -> None:
    assert after(1).handle(BarrierReceived(0, barrier(7, TIMEOUT))) == [
        BeginAlignment(barrier(7, TIMEOUT)),
        TriggerSnapshot(barrier(7, TIMEOUT), TIMEOUT),
        ResumeChannels((0,)),
    ]


def test_an_unaligned_barrier_is_followed_at_once_and_captures_until_the_last() -> None:
    handler, first = ExactlyOnceBarrierHandler(2), barrier(7, UNALIGNED)
    assert handler.handle(BarrierReceived(1, first)) == [
        BeginAlignment(first),
        StartChannelCapture(7, (0, 1)),
        TriggerSnapshot(first, UNALIGNED),
    ]
    assert handler.handle(BarrierReceived(0, first)) == [StopChannelCapture(7, True)]


def test_an_aligned_barrier_of_an_unaligned_checkpoint_leaves_its_channel_blocked_to_the_end() -> (
    None
):
    handler = after(2, BarrierReceived(1, barrier(7, UNALIGNED)))
    assert handler.handle(BarrierReceived(0, barrier(7, TIMEOUT))) == [
        StopChannelCapture(7, True),
        ResumeChannels((0,)),
    ]


def test_a_timer_runs_from_the_trigger_and_not_from_the_first_barrier() -> None:
    first = barrier(7, TIMEOUT, elapsed_ms=30)
    assert after(2).handle(BarrierReceived(0, first)) == [
        BeginAlignment(first),
        ScheduleAlignmentTimeout(7, 70),
    ]


def test_a_time_out_before_any_barrier_only_lets_announced_ones_overtake() -> None:
    announced = barrier(7, TIMEOUT)
    handler = ExactlyOnceBarrierHandler(2)
    assert handler.handle(AnnouncementReceived(1, announced, 5)) == [
        BeginAlignment(announced),
        ScheduleAlignmentTimeout(7, 100),
    ]
    assert handler.handle(AlignmentTimedOut(7)) == [PrioritiseAnnounced(1, 5)]
    assert handler.handle(AnnouncementReceived(0, announced, 9)) == [PrioritiseAnnounced(0, 9)]
    assert handler.handle(BarrierReceived(1, announced)) == [
        StartChannelCapture(7, (0, 1)),
        TriggerSnapshot(announced, UNALIGNED_LATE),
    ]
    assert handler.handle(BarrierReceived(0, announced)) == [
        StopChannelCapture(7, True),
        ResumeChannels((0, 1)),
    ]


def test_a_time_out_while_collecting_takes_the_checkpoint_unaligned() -> None:
    handler = after(
        3, BarrierReceived(0, barrier(7, TIMEOUT)), AnnouncementReceived(2, barrier(7, TIMEOUT), 4)
    )
    assert handler.handle(AlignmentTimedOut(7)) == [
        PrioritiseAnnounced(2, 4),
        StartChannelCapture(7, (0, 1, 2)),
        TriggerSnapshot(barrier(7, TIMEOUT), UNALIGNED_LATE),
    ]
    assert handler.handle(AlignmentTimedOut(7)) == []


def test_a_barrier_that_has_overtaken_turns_an_aligned_checkpoint() -> None:
    handler = after(2, BarrierReceived(0, barrier(7, TIMEOUT)))
    assert handler.handle(BarrierReceived(1, barrier(7, UNALIGNED_LATE))) == [
        StartChannelCapture(7, (0, 1)),
        TriggerSnapshot(barrier(7, TIMEOUT), UNALIGNED_LATE),
        StopChannelCapture(7, True),
        ResumeChannels((0,)),
    ]


def test_an_overdue_barrier_turns_the_checkpoint_unless_it_is_the_last() -> None:
    late = barrier(7, TIMEOUT, elapsed_ms=100)
    assert after(2).handle(BarrierReceived(0, late)) == [
        BeginAlignment(late),
        StartChannelCapture(7, (0, 1)),
        TriggerSnapshot(late, UNALIGNED_LATE),
    ]
    handler = after(2, BarrierReceived(0, barrier(7, TIMEOUT)))
    assert handler.handle(BarrierReceived(1, late)) == [
        TriggerSnapshot(barrier(7, TIMEOUT), TIMEOUT),
        ResumeChannels((0, 1)),
    ]


def test_a_checkpoint_that_an_edge_forced_to_align_is_unaligned_again_behind_it() -> None:
    for options in (UNALIGNED, TIMEOUT):
        forced = barrier(7, options.with_forced_alignment())
        assert blocks_upstream(forced)
        assert after(1).handle(BarrierReceived(0, forced)) == [
            BeginAlignment(forced),
            TriggerSnapshot(forced, options),
            ResumeChannels((0,)),
        ]
    assert ALIGNED.with_forced_alignment() == ALIGNED


def test_a_newer_barrier_ends_the_older_checkpoint_and_frees_its_channels() -> None:
    handler = after(2, BarrierReceived(0, barrier(7)))
    assert handler.handle(BarrierReceived(1, barrier(8))) == [
        ResumeChannels((0,)),
        DeclineCheckpoint(7, SUBSUMED),
        BeginAlignment(barrier(8)),
    ]
    assert handler.handle(BarrierReceived(0, barrier(7))) == [ResumeChannels((0,))]
    assert handler.handle(BarrierReceived(0, barrier(8))) == [
        TriggerSnapshot(barrier(8), ALIGNED),
        ResumeChannels((0, 1)),
    ]


def test_a_newer_announcement_ends_the_older_checkpoint_too() -> None:
    handler = after(2, BarrierReceived(0, barrier(7, UNALIGNED)))
    assert handler.handle(AnnouncementReceived(0, barrier(8, TIMEOUT), 3)) == [
        StopChannelCapture(7, False),
        DeclineCheckpoint(7, SUBSUMED),
        BeginAlignment(barrier(8, TIMEOUT)),
        ScheduleAlignmentTimeout(8, 100),
    ]


def test_what_comes_of_a_checkpoint_that_is_over_changes_nothing() -> None:
    handler = after(1, BarrierReceived(0, barrier(7)))
    assert handler.handle(BarrierReceived(0, barrier(6, UNALIGNED))) == []
    assert handler.handle(BarrierReceived(0, barrier(7))) == [ResumeChannels((0,))]
    assert handler.handle(CancelMarkerReceived(0, 7)) == []
    assert handler.handle(AnnouncementReceived(0, barrier(7, TIMEOUT), 1)) == []
    assert handler.handle(AlignmentTimedOut(7)) == []
    assert handler.handle(CheckpointAborted(7)) == []


def test_a_cancellation_is_declined_once_whatever_it_finds() -> None:
    handler = after(2, BarrierReceived(0, barrier(7)))
    assert handler.handle(CancelMarkerReceived(1, 7)) == [
        ResumeChannels((0,)),
        DeclineCheckpoint(7, CANCELLED),
    ]
    assert handler.handle(CancelMarkerReceived(0, 7)) == []
    assert handler.handle(CancelMarkerReceived(0, 9)) == [DeclineCheckpoint(9, CANCELLED)]
    assert handler.handle(BarrierReceived(1, barrier(9))) == [ResumeChannels((1,))]


def test_a_cancellation_of_a_newer_checkpoint_ends_the_pending_one() -> None:
    handler = after(2, BarrierReceived(0, barrier(7)))
    assert handler.handle(CancelMarkerReceived(1, 8)) == [
        ResumeChannels((0,)),
        DeclineCheckpoint(7, SUBSUMED),
        DeclineCheckpoint(8, CANCELLED),
    ]


def test_an_announced_checkpoint_is_cancelled_too() -> None:
    handler = after(2, AnnouncementReceived(0, barrier(7, TIMEOUT), 5))
    assert handler.handle(CancelMarkerReceived(1, 7)) == [DeclineCheckpoint(7, CANCELLED)]
    assert handler.handle(BarrierReceived(0, barrier(7, TIMEOUT))) == [ResumeChannels((0,))]


def test_a_channel_that_ends_counts_as_one_with_its_barrier() -> None:
    handler = after(3, ChannelEnded(2), BarrierReceived(0, barrier(7)))
    assert handler.handle(ChannelEnded(1)) == [
        TriggerSnapshot(barrier(7), ALIGNED),
        ResumeChannels((0,)),
    ]
    unaligned = after(2, BarrierReceived(0, barrier(7, UNALIGNED)))
    assert unaligned.handle(ChannelEnded(1)) == [StopChannelCapture(7, True)]


def test_a_channel_that_ends_aborts_where_checkpoints_end_with_the_first_task() -> None:
    handler = ExactlyOnceBarrierHandler(2, counts_ended_channels=False)
    handler.handle(BarrierReceived(0, barrier(7)))
    assert handler.handle(ChannelEnded(1)) == [ResumeChannels((0,)), DeclineCheckpoint(7, ENDED)]


def test_an_abort_from_the_coordinator_frees_channels_and_tells_those_behind() -> None:
    handler = after(2, BarrierReceived(0, barrier(7)))
    assert handler.handle(CheckpointAborted(6)) == []
    assert handler.handle(CheckpointAborted(7)) == [ResumeChannels((0,)), BroadcastCancelMarker(7)]
    # They have had their barriers already where the snapshot was taken.
    taken = after(2, BarrierReceived(0, barrier(7, UNALIGNED)))
    assert taken.handle(CheckpointAborted(7)) == [StopChannelCapture(7, False)]


def test_a_task_that_is_triggered_directly_takes_part_as_if_all_barriers_had_come() -> None:
    assert after(2).handle(CheckpointTriggered(barrier(7))) == [
        BeginAlignment(barrier(7)),
        TriggerSnapshot(barrier(7), ALIGNED),
    ]
    ended = after(1, ChannelEnded(0))
    assert ended.handle(CheckpointTriggered(barrier(7)))[-1] == TriggerSnapshot(barrier(7), ALIGNED)
    collecting = after(2, BarrierReceived(0, barrier(7)))
    assert collecting.handle(CheckpointTriggered(barrier(7))) == [
        TriggerSnapshot(barrier(7), ALIGNED),
        ResumeChannels((0,)),
    ]
    assert collecting.handle(CheckpointTriggered(barrier(7))) == []


def test_at_least_once_blocks_nothing_and_follows_the_last_barrier() -> None:
    tracker, first = AtLeastOnceBarrierTracker(2), barrier(7, AT_LEAST_ONCE)
    second = barrier(8, AT_LEAST_ONCE)
    assert tracker.handle(BarrierReceived(0, first)) == [BeginAlignment(first)]
    assert tracker.handle(BarrierReceived(0, second)) == [BeginAlignment(second)]
    assert tracker.handle(BarrierReceived(1, second)) == [TriggerSnapshot(second, AT_LEAST_ONCE)]
    # The older one came together too late: a later one is there.
    assert tracker.handle(BarrierReceived(1, first)) == []


def test_at_least_once_resumes_what_blocks_all_the_same() -> None:
    tracker = AtLeastOnceBarrierTracker(2)
    assert tracker.handle(BarrierReceived(0, barrier(7)))[0] == ResumeChannels((0,))


def test_at_least_once_gives_up_what_is_cancelled_and_all_before_it() -> None:
    tracker = AtLeastOnceBarrierTracker(2)
    for number in (7, 8, 9):
        tracker.handle(BarrierReceived(0, barrier(number, AT_LEAST_ONCE)))
    assert tracker.handle(CancelMarkerReceived(1, 8)) == [
        DeclineCheckpoint(7, CANCELLED),
        DeclineCheckpoint(8, CANCELLED),
    ]
    assert tracker.handle(BarrierReceived(1, barrier(8, AT_LEAST_ONCE))) == []
    last = barrier(9, AT_LEAST_ONCE)
    assert tracker.handle(BarrierReceived(1, last)) == [TriggerSnapshot(last, AT_LEAST_ONCE)]


def test_at_least_once_counts_the_end_of_a_channel_as_its_barriers() -> None:
    tracker, first = AtLeastOnceBarrierTracker(2), barrier(7, AT_LEAST_ONCE)
    tracker.handle(BarrierReceived(0, first))
    assert tracker.handle(ChannelEnded(1)) == [TriggerSnapshot(first, AT_LEAST_ONCE)]


def test_at_least_once_forgets_the_oldest_of_too_many() -> None:
    tracker = AtLeastOnceBarrierTracker(2)
    for number in range(1, TRACKED_MAX + 2):
        tracker.handle(BarrierReceived(0, barrier(number, AT_LEAST_ONCE)))
    assert tracker.handle(BarrierReceived(1, barrier(1, AT_LEAST_ONCE))) == []
    second = barrier(2, AT_LEAST_ONCE)
    assert tracker.handle(BarrierReceived(1, second)) == [TriggerSnapshot(second, AT_LEAST_ONCE)]


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
        for action in self.handler.handle(event):
            self.perform(action)

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
            case StartChannelCapture(checkpoint_id, indices):
                self.begin(checkpoint_id, is_complete=False)
                self.capturing = checkpoint_id
                for index in indices:
                    channel = self.channels[index]
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


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "arrive", "take", "take", "fire"]), st.integers(0, 3)),
    max_size=60,
)


def played(
    script: list[list[Item]], steps: list[tuple[str, int]], *, at_least_once: bool = False
) -> World:
    world = World(script, at_least_once=at_least_once)
    for name, index in steps:
        getattr(world, name)(index % len(script))
    world.run_out()
    return world


@settings(max_examples=100, deadline=None)
@given(scripts(), STEPS)
def test_state_and_captured_rows_are_what_came_before_the_barriers(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    world = played(script, steps)
    for checkpoint_id, taken in world.taken.items():
        if not taken.is_complete:
            continue
        assert checkpoint_id not in world.declined
        for index, channel in enumerate(script):
            assert taken.processed[index] + taken.captured[index] == rows_before(
                channel, checkpoint_id
            )


@settings(max_examples=100, deadline=None)
@given(scripts(), STEPS, st.lists(st.integers(1, 4)))
def test_no_channel_stays_blocked_and_each_is_resumed_once_per_block(
    script: list[list[Item]], steps: list[tuple[str, int]], aborted: list[int]
) -> None:
    world = played(script, steps)
    for checkpoint_id in aborted:
        world.handle(CheckpointAborted(checkpoint_id))
    if isinstance(world.handler, ExactlyOnceBarrierHandler) and world.handler.is_pending:
        # A barrier was lost for good; the coordinator notices.
        world.handle(CheckpointAborted(world.handler.checkpoint_id))
    world.run_out()
    for channel in world.channels:
        is_waiting = any(isinstance(item, CheckpointBarrier) for _, item in channel.queue)
        assert not channel.is_blocked or is_waiting
        assert channel.resumed_count == channel.blocking_count - channel.is_blocked


@settings(max_examples=100, deadline=None)
@given(scripts(), STEPS)
def test_a_checkpoint_is_taken_or_declined_and_declined_at_most_once(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    world = played(script, steps)
    assert len(world.declined) == len(set(world.declined))
    complete = {key for key, taken in world.taken.items() if taken.is_complete}
    assert not complete & set(world.declined)
    assert list(world.taken) == sorted(world.taken)


@settings(max_examples=60, deadline=None)
@given(scripts(), STEPS)
def test_where_no_barrier_is_missing_the_last_checkpoint_is_always_taken(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    whole: list[list[Item]] = [
        [*(item for item in channel if isinstance(item, int)), barrier(9), EndOfPartition()]
        for channel in script
    ]
    assert 9 in played(whole, steps).taken


@settings(max_examples=60, deadline=None)
@given(scripts(), STEPS)
def test_at_least_once_has_at_least_what_came_before_the_barriers(
    script: list[list[Item]], steps: list[tuple[str, int]]
) -> None:
    unblocked = [[_without_alignment(item) for item in channel] for channel in script]
    world = played(unblocked, steps, at_least_once=True)
    assert list(world.taken) == sorted(world.taken)
    for checkpoint_id, taken in world.taken.items():
        for index, channel in enumerate(unblocked):
            assert set(taken.processed[index]) >= set(rows_before(channel, checkpoint_id)) or not (
                any(getattr(item, "checkpoint_id", 0) == checkpoint_id for item in channel)
            )


def _without_alignment(item: Item) -> Item:
    if not isinstance(item, CheckpointBarrier):
        return item
    return msgspec.structs.replace(item, options=AT_LEAST_ONCE)


@pytest.mark.parametrize("channel_count", [1, 2, 3])
def test_two_checkpoints_in_a_row_need_nothing_from_each_other(channel_count: int) -> None:
    script: list[Item] = [0, barrier(1), 2, barrier(2, UNALIGNED), 4, barrier(3, TIMEOUT), 6]
    world = played([list(script) for _ in range(channel_count)], [])
    assert {key: taken.is_complete for key, taken in world.taken.items()} == {
        1: True,
        2: True,
        3: True,
    }
