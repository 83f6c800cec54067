"""OperatorHarness: runs one operator without a task: steps in, emitted elements out, snapshots and restarts in between.

Time advances only by steps, snapshots stay in memory, and calls of an asynchronous function end when the test ends them
(ManualCalls), all on the test's own thread.
"""

import hashlib
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.api.environment import StreamExecutionEnvironment
from headrace.checkpoint.handles import Committable, OperatorSubtaskState, StateChunk, StateFile
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.ids import OperatorId
from headrace.core.key_groups import key_group_range
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.operator_spec import OperatorSpec, OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch, key_values_to_array
from headrace.core.types.pickles import pickle_code, unpickle_value
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation, Types
from headrace.functions.source import InputStatus
from headrace.functions.specs.operator_specs import KeyBySpec
from headrace.metrics.groups import MetricGroup
from headrace.operators.record.async_wait_operator import AsyncCall, CallsEnded
from headrace.operators.registry import create_operator
from headrace.operators.runtime.operator import (
    OneInputOperator,
    Operator,
    OperatorContext,
    SourceOperator,
    TwoInputOperator,
)
from headrace.operators.runtime.user_code import method_of
from headrace.state.backend import FrozenState
from headrace.state.operator_state_handler import OperatorStateHandler

HARNESS_KEY_GROUPS: Final = 128
PICKLED: Final = Types.PICKLED_BYTE_ARRAY()


class ManualCalls:
    """Implements AsyncCalls. `running` holds the calls that have started, in order; `finish` ends one of them.

    A coroutine that awaits is resumed at once, so it must not wait for anything but other coroutines.
    """

    def __init__(self, ended: CallsEnded) -> None:
        self._tell_ended = ended
        self.running: list[AsyncCall] = []
        self.started_count = 0
        self.running_max = 0
        self.is_closed = False

    def start(self, calls: Sequence[AsyncCall]) -> None:
        self.running += calls
        self.started_count += len(calls)
        self.running_max = max(self.running_max, len(self.running))

    def cancel(self, call: AsyncCall) -> None:
        call.is_cancelled = True
        if call in self.running:  # else it is done, and its mail on its way
            self.running.remove(call)

    def close(self) -> None:
        self.is_closed = True
        self.running.clear()

    def finish(self, index: int = 0) -> None:
        """Let the call at `index` of `running` run to its end."""
        call = self.running.pop(index)
        coroutine = call.run()
        try:
            while True:
                coroutine.send(None)
        except StopIteration:
            self._tell_ended([call])

    def finish_first(self) -> bool:
        """Let the oldest call end; return False if none runs."""
        if self.running:
            self.finish()
            return True
        return False


class MemorySnapshots:
    """A SnapshotWriter and SnapshotReader that stores files inside their handles."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        held = bytes(content)
        return StateFile("", held, len(held), _digest(held), is_shared)

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        return self.write(name, Path(path).read_bytes(), is_shared=is_shared)

    def read(self, file: StateFile) -> memoryview:
        assert _digest(file.content) == file.digest
        return memoryview(file.content)

    def fetch(self, file: StateFile, path: str) -> None:
        Path(path).write_bytes(self.read(file))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def write_frozen(
    frozen: Iterable[FrozenState], committables: tuple[Committable, ...] = ()
) -> OperatorSubtaskState:
    """Write and discard frozen states, as a task's asynchronous part does."""
    chunks: list[StateChunk] = []
    writer = MemorySnapshots()
    for part in frozen:
        chunks += part.write(writer)
        part.discard()
    return OperatorSubtaskState(tuple(chunks), committables)


def snapshot(
    states: OperatorStateHandler,
    checkpoint_id: int = 1,
    options: CheckpointOptions | None = None,
    committables: tuple[Committable, ...] = (),
) -> OperatorSubtaskState:
    """Take a whole snapshot of an operator's states."""
    frozen = states.freeze(checkpoint_id, options or CheckpointOptions())
    return write_frozen(frozen, committables)


@dataclass(frozen=True)
class Rows:
    """Step: these rows arrive on an input. `timestamps` None: a stream without event time."""

    values: Sequence[Any]
    timestamps: Sequence[int] | None = None
    input_number: int = 0


@dataclass(frozen=True)
class WatermarkAt:
    """Step: the operator's watermark (the minimum over its inputs) grows to `timestamp_ms`."""

    timestamp_ms: int


@dataclass(frozen=True)
class TimeAt:
    """Step: the wall clock advances to `time_ms`; due timers run."""

    time_ms: int


@dataclass(frozen=True)
class Idle:
    """Step: the input becomes idle or active."""

    is_idle: bool


HarnessStep = Rows | WatermarkAt | TimeAt | Idle


class ManualTimers:
    """A ProcessingTimeService on a ManualClock: `advance_to` advances it and runs due timers, in order of time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> "ManualTimer":
        timer = ManualTimer(time_ms, callback)
        self._count += 1
        heapq.heappush(self._timers, (time_ms, self._count, timer))
        return timer

    def advance_to(self, time_ms: int) -> None:
        """Advance the clock to `time_ms`, stopping at each due timer."""
        while self._timers and self._timers[0][0] <= time_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                self._clock.advance_ms(max(0, due_ms - self._clock.now_ms()))
                timer.callback(due_ms)
        self._clock.advance_ms(max(0, time_ms - self._clock.now_ms()))

    def forget_all(self) -> None:
        """Cancel every timer, as the end of a task does."""
        self._timers.clear()

    @property
    def pending_count(self) -> int:
        """Number of timers that are neither due nor cancelled."""
        return sum(not timer.is_cancelled for _, _, timer in self._timers)


@dataclass
class ManualTimer:
    """A scheduled callback."""

    time_ms: int
    callback: Callable[[int], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class RecordedOutput:
    """An Output that records its elements.

    `main`, and each of `sides`, holds ("row", value, timestamp), ("watermark", ms) etc.
    """

    main: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    sides: dict[str, list[tuple[Any, ...]]] = field(
        default_factory=dict[str, list[tuple[Any, ...]]]
    )
    batches: list[RecordBatch] = field(default_factory=list[RecordBatch])
    watermark_ms: int = MIN_TIMESTAMP
    is_idle: bool = False
    reads_rows: bool = True

    def emit(self, batch: RecordBatch) -> None:
        self.check_interrupted()
        if batch.num_rows:
            self.batches.append(batch)
            self.main.extend(_row_elements(batch))

    def emit_side(self, tag_id: str, batch: RecordBatch) -> None:
        self.sides.setdefault(tag_id, []).extend(_row_elements(batch))

    def emit_watermark(self, timestamp_ms: int) -> None:
        if timestamp_ms > self.watermark_ms:
            self.watermark_ms = timestamp_ms
            self.main.append(("watermark", timestamp_ms))

    def emit_status(self, is_idle: bool) -> None:
        if is_idle != self.is_idle:
            self.is_idle = is_idle
            self.main.append(("idle",) if is_idle else ("active",))

    def check_interrupted(self) -> None:
        """Do nothing; a test replaces it on the object to stop an operator."""

    @property
    def rows(self) -> list[Any]:
        """Return the values of the main output."""
        return [element[1] for element in self.main if element[0] == "row"]

    @property
    def timed_rows(self) -> list[tuple[Any, int | None]]:
        """Return the values of the main output with their timestamps, or None."""
        return [(element[1], element[2]) for element in self.main if element[0] == "row"]

    @property
    def watermarks(self) -> list[int]:
        """Return the watermarks of the main output."""
        return [element[1] for element in self.main if element[0] == "watermark"]

    def side_rows(self, tag_id: str) -> list[Any]:
        """Return the values of a side output."""
        return [element[1] for element in self.sides.get(tag_id, ())]


def _row_elements(batch: RecordBatch) -> Iterable[tuple[Any, ...]]:
    timestamps: list[int | None] = [None] * batch.num_rows
    if batch.timestamps is not None:
        timestamps = [None if ts == MIN_TIMESTAMP else ts for ts in batch.timestamps.tolist()]
    rows = batch.rows()
    assert len(rows) == len(timestamps) == batch.num_rows
    return [("row", value, timestamp) for value, timestamp in zip(rows, timestamps, strict=True)]


class OperatorHarness:
    """One open operator, with its emitted elements in `output` and its messages to its coordinator in `events`."""

    def __init__(
        self,
        spec: OperatorSpec,
        *,
        input_types: Sequence[TypeInformation] = (PICKLED,),
        output_type: TypeInformation = PICKLED,
        side_types: dict[str, TypeInformation] | None = None,
        keys: Sequence[Callable[[Any], Any] | None] = (),
        key_type: TypeInformation = PICKLED,
        output_key_type: TypeInformation | None = None,
        settings: dict[str, str] | None = None,
        parallelism: int = 1,
        subtask_index: int = 0,
        start_ms: int = 0,
        operator_name: str = "operator under test",
        create: Callable[[Any], Operator] = create_operator,
        background: Callable[[], bool] = lambda: False,
        types: OperatorTypes | None = None,
    ) -> None:
        """`keys`: one key function per input of a keyed operator, None for an input without key; empty without any.

        `background` runs a piece of background work, and returns whether there was one: it is called after each step
        until it returns False. `types` are those of a graph's node, instead of the other arguments for types.
        """
        self._keys = keys or [None] * len(input_types)
        if types is None:
            inputs = tuple(
                BatchType(value_type, None if get_key is None else key_type)
                for value_type, get_key in zip(input_types, self._keys, strict=True)
            )
            sides = {tag: BatchType(side_type) for tag, side_type in (side_types or {}).items()}
            types = OperatorTypes(inputs, BatchType(output_type, output_key_type), sides)
        self.types = types
        self.clock = ManualClock(start_ms)
        self.timers = ManualTimers(self.clock)
        self.metrics = MetricGroup(self.clock)
        self.output = RecordedOutput()
        self.events: list[bytes] = []
        # Before `open` puts handles into the functions, which are tied to the first operator.
        self._pickled_spec = _pickled(spec)
        self._settings = Settings(settings)
        self._operator_name = operator_name
        self._checkpoint_id = 0
        self.watermark_ms = MIN_TIMESTAMP
        self.mails: deque[Callable[[], None]] = deque()
        self.back_pressured_ms = 0.0
        self._create = create
        self._background = background
        self.start(spec, parallelism, subtask_index, None)

    @classmethod
    def of_program(
        cls, environment: StreamExecutionEnvironment, operator_name: str
    ) -> "OperatorHarness":
        """Return the harness of an operator with its function, types and keys from the program.

        LookupError if the program has no operator of that name, or several.
        """
        graph = environment.get_stream_graph()
        nodes = [node for node in graph.nodes if node.name == operator_name]
        if len(nodes) != 1:
            names = ", ".join(f"'{node.name}'" for node in graph.nodes)
            raise LookupError(
                f"the program has {len(nodes)} operators '{operator_name}' among {names}: give the one that you mean "
                "a unique name"
            )
        (node,) = nodes
        keys: list[Callable[[Any], Any] | None] = [None] * len(node.types.inputs)
        for edge in graph.edges_into(node.node_id):
            upstream = graph.node(edge.source_id).spec
            if isinstance(upstream, KeyBySpec):
                keys[edge.input_number] = _key_function(upstream)
        return cls(node.spec, types=node.types, keys=keys, operator_name=operator_name)

    def start(
        self,
        spec: OperatorSpec,
        parallelism: int,
        subtask_index: int,
        restored: OperatorSubtaskState | None,
    ) -> None:
        """Make and open an operator, starting with the restored state."""
        self.states = OperatorStateHandler(
            operator_name=self._operator_name,
            key_groups=key_group_range(subtask_index, parallelism, HARNESS_KEY_GROUPS),
            max_parallelism=HARNESS_KEY_GROUPS,
            types=self.types,
            settings=self._settings,
            clock=self.clock,
            restored=restored,
            restored_checkpoint_id=None if restored is None else self._checkpoint_id,
            reader=MemorySnapshots(),
        )
        self.mails.clear()
        self._is_closed = False
        self.operator: Operator = self._create(spec)
        self.context = OperatorContext(
            operator_id=OperatorId(bytes(16)),
            operator_name=self._operator_name,
            task_name="task under test",
            subtask_index=subtask_index,
            parallelism=parallelism,
            max_parallelism=HARNESS_KEY_GROUPS,
            attempt_number=0,
            types=self.types,
            settings=self._settings,
            job_parameters={},
            clock=self.clock,
            timers=self.timers,
            metrics=self.metrics,
            output=self.output,
            send_event=self.events.append,
            wake=lambda: None,
            mail=self.mails.append,
            back_pressured_ms=lambda: self.back_pressured_ms,
            state=self.states,
        )
        self.operator.open(self.context)

    def snapshot(self) -> OperatorSubtaskState:
        """Take a snapshot, as a task does at a barrier; elements emitted before it go to the output."""
        self._checkpoint_id += 1
        self.operator.prepare_snapshot_pre_barrier(self._checkpoint_id, self.output)
        committables = tuple(self.operator.snapshot_state(self._checkpoint_id))
        return snapshot(self.states, self._checkpoint_id, committables=committables)

    def restart(
        self, restored: OperatorSubtaskState | None, parallelism: int = 1, subtask_index: int = 0
    ) -> None:
        """Replace the operator by a new one that starts with `restored`, as after a failure.

        Its functions are unpickled copies: data that they keep outside of state is lost. Event time continues.
        """
        self.close()
        self.timers.forget_all()
        assert self._pickled_spec is not None, "the operator's functions cannot be pickled"
        spec: OperatorSpec = unpickle_value(self._pickled_spec)
        self.start(spec, parallelism, subtask_index, restored)
        if self.watermark_ms > MIN_TIMESTAMP:
            self.operator.process_watermark(self.watermark_ms, self.output)

    @property
    def has_keyed_inputs(self) -> bool:
        """Return whether every input has keys, so that several subtasks can share the work."""
        return bool(self.types.inputs) and all(one.key_type for one in self.types.inputs)

    def batch(self, step: Rows) -> RecordBatch:
        """Return the rows of a step as a batch, keyed if the operator's input is."""
        batch_type = self.types.inputs[step.input_number]
        timestamps = None if step.timestamps is None else np.array(step.timestamps, dtype=np.int64)
        batch = RecordBatch.of_rows(BatchType(batch_type.value_type), list(step.values), timestamps)
        key_type, get_key = batch_type.key_type, self._keys[step.input_number]
        if key_type is None or get_key is None:
            return batch
        keys = [get_key(value) for value in step.values]
        if isinstance(key_type, PickledBytesTypeInfo):
            return batch.with_keys(key_type, hash_keys(keys), keys=keys)
        array = key_values_to_array(keys, key_type)
        return batch.with_keys(key_type, hash_array(array), keys_array=array)

    def process(self, batch: RecordBatch, input_number: int = 0) -> None:
        """Feed a batch."""
        operator = self.operator
        if batch.num_rows == 0:
            return
        if isinstance(operator, TwoInputOperator):
            feed = operator.process_batch1 if input_number == 0 else operator.process_batch2
            feed(batch, self.output)
        else:
            assert isinstance(operator, OneInputOperator)
            operator.process_batch(batch, self.output)
        self.settle()

    def perform(self, step: HarnessStep) -> None:
        """Carry out one step, its rows as one batch."""
        match step:
            case Rows():
                self.process(self.batch(step), step.input_number)
            case WatermarkAt(timestamp_ms):
                self.watermark_ms = timestamp_ms
                self.operator.process_watermark(timestamp_ms, self.output)
            case TimeAt(time_ms):
                self.timers.advance_to(time_ms)
            case Idle(is_idle):
                self.operator.process_status(is_idle, self.output)
        self.settle()

    def settle(self) -> None:
        """Run mail and background work until there is none left."""
        while self.mails or self._background():
            while self.mails:
                self.mails.popleft()()

    def finish(self) -> None:
        """End all inputs: the last watermark, `end_input`, `finish` and `close`."""
        self.operator.process_watermark(MAX_WATERMARK, self.output)
        for input_number in range(len(self.types.inputs)):
            self.operator.end_input(input_number, self.output)
        self.settle()
        assert self.operator.is_drained, "the operator waits for an event that never comes"
        self.operator.finish(self.output)
        self.close()

    def close(self) -> None:
        """Close the operator, as the end of a task does. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.operator.close()

    def poll_to_end(self) -> None:
        """Poll a source operator until its input ends."""
        assert isinstance(self.operator, SourceOperator)
        while self.operator.poll(self.output) is not InputStatus.END_OF_INPUT:
            pass


def _key_function(spec: KeyBySpec) -> Callable[[Any], Any]:
    """Return the function from a row to its key."""
    if spec.selector is not None:
        return method_of(spec.selector, "get_key")
    names = spec.columns
    if len(names) == 1:
        return lambda row: row[names[0]]
    return lambda row: tuple(row[name] for name in names)


def _pickled(spec: OperatorSpec) -> bytes | None:
    try:
        return pickle_code(spec)
    except Exception:  # functions of tests that are never restarted may hold anything
        return None
