"""OperatorChain: the operators of one task, wired together and to the network.

`StateInitializer` gives each operator the state and the watermark that it starts from.
Source: Flink OperatorChain, StreamTaskStateInitializerImpl.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headrace.checkpoint.handles import (
    NO_FILE,
    OUTPUT_WATERMARK,
    WATERMARK,
    Committable,
    StateChunk,
    StateTable,
)
from headrace.checkpoint.options import RESTORE_WATERMARKS
from headrace.core.barriers import CheckpointOptions
from headrace.core.elements import MAX_WATERMARK, LatencyMarker
from headrace.core.errors import (
    UNKNOWN_LOCATION,
    RecordTypeError,
    UserCodeError,
    wrap_user_error,
)
from headrace.core.ids import OperatorId
from headrace.core.key_groups import key_group_range
from headrace.core.operator_spec import OperatorTypes
from headrace.core.process.failpoints import Failpoint, reach
from headrace.core.record_batch import RecordBatch
from headrace.graph.job_graph import ChainedOperator
from headrace.graph.pipeline_options import OBJECT_REUSE, global_job_parameters, runs_in_batch
from headrace.metrics.groups import MetricSample
from headrace.metrics.latency import LatencyStats
from headrace.metrics.names import is_of_runtime
from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS
from headrace.network.writers.record_writer import RecordWriter
from headrace.operators.registry import create_batch_operator, create_operator
from headrace.operators.runtime.operator import (
    OneInputOperator,
    Operator,
    OperatorContext,
    SourceOperator,
)
from headrace.operators.runtime.user_code import user_error
from headrace.state.backend import FrozenState
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.task.chain.operator_io import operator_io_groups, register_fired_timers
from headrace.task.chain.outputs import (
    ChainedTarget,
    ChainEnd,
    NetworkTarget,
    OperatorOutput,
    PacedTarget,
    RowsWanted,
    Target,
    WrittenTarget,
)
from headrace.task.chain.queryable_state import ReadOperator
from headrace.task.environment import TaskEnvironment
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import TaskCounters
from headrace.task.paced_rows import PacedRows


class StateInitializer:
    """Restores the states and watermarks of a task's operators. The task's thread only."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment: Final = environment

    def states_of(self, operator: ChainedOperator, types: OperatorTypes) -> OperatorStateHandler:
        """Return the states of an operator for its key groups, restored or empty."""
        environment, operator_id = self._environment, operator.operator_id
        vertex, restore = environment.vertex, environment.restore
        if restore is not None and operator_id not in restore.operators:
            # New in the program: a source, for example, must start anew instead of resuming without splits.
            restore = None
        subtask_index = environment.attempt_id.subtask_index
        return OperatorStateHandler(
            operator_name=operator.name,
            key_groups=key_group_range(subtask_index, vertex.parallelism, vertex.max_parallelism),
            max_parallelism=vertex.max_parallelism,
            types=types,
            settings=environment.settings,
            clock=environment.clock,
            restored=None if restore is None else restore.state_of(operator_id),
            restored_checkpoint_id=None if restore is None else restore.checkpoint_id,
            reader=None if restore is None else environment.snapshots.reader(),
            scratch=str(environment.scratch or ""),
        )

    def watermarks_of(self, operator_id: OperatorId) -> Iterator[tuple[int, int]]:
        """Return the stored watermarks of an operator and its output; none if the settings disable it."""
        restore = self._environment.restore
        if restore is None or not self._environment.settings.get_option(RESTORE_WATERMARKS):
            return
        for chunk in restore.state_of(operator_id).chunks:
            if chunk.table is StateTable.WATERMARKS:
                attributes = chunk.attributes
                yield int(attributes[WATERMARK]), int(attributes[OUTPUT_WATERMARK])


def watermark_chunk(watermark: int, output_watermark: int) -> StateChunk:
    """Return a chunk with the watermarks of an operator and of its output, in epoch milliseconds."""
    attributes = {WATERMARK: str(watermark), OUTPUT_WATERMARK: str(output_watermark)}
    return StateChunk(StateTable.WATERMARKS, "", 0, NO_FILE, None, attributes)


@dataclass(frozen=True)
class FrozenOperator:
    """Frozen states of one operator, and its prepared effects."""

    operator_id: OperatorId
    states: Sequence[FrozenState]
    watermarks: StateChunk
    committables: Sequence[Committable]


class OperatorChain:
    """Builds, opens, finishes and closes the operators of a vertex.

    The task feeds `head`; all other operators are reached through outputs. `types` and `specs` belong to the
    vertex's operators, `writers` to the environment's outputs, in their order.
    """

    def __init__(
        self,
        environment: TaskEnvironment,
        types: Sequence[OperatorTypes],
        specs: Sequence[Any],
        writers: Sequence[RecordWriter],
        timers: MailboxTimers,
        counters: TaskCounters,
        mailbox: Mailbox,
        back_pressured_ms: Callable[[], float],
    ) -> None:
        self._environment = environment
        self._initializer = StateInitializer(environment)
        self._timers = timers
        self._counters = counters
        self._mailbox = mailbox
        self._back_pressured_ms = back_pressured_ms
        self._takes_mail = True
        vertex = environment.vertex
        self._described = {operator.operator_id: operator for operator in vertex.operators}
        ids = [operator.operator_id for operator in vertex.operators]
        self._types = dict(zip(ids, types, strict=True))
        is_batch = runs_in_batch(environment.settings)
        create = create_batch_operator if is_batch else create_operator
        self._operators: dict[OperatorId, Operator] = {
            operator_id: create(spec) for operator_id, spec in zip(ids, specs, strict=True)
        }
        # Checked before each batch; most operators always take input.
        self._refusing = [
            operator
            for operator in self._operators.values()
            if type(operator).can_take_input is not Operator.can_take_input
        ]
        self._outputs = _create_outputs(environment, mailbox)
        self._metrics = {
            operator.operator_id: environment.metrics.add_group(operator.name)
            for operator in vertex.operators
        }
        self._io = operator_io_groups(
            vertex, self._operators, self._outputs, counters, environment.clock
        )
        register_fired_timers(environment.metrics, self._operators.values())
        self._latencies = _create_latencies(environment)
        self._states: dict[OperatorId, OperatorStateHandler] = {}
        self._paced: list[PacedRows] = []
        restore = environment.restore
        self.is_finished = restore is not None and restore.is_finished
        """True if the operators had finished in the restored checkpoint, so that none is opened again."""
        self.head_id = vertex.operators[0].operator_id
        self._end = ChainEnd(
            [(operator, self._outputs[key]) for key, operator in self._operators.items()]
        )
        self._wire(writers)
        self._wanted = [RowsWanted(writer, self.head_output) for writer in writers]

    @property
    def head(self) -> Operator:
        """Operator that the task feeds."""
        return self._operators[self.head_id]

    @property
    def head_output(self) -> OperatorOutput:
        """Output of the head operator."""
        return self._outputs[self.head_id]

    def send_to(
        self,
        operator_id: OperatorId,
        write: Callable[[RecordBatch], None],
        side_output_tag: str | None = None,
    ) -> None:
        """Also pass an operator's output to `write`. Call before `open`."""
        blame = self._blame_record(self._described[operator_id])
        self._outputs[operator_id].add_target(WrittenTarget(write, blame), side_output_tag)

    def prepared_effects(self, checkpoint_id: int) -> dict[OperatorId, Sequence[Committable]]:
        """Return the effects of sinks to commit after `finish`, if no checkpoint carries them."""
        return {
            described.operator_id: self._operators[described.operator_id].snapshot_state(
                checkpoint_id
            )
            for described in self._environment.vertex.operators
            if described.committer
        }

    @property
    def is_per_record(self) -> bool:
        """True if user code of the chain sees records one by one."""
        return any(operator.is_per_record for operator in self._operators.values())

    @property
    def is_amid_batch(self) -> bool:
        """True while a batch of the source at the head is not fully processed."""
        return any(rows.is_amid_batch for rows in self._paced)

    def go_on_with_batch(self) -> None:
        """Process the next part of the current batch."""
        for rows in self._paced:
            if rows.is_amid_batch:
                rows.go_on()

    def rows_wanted(self) -> int:
        """Return the most rows that a source at the head should emit at once; a checkpoint waits for emitted rows."""
        limits = [wanted.rows() for wanted in self._wanted]
        limits += [rows.rows_wanted for rows in self._paced]
        return min(limits, default=UNLIMITED_ROWS)

    def open(self) -> None:
        """Open from tail to head, so that none emits into an operator that is not open, then restore watermarks."""
        if self.is_finished:
            return
        for described in reversed(self._environment.vertex.operators):
            operator = self._operators[described.operator_id]
            operator.open(self._context(described))
            if self._environment.restore is not None:
                reach(Failpoint.RESTORE_HALF)
        self._restore_watermarks()

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """Let every operator emit rows that belong before the barrier, head to tail."""
        for operator_id, operator in self._operators.items():
            operator.prepare_snapshot_pre_barrier(checkpoint_id, self._outputs[operator_id])

    def emit_held(self) -> None:
        """Let every operator emit the rows that it holds back, head to tail, before the end of the data."""
        for operator_id, operator in self._operators.items():
            operator.emit_held(self._outputs[operator_id])

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> list[FrozenOperator]:
        """Freeze the operators' states for a checkpoint, tail to head; the synchronous part."""
        frozen: list[FrozenOperator] = []
        for described in reversed(self._environment.vertex.operators):
            operator_id = described.operator_id
            operator = self._operators[operator_id]
            committables = operator.snapshot_state(checkpoint_id)
            states = self._states[operator_id].freeze(checkpoint_id, options)
            output_watermark = self._outputs[operator_id].watermark
            watermarks = watermark_chunk(operator.current_watermark, output_watermark)
            frozen.append(FrozenOperator(operator_id, states, watermarks, committables))
        return frozen

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Record that a checkpoint is published."""
        for operator_id, states in self._states.items():
            states.checkpoint_completed(checkpoint_id)
            self._operators[operator_id].notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Record that a checkpoint failed."""
        for operator_id, states in self._states.items():
            states.checkpoint_aborted(checkpoint_id)
            self._operators[operator_id].notify_checkpoint_aborted(checkpoint_id)

    def _restore_watermarks(self) -> None:
        """Restore the watermarks of operators and outputs, so that records are late as before the checkpoint.

        Head to tail: a watermark of the head reaches the operators behind it, and their own follow. No timer is due:
        those had fired before the checkpoint.
        """
        for operator_id, operator in self._operators.items():
            for watermark, output_watermark in self._initializer.watermarks_of(operator_id):
                output = self._outputs[operator_id]
                if operator.current_watermark < watermark < MAX_WATERMARK:
                    operator.process_watermark(watermark, output)
                if output_watermark < MAX_WATERMARK:
                    output.emit_watermark(output_watermark)

    def end_head_input(self, input_number: int) -> None:
        """Tell the head that one of its inputs has ended."""
        self.head.end_input(input_number, self.head_output)

    @property
    def can_take_input(self) -> bool:
        """True if every operator can take input."""
        return all(operator.can_take_input for operator in self._refusing)

    def finish(self) -> bool:
        """Let every operator emit its remaining rows, after MAX_WATERMARK.

        Returns False if an operator still waits for results; call again when the task was woken.
        """
        return self._end.proceed()

    def stop_mail(self) -> None:
        """Drop further mail of operators to themselves, because no rows may follow.

        If the data ended without a drain, the work of such mail is in the states, and so in the savepoint.
        """
        self._takes_mail = False

    def emit_end_of_time(self) -> None:
        """Send the last watermark from the head. Only for sources; other tasks receive it."""
        self.head_output.emit_watermark(MAX_WATERMARK)

    def pass_latency_marker(self, operator_id: OperatorId, marker: LatencyMarker) -> None:
        """Report the age of a marker that reaches an operator, and send it on from there."""
        self._latencies[operator_id].report(marker, self._environment.clock.now_ms())
        self._outputs[operator_id].emit_latency_marker(marker)

    def close(self) -> None:
        """Close every operator, even after errors; the first error is raised at the end."""
        first_error: BaseException | None = None
        for closed in (*self._operators.values(), *self._states.values()):
            try:
                closed.close()
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def deliver_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Pass an event of a coordinator to its operator."""
        self._operators[operator_id].handle_event(payload)

    def read_operator(self, operator_id: OperatorId) -> ReadOperator:
        """Return an operator for readers of its state."""
        return ReadOperator(self._operators[operator_id], self._states.get(operator_id))

    def metrics_snapshot(self) -> dict[str, float]:
        """Return the metrics of each operator as `<operator name>.<metric>`, and their latencies by operator id."""
        values: dict[str, float] = LatencyStats.snapshot_of(self._environment.metrics)
        for described in self._environment.vertex.operators:
            # The user's own metrics win if they have the name of a runtime metric.
            for group in (self._io[described.operator_id], self._metrics[described.operator_id]):
                for name, value in group.snapshot().items():
                    values[f"{described.name}.{name}"] = value
        return values

    def user_counters(self) -> tuple[str, ...]:
        """Return the names of counters in `metrics_snapshot` that user functions created."""
        return tuple(
            f"{described.name}.{name}"
            for described in self._environment.vertex.operators
            for name in self._metrics[described.operator_id].counters()
            if not is_of_runtime(name)
        )

    def metric_samples(self) -> dict[OperatorId, list[MetricSample]]:
        """Return the metrics of each operator by its id."""
        return {
            operator_id: [*self._io[operator_id].samples(), *group.samples()]
            for operator_id, group in self._metrics.items()
        }

    def blame(self, error: UserCodeError) -> UserCodeError:
        """Return `error`, with its operator's location if the traceback has none."""
        if error.location != UNKNOWN_LOCATION:
            return error
        for described in self._described.values():
            if described.name == error.operator_name and described.location:
                return error.at(described.location)
        return error

    @property
    def _paces_source(self) -> bool:
        """True if a source's batches are passed on in parts; batches of a gate are split before the head.

        In BATCH mode no mail waits for the task between two parts.
        """
        is_paced = self.is_per_record and not runs_in_batch(self._environment.settings)
        return isinstance(self.head, SourceOperator) and is_paced

    def _wire(self, writers: Sequence[RecordWriter]) -> None:
        for edge in self._environment.vertex.chain_edges:
            operator = self._operators[edge.target_id]
            assert isinstance(operator, OneInputOperator)
            target: Target = ChainedTarget(
                operator,
                self._outputs[edge.target_id],
                partial(self.pass_latency_marker, edge.target_id),
            )
            if edge.source_id == self.head_id and self._paces_source:
                target = PacedTarget(target, self._environment.clock)
                self._paced.append(target.rows)
            self._outputs[edge.source_id].add_target(target, edge.side_output_tag)
        for output, writer in zip(self._environment.outputs, writers, strict=True):
            source_id = output.edge.source_operator_id
            is_blocking = output.edge.result_type.traits.is_blocking
            target = NetworkTarget(
                writer,
                self._timers,
                self._counters,
                self._blame_record(self._described[source_id]),
                # The storage time of a result before its consumers start is no latency.
                None if is_blocking else self._environment.random,
            )
            self._outputs[source_id].add_target(target, output.edge.side_output_tag)

    def _context(self, described: ChainedOperator) -> OperatorContext:
        environment = self._environment
        operator_id = described.operator_id

        def send_event(payload: bytes) -> None:
            environment.listener.operator_event(environment.attempt_id, operator_id, payload)

        states = self._states[operator_id] = self._initializer.states_of(
            described, self._types[operator_id]
        )
        return OperatorContext(
            state=states,
            operator_id=operator_id,
            operator_name=described.name,
            task_name=environment.vertex.name,
            subtask_index=environment.attempt_id.subtask_index,
            parallelism=environment.vertex.parallelism,
            max_parallelism=environment.vertex.max_parallelism,
            attempt_number=environment.attempt_id.attempt_number,
            types=self._types[operator_id],
            settings=environment.settings,
            job_parameters=global_job_parameters(environment.settings),
            clock=environment.clock,
            timers=self._timers,
            metrics=self._metrics[operator_id],
            output=self._outputs[operator_id],
            send_event=send_event,
            wake=self._mailbox.wake,
            ingest=environment.ingest,
            external_resources=environment.external_resources,
            attempt_id=environment.attempt_id,
            mail=self._mail,
            back_pressured_ms=self._back_pressured_ms,
            rows_wanted=self.rows_wanted,
        )

    def _mail(self, call: Callable[[], None]) -> bool:
        return self._mailbox.put(lambda: call() if self._takes_mail else None)

    @staticmethod
    def _blame_record(described: ChainedOperator) -> Callable[[BaseException], BaseException]:
        def blame(error: BaseException) -> BaseException:
            if not isinstance(error, RecordTypeError):
                return user_error(error, described.name)
            return wrap_user_error(error, described.name, described.location, with_traceback=False)

        return blame


def _create_outputs(
    environment: TaskEnvironment, mailbox: Mailbox
) -> dict[OperatorId, OperatorOutput]:
    return {
        operator.operator_id: OperatorOutput(
            mailbox.check_interrupted,
            reuses_objects=environment.settings.get_option(OBJECT_REUSE),
            random=environment.random,
            is_batch=runs_in_batch(environment.settings),
        )
        for operator in environment.vertex.operators
    }


def _create_latencies(environment: TaskEnvironment) -> dict[OperatorId, LatencyStats]:
    return {
        operator.operator_id: LatencyStats(
            environment.metrics,
            operator.operator_id,
            environment.attempt_id.subtask_index,
            environment.settings,
        )
        for operator in environment.vertex.operators
    }
