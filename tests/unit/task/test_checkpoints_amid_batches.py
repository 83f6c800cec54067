"""What draws a line between records waits until a batch that was begun is worked off."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.checkpoints import CheckpointBarrier
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.task.input_barriers import InputBarriers
from headrace.task.mailbox import MailboxTimers
from headrace.task.stream_task import SourceStreamTask, StreamTask

BARRIER = CheckpointBarrier(7, 0)


class BatchInParts:
    """A chain that has so many parts of a batch to work off."""

    def __init__(self, parts: int) -> None:
        self.parts = parts

    @property
    def is_amid_batch(self) -> bool:
        return self.parts > 0

    def go_on_with_batch(self) -> None:
        self.parts -= 1


def test_a_source_takes_a_checkpoint_when_the_batch_in_work_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = cast(Any, object.__new__(SourceStreamTask))
    task.chain = BatchInParts(2)
    task._stop_mode = None
    taken: list[int] = []
    monkeypatch.setattr(
        StreamTask, "trigger_checkpoint", lambda _, barrier: taken.append(barrier.checkpoint_id)
    )
    task.trigger_checkpoint(BARRIER)
    task._process_one()
    assert taken == [], "rows that its position is behind have not been emitted yet"
    task._process_one()
    assert taken == [7]


def test_a_checkpoint_that_is_triggered_at_a_task_with_inputs_waits_for_its_batch() -> None:
    clock = ManualClock()
    gate = SimpleNamespace(number_of_channels=1)
    batch = SimpleNamespace(gate=gate, is_amid_batch=True)
    taken: list[int] = []
    taker = SimpleNamespace(
        take_checkpoint=lambda barrier, times: taken.append(barrier.checkpoint_id)
    )
    environment = SimpleNamespace(clock=clock, settings=Settings())
    barriers = InputBarriers(
        cast(Any, taker), cast(Any, environment), MailboxTimers(clock), cast(Any, [batch])
    )
    barriers.triggered(BARRIER)
    assert taken == []
    batch.is_amid_batch = False
    barriers.batch_ended()
    assert taken == [7]
