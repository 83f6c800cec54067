"""From a deployment descriptor to a task: partitions, gates, writers, environment. The one door between the planes.

Source: Flink TaskExecutor.submitTask, Task's constructor.
"""

import pickle
import traceback
from dataclasses import dataclass
from typing import Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.errors import UserCodeError
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResourceId
from headrace.core.lifecycle import ExecutionState
from headrace.core.operator_types import OperatorTypes
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType
from headrace.core.shuffle_descriptors import InputGateDescriptor, ResultPartitionDescriptor
from headrace.functions.ingest import IngestDoor
from headrace.gateways.task_executor import ResultPartitionDeployment, TaskDeploymentDescriptor
from headrace.graph.job_graph import ChainedOperator
from headrace.metrics.groups import MetricGroup
from headrace.network.gate import InputGate
from headrace.network.metrics import register_task_metrics
from headrace.network.partition import ResultPartition
from headrace.network.partitioner import create_selector
from headrace.network.record_writer import RecordWriter
from headrace.task.environment import GateInput, TaskEnvironment, TaskListener, WriterOutput
from headrace.task.runner import TaskRunner
from headrace.task.task import Task


class RunningTask(Protocol):
    """A task as the TaskExecutor sees it; `headrace.task.task.Task` is the real one."""

    @property
    def attempt_id(self) -> ExecutionAttemptId:
        """Which attempt it runs."""
        ...

    @property
    def state(self) -> ExecutionState:
        """The state last reached."""
        ...

    def start(self) -> None:
        """Begin; states are reported to the listener."""
        ...

    def cancel(self) -> None:
        """Stop as soon as possible; ends in CANCELED."""
        ...

    def fail_externally(self, error: BaseException) -> None:
        """Stop as soon as possible; ends in FAILED."""
        ...

    def deliver_operator_event(self, operator_id: OperatorId, payload: bytes) -> None:
        """Pass an event to an operator."""
        ...

    def metrics_snapshot(self) -> dict[str, float]:
        """Metrics by name."""
        ...


class TaskFactory(Protocol):
    """Makes tasks; the seam at which tests put tasks without a data plane."""

    def create(self, descriptor: TaskDeploymentDescriptor, listener: TaskListener) -> RunningTask:
        """Build everything the task needs, without starting it; user code may be imported here."""
        ...


class Shuffle(Protocol):
    """What a task needs of `headrace.network.environment.ShuffleEnvironment`."""

    def create_result_partition(self, descriptor: ResultPartitionDescriptor) -> ResultPartition:
        """Register a partition; its consumers may connect from now on."""
        ...

    def create_input_gate(
        self, descriptor: InputGateDescriptor, consumer: ExecutionAttemptId, batch_type: BatchType
    ) -> InputGate:
        """Make a gate; nothing is requested yet."""
        ...


@dataclass(frozen=True)
class StreamTaskFactory:
    """Builds real tasks on the data plane of this process. `ingest` is its door for pushed DataFrames."""

    resource_id: ResourceId
    shuffle: Shuffle
    runner: TaskRunner
    settings: Settings
    clock: Clock
    random: SeededRandom
    metrics: MetricGroup
    ingest: IngestDoor | None = None

    def create(self, descriptor: TaskDeploymentDescriptor, listener: TaskListener) -> Task:
        """See TaskFactory. Partitions come first: they have room reserved, or the task cannot run at all."""
        settings = self.settings.with_values(descriptor.settings)
        outputs: list[WriterOutput] = []
        inputs: list[GateInput] = []
        try:
            for deployment in descriptor.result_partitions:
                outputs.append(self._output(descriptor, deployment, settings))
            for gate_descriptor in descriptor.input_gates:
                batch_type = _input_type(descriptor, gate_descriptor.input_number)
                gate = self.shuffle.create_input_gate(
                    gate_descriptor, descriptor.attempt_id, batch_type
                )
                inputs.append(GateInput(gate, gate_descriptor))
        except BaseException:
            for output in outputs:
                output.writer.close()
            for gate_input in inputs:
                gate_input.gate.close()
            raise
        metrics = self._metric_group(descriptor)
        register_task_metrics(
            metrics,
            [gate_input.gate for gate_input in inputs],
            [output.writer for output in outputs],
        )
        environment = TaskEnvironment(
            attempt_id=descriptor.attempt_id,
            job_name=descriptor.job_name,
            vertex=descriptor.vertex,
            settings=settings,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            clock=self.clock,
            metrics=metrics,
            listener=listener,
            ingest=self.ingest,
        )
        return Task(environment, self.runner)

    def _output(
        self,
        descriptor: TaskDeploymentDescriptor,
        deployment: ResultPartitionDeployment,
        settings: Settings,
    ) -> WriterOutput:
        partition = self.shuffle.create_result_partition(deployment.descriptor)
        try:
            selector = create_selector(
                deployment.edge.partitioner,
                deployment.descriptor.subpartition_count,
                descriptor.attempt_id.subtask_index,
                deployment.consumer_max_parallelism,
                self.random,
                settings,
            )
        except Exception as error:
            partition.fail(None)
            source = _operator(descriptor, deployment.edge.source_operator_id)
            raise _not_loadable(error, "partitioner", source) from error
        writer = RecordWriter(
            partition, selector, deployment.edge.buffer_timeout_ms, self.clock, settings
        )
        return WriterOutput(writer, deployment.edge)

    def _metric_group(self, descriptor: TaskDeploymentDescriptor) -> MetricGroup:
        """A tree of its own, which goes when the task goes."""
        index = str(descriptor.attempt_id.subtask_index)
        scope = (*self.metrics.scope, descriptor.job_name, descriptor.vertex.name, index)
        return MetricGroup(self.clock, scope)


def _input_type(descriptor: TaskDeploymentDescriptor, input_number: int) -> BatchType:
    head = descriptor.vertex.operators[0]
    return _load_types(head).inputs[input_number]


def _load_types(operator: ChainedOperator) -> OperatorTypes:
    try:
        types = pickle.loads(operator.types_payload)
    except Exception as error:
        raise _not_loadable(error, "types", operator) from error
    assert isinstance(types, OperatorTypes)
    return types


def _not_loadable(error: Exception, what: str, operator: ChainedOperator) -> UserCodeError:
    """Most often a module with the user's classes that the driver has and this worker has not."""
    return UserCodeError(
        type(error).__name__,
        f"{error}; the {what} cannot be loaded on the worker, ship modules with --python-files",
        operator.name,
        operator.location or "unknown location",
        traceback.format_exc(),
    )


def _operator(descriptor: TaskDeploymentDescriptor, operator_id: OperatorId) -> ChainedOperator:
    return next(each for each in descriptor.vertex.operators if each.operator_id == operator_id)
