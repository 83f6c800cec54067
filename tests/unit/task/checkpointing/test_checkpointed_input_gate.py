"""What a task with several channels measures between the first and the last barrier of a checkpoint."""

from types import SimpleNamespace
from typing import Any, cast

from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.task.checkpointing.checkpointed_input_gate import CheckpointedInputGate
from headrace.task.checkpointing.subtask_checkpoints import BarrierTimes
from headrace.task.mailbox import MailboxTimers

MODES = ("EXACTLY_ONCE", "AT_LEAST_ONCE")


class World:
    """A task with two channels; a test says when bytes and barriers come."""

    def __init__(self, mode: str) -> None:
        clock = ManualClock()
        self.gate = SimpleNamespace(number_of_channels=2, bytes_in=0, resume=lambda _: None)
        self.taken: list[BarrierTimes] = []
        environment = SimpleNamespace(
            clock=clock,
            settings=Settings({"execution.checkpointing.mode": mode}),
            inputs=(SimpleNamespace(gate=self.gate),),
        )
        logical_input = SimpleNamespace(gate=self.gate, is_amid_batch=False)
        self._gates = CheckpointedInputGate(
            cast(Any, None),
            lambda _, times: self.taken.append(times),
            cast(Any, environment),
            MailboxTimers(clock),
            cast(Any, [logical_input]),
        )

    def barrier(self, channel: int, checkpoint_id: int) -> None:
        barrier = CheckpointBarrier(checkpoint_id, 0, CheckpointOptions())
        self._gates.event_received(0, channel, barrier)


def test_bytes_that_are_processed_during_the_alignment_are_counted() -> None:
    for mode in MODES:
        world = World(mode)
        world.gate.bytes_in = 1000
        world.barrier(0, 7)
        world.gate.bytes_in += 300
        world.barrier(1, 7)
        assert [times.processed_bytes for times in world.taken] == [300], mode


def test_bytes_between_two_checkpoints_belong_to_neither() -> None:
    for mode in MODES:
        world = World(mode)
        for checkpoint_id in (7, 8):
            world.gate.bytes_in += 1000
            world.barrier(0, checkpoint_id)
            world.barrier(1, checkpoint_id)
        assert [times.processed_bytes for times in world.taken] == [0, 0], mode
