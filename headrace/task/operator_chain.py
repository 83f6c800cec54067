"""OperatorChain: the operators of one task, wired together and to the network. Source: Flink OperatorChain."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import RecordTypeError, UserCodeError
from headrace.core.ids import OperatorId
from headrace.core.operator_types import OperatorTypes
from headrace.graph.job_graph import ChainedOperator
from headrace.graph.pipeline_options import OBJECT_REUSE, global_job_parameters
from headrace.network.record_writer import RecordWriter
from headrace.operators.operator import OneInputOperator, Operator, OperatorContext
from headrace.operators.registry import create_operator
from headrace.operators.user_code import user_error
from headrace.task.environment import TaskEnvironment
from headrace.task.mailbox import Mailbox, MailboxTimers
from headrace.task.metrics import TaskCounters
from headrace.task.outputs import ChainedTarget, NetworkTarget, OperatorOutput, finish_in_order
from headrace.task.user_payloads import UNKNOWN_LOCATION


class OperatorChain:
    """Builds, opens, finishes and closes the operators of a vertex.

    `head` is fed by the task; everything behind it is reached through outputs. `types` and `specs` belong to the
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
    ) -> None:
        self._environment = environment
        self._timers = timers
        self._counters = counters
        self._mailbox = mailbox
        vertex = environment.vertex
        self._described = {operator.operator_id: operator for operator in vertex.operators}
        ids = [operator.operator_id for operator in vertex.operators]
        self._types = dict(zip(ids, types, strict=True))
        self._operators: dict[OperatorId, Operator] = {
            operator_id: create_operator(spec) for operator_id, spec in zip(ids, specs, strict=True)
        }
        self._outputs = {
            operator.operator_id: OperatorOutput(
                mailbox.check_interrupted,
                reuses_objects=environment.settings.get_option(OBJECT_REUSE),
            )
            for operator in vertex.operators
        }
        self._metrics = {
            operator.operator_id: environment.metrics.add_group(operator.name)
            for operator in vertex.operators
        }
        self.head_id = vertex.operators[0].operator_id
        self._wire(writers)

    @property
    def head(self) -> Operator:
        """The operator that the task feeds."""
        return self._operators[self.head_id]

    @property
    def head_output(self) -> OperatorOutput:
        """The head's output."""
        return self._outputs[self.head_id]

    def open(self) -> None:
        """Open from tail to head, so that nobody emits into an operator that is not open."""
        for described in reversed(self._environment.vertex.operators):
            operator = self._operators[described.operator_id]
            operator.open(self._context(described))

    def end_head_input(self, input_number: int) -> None:
        """Tell the head that one of its inputs has ended."""
        self.head.end_input(input_number, self.head_output)

    def finish(self) -> None:
        """Let every operator emit what it still holds; MAX_WATERMARK went through before."""
        finish_in_order(
            [
                (self._operators[operator.operator_id], self._outputs[operator.operator_id])
                for operator in self._environment.vertex.operators
            ]
        )

    def emit_end_of_time(self) -> None:
        """Send the last watermark from the head (sources; others receive it)."""
        self.head_output.emit_watermark(MAX_WATERMARK)

    def close(self) -> None:
        """Close every operator, whatever the others do; the first error is raised at the end."""
        first_error: BaseException | None = None
        for operator in self._operators.values():
            try:
                operator.close()
            except Exception as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def deliver_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Hand an event of a coordinator to its operator."""
        self._operators[operator_id].handle_event(payload)

    def metrics_snapshot(self) -> dict[str, float]:
        """Return the metrics of each operator as `<operator name>.<metric>`."""
        values: dict[str, float] = {}
        for described in self._environment.vertex.operators:
            group = self._metrics[described.operator_id]
            for name, value in group.snapshot().items():
                values[f"{described.name}.{name}"] = value
        return values

    def blame(self, error: UserCodeError) -> UserCodeError:
        """Return `error` with the location of its operator's function where the traceback held none."""
        if error.location != UNKNOWN_LOCATION:
            return error
        for described in self._described.values():
            if described.name == error.operator_name and described.location:
                return UserCodeError(
                    error.cause_type,
                    error.cause_text,
                    error.operator_name,
                    described.location,
                    error.remote_traceback,
                )
        return error

    def _wire(self, writers: Sequence[RecordWriter]) -> None:
        for edge in self._environment.vertex.chain_edges:
            operator = self._operators[edge.target_id]
            assert isinstance(operator, OneInputOperator)
            target = ChainedTarget(operator, self._outputs[edge.target_id])
            self._outputs[edge.source_id].add_target(target, edge.side_output_tag)
        for output, writer in zip(self._environment.outputs, writers, strict=True):
            source_id = output.edge.source_operator_id
            target = NetworkTarget(
                writer,
                self._timers,
                self._counters,
                self._blame_record(self._described[source_id]),
            )
            self._outputs[source_id].add_target(target, output.edge.side_output_tag)

    def _context(self, described: ChainedOperator) -> OperatorContext:
        environment = self._environment
        operator_id = described.operator_id

        def send_event(payload: bytes) -> None:
            environment.listener.operator_event(environment.attempt_id, operator_id, payload)

        return OperatorContext(
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
            attempt_id=environment.attempt_id,
        )

    @staticmethod
    def _blame_record(described: ChainedOperator) -> Callable[[BaseException], BaseException]:
        def blame(error: BaseException) -> BaseException:
            if not isinstance(error, RecordTypeError):
                return user_error(error, described.name)
            return UserCodeError(
                type(error).__name__,
                str(error),
                described.name,
                described.location or UNKNOWN_LOCATION,
                "",
            )

        return blame
