"""The operator interface: batches in, batches out, on the task's mailbox thread.

`operators.registry` creates an operator from its spec; it is opened once, fed batches and watermarks, finished and
closed. It never blocks and starts no thread. Source: Flink StreamOperator, AbstractStreamOperatorV2.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from headrace.checkpoint.handles import Committable
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import RecordBatch
from headrace.functions.ingest import IngestDoor
from headrace.functions.runtime_context import ProcessingTimeService, ScheduledTimer
from headrace.functions.source import InputStatus
from headrace.metrics.groups import MetricGroup
from headrace.state.operator_state_handler import OperatorStateHandler

__all__ = [
    "InputStatus",
    "OneInputOperator",
    "Operator",
    "OperatorContext",
    "Output",
    "ProcessingTimeService",
    "ScheduledTimer",
    "SourceOperator",
    "TwoInputOperator",
]


TURN_MS: Final = 20
"""Approximate time that a task works without looking at its mail, timers and barriers, if its work can be split."""
InputNumbers = npt.NDArray[np.int8]
"""The input that each row comes from, 0 or 1."""


class Output(Protocol):
    """Output of an operator; the same object for the operator's whole life.

    `reads_rows`: whether a downstream operator reads rows of the main output as Python values.
    """

    reads_rows: bool

    def emit(self, batch: RecordBatch) -> None:
        """Send rows of the operator's output type; an empty batch is dropped."""
        ...

    def emit_side(self, tag_id: str, batch: RecordBatch) -> None:
        """Send rows to a side output; they are dropped if nothing reads the tag."""
        ...

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Send a watermark; one that is not larger than the last is dropped."""
        ...

    def emit_status(self, is_idle: bool) -> None:
        """Announce idleness or activity; watermarks are dropped while idle."""
        ...

    def check_interrupted(self) -> None:
        """Raise if the task must stop. `emit` does so too; this is for functions that work long without emitting."""
        ...


def _no_mailbox(_mail: Callable[[], None]) -> None:
    raise AssertionError("the creator of this context has no mailbox")


def _never_back_pressured() -> float:
    return 0.0


def _any_number() -> int:
    return 1 << 40


@dataclass(frozen=True)
class OperatorContext:
    """Environment of an operator.

    `send_event` sends bytes to the operator's coordinator in the JobMaster and may be called from the mailbox thread
    only; `wake` makes the mailbox run the default action again and may be called from any thread (sources use it
    when data has arrived). `ingest` receives pushed DataFrames for the TaskManager (None if there is no receiver);
    `attempt_id` is the task's, or None outside of one. `external_resources`: its slot's, addresses by name.
    """

    operator_id: OperatorId
    operator_name: str
    task_name: str
    subtask_index: int
    parallelism: int
    max_parallelism: int
    attempt_number: int
    types: OperatorTypes
    settings: Settings
    job_parameters: dict[str, str]
    clock: Clock
    timers: ProcessingTimeService
    metrics: MetricGroup
    output: Output
    send_event: Callable[[bytes], None]
    wake: Callable[[], None]
    state: OperatorStateHandler = field(kw_only=True)
    """The operator's state: restored from a checkpoint, and part of later ones."""
    ingest: IngestDoor | None = None
    external_resources: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    attempt_id: ExecutionAttemptId | None = None
    mail: Callable[[Callable[[], None]], object] = _no_mailbox
    """Function that puts a call into the task's mailbox, from any thread; no effect after the task's end."""
    back_pressured_ms: Callable[[], float] = _never_back_pressured
    """Function that returns the total time in ms with full outputs, which does not count as silence of an input."""
    rows_wanted: Callable[[], int] = _any_number
    """Function that returns the limit of rows that a source should emit at once, so that data in flight stays small."""

    @property
    def task_name_with_subtasks(self) -> str:
        """Return `name (1/4)#0`: subtask from 1, parallelism, attempt."""
        return (
            f"{self.task_name} ({self.subtask_index + 1}/{self.parallelism})#{self.attempt_number}"
        )


class Operator(ABC):
    """Base of all operators: lifecycle and watermarks.

    Order of calls: open, then batches, watermarks and timers in any order, `end_input` per input, `finish`, `close`.
    After a failure only `close` is called.
    """

    is_per_record: ClassVar[bool] = False
    """True if user code sees rows one by one: a batch may take long then, and is passed in parts."""

    context: OperatorContext
    current_watermark: int = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        """Prepare the operator; subclasses call super first."""
        self.context = context

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        """Handle a watermark that grew (already the minimum over inputs) and forward it."""
        self.current_watermark = timestamp_ms
        output.emit_watermark(timestamp_ms)

    def process_status(self, is_idle: bool, output: Output) -> None:
        """Forward idleness (already combined over inputs)."""
        output.emit_status(is_idle)

    @property
    def can_take_input(self) -> bool:
        """True if the task may feed its chain. Checked for every operator before each default action; cheap.

        While it is False for one, the task counts as busy and continues with mail, timers and barriers; the operator
        calls `context.wake` when it can take input again. It must nevertheless accept a batch that arrives, as one
        batch of the head may become many on the way.
        """
        return True

    @property
    def is_drained(self) -> bool:
        """True if all results of accepted rows have been emitted. Checked after `end_input`, before `finish`; cheap.

        While it is False, mail and timers of the operator still run, and operators after it are not ended yet.
        """
        return True

    def handle_event(self, payload: bytes) -> None:
        """Handle an event from the operator's coordinator in the JobMaster."""
        raise AssertionError(f"operator {self.context.operator_name} has no coordinator")

    def end_input(self, input_number: int, output: Output) -> None:  # noqa: B027
        """Handle the end of input `input_number`, after MAX_WATERMARK."""

    def end_keys(self, output: Output) -> None:  # noqa: B027
        """Emit all remaining results of the keys so far and drop their state, as none of them comes again.

        BATCH mode calls it between keys, as its input is ordered by key. An operator that does not override it gives
        its results at the end of the input.
        """

    def finish(self, output: Output) -> None:  # noqa: B027
        """Emit everything that is still held back: all inputs have ended."""

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:  # noqa: B027
        """Emit everything that belongs before the barrier; called from head to tail."""

    def emit_held(self, output: Output) -> None:  # noqa: B027
        """Emit rows that are held back to be merged; called before data ends without a drain, from head to tail."""

    def snapshot_state(self, checkpoint_id: int) -> Sequence[Committable]:
        """Copy state that is kept elsewhere into `context.state`; called from tail to head, after the barrier was sent.

        `context.state` is frozen right after. Returns all prepared effects whose checkpoint is not known to be
        published, as the failure of an earlier checkpoint is reported late or never.
        """
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027
        """Handle the publication of a checkpoint. The call may be lost, late or repeated; nothing may depend on it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027
        """Note that a checkpoint failed."""

    def close(self) -> None:  # noqa: B027
        """Release resources; also called after a failure. A second call must not raise."""


class OneInputOperator(Operator):
    """An operator with one logical input."""

    @abstractmethod
    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        """Handle one batch (num_rows >= 1): the same result as handling its rows one by one."""


class TwoInputOperator(Operator):
    """An operator with two inputs. The chain combines their watermarks before `process_watermark`."""

    minds_order_of_inputs: ClassVar[bool] = True
    """False if the results are the same, in some order, whichever input's rows come first: a pair is emitted once."""

    @abstractmethod
    def process_batch1(self, batch: RecordBatch, output: Output) -> None:
        """Handle a batch of input 0."""

    @abstractmethod
    def process_batch2(self, batch: RecordBatch, output: Output) -> None:
        """Handle a batch of input 1."""

    def process_interleaved(
        self, input_numbers: InputNumbers, batch1: RecordBatch, batch2: RecordBatch, output: Output
    ) -> None:
        """Handle rows of both inputs in one order: BATCH mode has sorted them by key.

        `input_numbers`: input of each row, shape (rows of both,). The rows of each batch are in order.
        An operator with one loop for both inputs overrides it, as a batch per stretch of rows of one input is slow
        if these stretches are short.
        """
        if not self.minds_order_of_inputs:
            self.process_batch1(batch1, output)
            self.process_batch2(batch2, output)
            return
        handled = [0, 0]
        changes = (np.flatnonzero(np.diff(input_numbers)) + 1).tolist()
        for begin, end in pairwise([0, *changes, len(input_numbers)]):
            number, count = int(input_numbers[begin]), end - begin
            batch, process = (
                (batch1, self.process_batch1) if number == 0 else (batch2, self.process_batch2)
            )
            process(batch.slice(handled[number], count), output)
            handled[number] += count


class SourceOperator(Operator):
    """The head of a source chain: polled for at most one batch at a time."""

    @abstractmethod
    def poll(self, output: Output) -> InputStatus:
        """Emit at most one batch and return the status; never blocks.

        After NOTHING_AVAILABLE the task waits for `context.wake` or a timer. Before END_OF_INPUT the operator emits
        its last watermark; the task adds MAX_WATERMARK.
        """
