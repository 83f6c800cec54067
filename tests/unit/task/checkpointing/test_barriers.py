"""When a subtask takes its part of a checkpoint: Flink's tables of states, row by row."""

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.core.barriers import (
    AlignmentMode,
    CheckpointBarrier,
    CheckpointOptions,
)
from headrace.task.checkpointing.barrier_tracker import TRACKED_MAX, AtLeastOnceBarrierTracker
from headrace.task.checkpointing.barriers import (
    AlignmentTimedOut,
    AnnouncementReceived,
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
        StartChannelCapture(7),
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
        StartChannelCapture(7),
        TriggerSnapshot(announced, UNALIGNED_LATE),
    ]
    assert handler.handle(BarrierReceived(0, announced)) == [
        StopChannelCapture(7, True),
        ResumeChannels((0, 1)),
    ]


def test_what_was_announced_of_a_checkpoint_that_is_over_does_not_overtake_for_the_next_one() -> (
    None
):
    handler = after(2, AnnouncementReceived(1, barrier(7, TIMEOUT), 5), CheckpointAborted(7))
    newer = barrier(8, UNALIGNED)
    assert handler.handle(BarrierReceived(0, newer)) == [
        BeginAlignment(newer),
        StartChannelCapture(8),
        TriggerSnapshot(newer, UNALIGNED),
    ]


def test_a_time_out_while_collecting_takes_the_checkpoint_unaligned() -> None:
    handler = after(
        3, BarrierReceived(0, barrier(7, TIMEOUT)), AnnouncementReceived(2, barrier(7, TIMEOUT), 4)
    )
    assert handler.handle(AlignmentTimedOut(7)) == [
        PrioritiseAnnounced(2, 4),
        StartChannelCapture(7),
        TriggerSnapshot(barrier(7, TIMEOUT), UNALIGNED_LATE),
    ]
    assert handler.handle(AlignmentTimedOut(7)) == []


def test_a_barrier_that_has_overtaken_turns_an_aligned_checkpoint() -> None:
    handler = after(2, BarrierReceived(0, barrier(7, TIMEOUT)))
    assert handler.handle(BarrierReceived(1, barrier(7, UNALIGNED_LATE))) == [
        StartChannelCapture(7),
        TriggerSnapshot(barrier(7, TIMEOUT), UNALIGNED_LATE),
        StopChannelCapture(7, True),
        ResumeChannels((0,)),
    ]


def test_an_overdue_barrier_turns_the_checkpoint_unless_it_is_the_last() -> None:
    late = barrier(7, TIMEOUT, elapsed_ms=100)
    assert after(2).handle(BarrierReceived(0, late)) == [
        BeginAlignment(late),
        StartChannelCapture(7),
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


def test_channels_without_the_barrier_are_known_until_it_is_complete() -> None:
    handler = after(3, BarrierReceived(1, barrier(7)))
    assert handler.missing(7) == {0, 2}
    assert handler.missing(6) is None
    handler.handle(BarrierReceived(0, barrier(7)))
    handler.handle(BarrierReceived(2, barrier(7)))
    assert handler.missing(7) is None
    tracker = AtLeastOnceBarrierTracker(2)
    tracker.handle(BarrierReceived(0, barrier(7, AT_LEAST_ONCE)))
    assert tracker.missing(7) == {1}
    tracker.handle(BarrierReceived(1, barrier(7, AT_LEAST_ONCE)))
    assert tracker.missing(7) is None
