"""CheckpointedInputGate: passes the checkpoint events of all input gates of one task to one barrier handler.

The barriers, cancel markers, announcements and ends of all channels are events for the handler, whose actions the gate
performs: it resumes channels, lets barriers overtake, and has the task take or decline the checkpoint. Channels are
numbered over all inputs, since one alignment covers them all.
Source: Flink CheckpointedInputGate, InputProcessorUtil.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.checkpoint.options import (
    AFTER_TASKS_FINISH,
    MODE,
    CheckpointingMode,
    member_of,
)
from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.config import Settings
from headrace.core.elements import EndOfPartition
from headrace.core.process.failpoints import Failpoint, reach
from headrace.network.gates.gate import BarrierAnnouncement, InputGate
from headrace.task.checkpointing.barrier_tracker import AtLeastOnceBarrierTracker
from headrace.task.checkpointing.barriers import (
    AlignmentTimedOut,
    AnnouncementReceived,
    BarrierAction,
    BarrierEvent,
    BarrierHandler,
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
)
from headrace.task.checkpointing.subtask_checkpoints import BarrierTimes, SubtaskCheckpoints
from headrace.task.environment import TaskEnvironment
from headrace.task.input.input_processor import CheckpointEvent, LogicalInput
from headrace.task.mailbox import MailboxTimers


class CheckpointedInputGate:
    """Feeds the barriers of all inputs to the handler and performs its actions. Mailbox thread only.

    `take_checkpoint` lets the task take part in a checkpoint, once all data before the barriers has been processed.
    """

    def __init__(
        self,
        checkpoints: SubtaskCheckpoints,
        take_checkpoint: Callable[[CheckpointBarrier, BarrierTimes], None],
        environment: TaskEnvironment,
        timers: MailboxTimers,
        inputs: Sequence[LogicalInput],
    ) -> None:
        self._checkpoints: Final = checkpoints
        self._take_checkpoint: Final = take_checkpoint
        self._clock: Final = environment.clock
        self._timers: Final = timers
        self._inputs: Final = inputs
        self._gates: Final = tuple(each.gate for each in environment.inputs)
        self._waiting: deque[BarrierEvent] = deque()
        self._first_channels: list[int] = []
        self._places: list[tuple[InputGate, int]] = []
        for logical_input in inputs:
            gate = logical_input.gate
            self._first_channels.append(len(self._places))
            self._places += [(gate, index) for index in range(gate.number_of_channels)]
        self._handler: Final = _handler(len(self._places), environment.settings)
        # Times of the checkpoint whose barriers are being collected.
        self._first_barrier_ns = 0
        self._start_delay_ms = 0
        self._first_barrier_bytes_in = 0

    def missing(self, checkpoint_id: int) -> tuple[int, int, frozenset[int]] | None:
        """Return the ms since the first barrier, the number of channels, and the channels that lack a barrier.

        Returns None if no barriers of this checkpoint are being collected. Any thread: the result may be one barrier
        old.
        """
        waiting = self._handler.missing(checkpoint_id)
        if waiting is None:
            return None
        elapsed_ms = (self._clock.monotonic_ns() - self._first_barrier_ns) // 1_000_000
        return elapsed_ms, len(self._places), waiting

    def event_received(self, input_number: int, channel_index: int, event: CheckpointEvent) -> None:
        """Handle a barrier, cancel marker, announcement or end of partition from a channel of an input."""
        channel = self._first_channels[input_number] + channel_index
        match event:
            case CheckpointBarrier():
                self._handle(BarrierReceived(channel, event))
            case CancelCheckpointMarker(checkpoint_id):
                self._handle(CancelMarkerReceived(channel, checkpoint_id))
            case BarrierAnnouncement(barrier, sequence):
                self._handle(AnnouncementReceived(channel, barrier, sequence))
            case EndOfPartition():
                self._handle(ChannelEnded(channel))

    def triggered(self, barrier: CheckpointBarrier) -> None:
        """Handle a checkpoint that the coordinator triggered at this task."""
        self._handle(CheckpointTriggered(barrier))

    def aborted(self, checkpoint_id: int) -> None:
        """Handle the coordinator's abort of a checkpoint."""
        self._handle(CheckpointAborted(checkpoint_id))

    @property
    def is_amid_batch(self) -> bool:
        """True while rows that were read are not fully processed."""
        return any(each.is_amid_batch for each in self._inputs)

    @property
    def _bytes_in(self) -> int:
        return sum(gate.bytes_in for gate in self._gates)

    def batch_ended(self) -> None:
        """Handle the events that arrived during a batch."""
        while self._waiting and not self.is_amid_batch:
            self._handle(self._waiting.popleft())

    def _handle(self, event: BarrierEvent) -> None:
        if self.is_amid_batch:
            # A trigger, an abort or a time-out: the rows that were read belong before the checkpoint.
            self._waiting.append(event)
            return
        for action in self._handler.handle(event):
            self._perform(action)

    def _perform(self, action: BarrierAction) -> None:
        match action:
            case ResumeChannels(channels):
                for channel in channels:
                    gate, index = self._places[channel]
                    gate.resume(index)
            case BeginAlignment(barrier):
                reach(Failpoint.FIRST_BARRIER)
                self._first_barrier_ns = self._clock.monotonic_ns()
                own_delay_ms = self._clock.now_ms() - barrier.timestamp_ms
                self._start_delay_ms = max(0, own_delay_ms, barrier.elapsed_ms)
                self._first_barrier_bytes_in = self._bytes_in
            case TriggerSnapshot(barrier, options):
                reach(Failpoint.LAST_BARRIER)
                aligned_ns = self._clock.monotonic_ns() - self._first_barrier_ns
                processed_bytes = self._bytes_in - self._first_barrier_bytes_in
                times = BarrierTimes(self._start_delay_ms, aligned_ns // 1_000_000, processed_bytes)
                taken = msgspec.structs.replace(barrier, options=options)
                self._take_checkpoint(taken, times)
            case DeclineCheckpoint(checkpoint_id, reason):
                self._checkpoints.decline(checkpoint_id, reason, reason.value)
            case BroadcastCancelMarker(checkpoint_id):
                self._checkpoints.give_up(checkpoint_id)
            case ScheduleAlignmentTimeout(checkpoint_id, delay_ms):
                due_ms = self._timers.now_ms() + delay_ms
                self._timers.schedule(due_ms, self._timed_out(checkpoint_id))
            case StartChannelCapture(checkpoint_id):
                self._checkpoints.channels.start_capture(checkpoint_id)
            case StopChannelCapture(checkpoint_id, is_complete):
                self._checkpoints.channels.stop_capture(checkpoint_id, is_complete=is_complete)
            case PrioritiseAnnounced(channel, sequence):
                gate, index = self._places[channel]
                gate.prioritise(index, sequence)

    def _timed_out(self, checkpoint_id: int) -> Callable[[int], None]:
        return lambda _: self._handle(AlignmentTimedOut(checkpoint_id))


def _handler(channel_count: int, settings: Settings) -> BarrierHandler:
    if member_of(CheckpointingMode, settings, MODE) is CheckpointingMode.AT_LEAST_ONCE:
        return AtLeastOnceBarrierTracker(channel_count)
    counts_ended = settings.get_option(AFTER_TASKS_FINISH)
    return ExactlyOnceBarrierHandler(channel_count, counts_ended_channels=counts_ended)
