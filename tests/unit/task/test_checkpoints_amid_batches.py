"""Lines between records (triggers, aborts, time-outs) wait until a batch that was begun is worked off."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.barriers import CheckpointBarrier, CheckpointOptions
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DiscardingSink
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.watermarks import WatermarkStrategy
from headrace.task.checkpointing.checkpointed_input_gate import CheckpointedInputGate
from headrace.task.mailbox import MailboxTimers
from headrace.task.task_runner import Step, TaskLoop
from tests.unit.task.local_job import LocalJob

BARRIER = CheckpointBarrier(7, 0)
ROWS = [1, 2, 3, 4]
MAPPED: list[int] = []
"""Rows that the function behind the source saw, in this process."""
MAPPED_AT_SNAPSHOT: list[list[int]] = []
"""What it had seen as the source was asked for its position."""


class OneBatchSource(Source):
    """Ends with its one batch."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return OneBatchReader(context)


class OneBatchReader(SourceReader):
    """Emits all rows at the first poll, and from then on its position is behind them."""

    def __init__(self, context: SubtaskContext) -> None:
        self._context = context
        self._has_emitted = False

    def poll_next(self, output: SourceOutput) -> InputStatus:
        if self._has_emitted:
            return InputStatus.END_OF_INPUT
        self._has_emitted = True
        output.emit(RecordBatch.of_rows(self._context.types.output, ROWS))
        return InputStatus.MORE_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        MAPPED_AT_SNAPSHOT.append(list(MAPPED))
        return []


def seen(row: int) -> int:
    MAPPED.append(row)
    return row


class StepByStep:
    """A TaskRunner that leaves the steps to the test."""

    def __init__(self) -> None:
        self.loops: list[TaskLoop] = []

    def run(self, name: str, loop: TaskLoop) -> None:
        self.loops.append(loop)


def test_a_source_takes_a_checkpoint_when_the_batch_in_work_is_done() -> None:
    MAPPED.clear()
    MAPPED_AT_SNAPSHOT.clear()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    rows = env.from_source(
        OneBatchSource(), WatermarkStrategy.no_watermarks(), "one batch", Types.INT()
    )
    rows.map(seen, Types.INT()).sink_to(DiscardingSink())
    runner = StepByStep()
    with LocalJob(env.get_stream_graph(), runner=runner) as job:
        (task,) = job.tasks
        job.start()
        (loop,) = runner.loops
        while not MAPPED and loop.step() is not Step.DONE:
            pass
        first_part = list(MAPPED)
        task.trigger_checkpoint(7, 0, CheckpointOptions())
        while loop.step() is not Step.DONE:
            pass
    assert first_part == ROWS[:1]
    assert MAPPED_AT_SNAPSHOT == [ROWS], "its position is behind rows that were emitted later"


def test_a_checkpoint_that_is_triggered_at_a_task_with_inputs_waits_for_its_batch() -> None:
    clock = ManualClock()
    gate = SimpleNamespace(number_of_channels=1)
    batch = SimpleNamespace(gate=gate, is_amid_batch=True)
    taken: list[int] = []
    environment = SimpleNamespace(clock=clock, settings=Settings(), inputs=())
    barriers = CheckpointedInputGate(
        cast(Any, None),
        lambda barrier, times: taken.append(barrier.checkpoint_id),
        cast(Any, environment),
        MailboxTimers(clock),
        cast(Any, [batch]),
    )
    barriers.triggered(BARRIER)
    assert taken == []
    batch.is_amid_batch = False
    barriers.batch_ended()
    assert taken == [7]
