"""Deployment: makes a task, with its partitions, gates and environment, from a deployment descriptor.

This is the only link between the control plane and the data plane. Nothing is unpickled here: user code is loaded by
the task that runs it. Source: Flink TaskExecutor.submitTask, Task's constructor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headrace.checkpoint.handles import CheckpointProgress
from headrace.checkpoint.options import LOCAL_BACKUP, RECOVERY_FROM_LOCAL
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.checkpoint.storage.subtask_storage import StateReader, SubtaskStorage
from headrace.cluster.task_executor.task_local_state import (
    CopiesFirstReader,
    CopyingWriter,
    TaskLocalState,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResourceId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.threads import BlockingStarter, ThreadIds, start_thread
from headrace.functions.ingest import IngestDoor
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import VertexPayloads
from headrace.metrics.groups import MetricGroup
from headrace.network.shuffle_environment import ShuffleEnvironment
from headrace.task.chain.queryable_state import StateRead
from headrace.task.environment import (
    GateInput,
    PartitionOutput,
    TaskEnvironment,
    TaskListener,
)
from headrace.task.metrics import TaskSamples
from headrace.task.task import Task
from headrace.task.task_runner import TaskRunner


class CheckpointFiles:
    """Checkpoint files of a task: written at the URIs that each checkpoint names, and read for its restore.

    Implements SnapshotStorage. `settings` are the job's over the TaskManager's; `copies` are on the TaskManager's disk.
    """

    def __init__(
        self, settings: Settings, task: ExecutionAttemptId, copies: TaskLocalState | None = None
    ) -> None:
        self._settings: Final = settings
        self._task: Final = task
        self._copies: Final = copies

    def writer(self, options: CheckpointOptions, name_prefix: str) -> SnapshotWriter:
        writer = SubtaskStorage(options, name_prefix, self._settings)
        if self._copies is None or not self._settings.get_option(LOCAL_BACKUP):
            return writer
        return CopyingWriter(writer, self._copies, self._task)

    def reader(self) -> SnapshotReader:
        reader = StateReader()
        if self._copies is None or not self._settings.get_option(RECOVERY_FROM_LOCAL):
            return reader
        return CopiesFirstReader(reader, self._copies, self._task)


class RunningTask(Protocol):
    """Task as seen by the TaskExecutor; `headrace.task.task.Task` implements it."""

    @property
    def attempt_id(self) -> ExecutionAttemptId:
        """Id of the attempt that the task runs."""
        ...

    @property
    def state(self) -> ExecutionState:
        """State that the task has reached."""
        ...

    @property
    def thread_ids(self) -> ThreadIds | None:
        """Ids of the thread that runs the task, or None before it starts."""
        ...

    def start(self) -> None:
        """Start the task; it reports states to the listener."""
        ...

    def deliver_payloads(self, payloads: VertexPayloads) -> None:
        """Deliver payloads that the descriptor only named; the task waits for them."""
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

    def checkpoint_progress(self, checkpoint_id: int) -> CheckpointProgress | None:
        """Return the task's progress with a checkpoint, or None if it is not running yet."""
        ...

    def trigger_checkpoint(
        self, checkpoint_id: int, timestamp_ms: int, options: CheckpointOptions
    ) -> None:
        """Start a checkpoint at this task."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the task that the checkpoint is published."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """Notify the task that the checkpoint was aborted."""
        ...

    def read_state(self, read: StateRead) -> None:
        """Start to read the state of an operator; a task that ends meanwhile may leave the read without an answer."""
        ...

    def metrics_snapshot(self) -> dict[str, float]:
        """Return the metrics by name."""
        ...

    def user_counters(self) -> tuple[str, ...]:
        """Return the names of counters in `metrics_snapshot` that user functions created."""
        ...

    def metric_samples(self) -> TaskSamples:
        """Return the same metrics, separated by operator."""
        ...


class TaskFactory(Protocol):
    """Makes tasks; tests replace it to use tasks without a data plane."""

    def create(
        self,
        descriptor: TaskDeploymentDescriptor,
        listener: TaskListener,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> RunningTask:
        """Build a task without starting it and without loading any user code.

        `external_resources`: addresses of the slot's resources, by name.
        """
        ...


@dataclass(frozen=True)
class StreamTaskFactory:
    """Builds tasks on the data plane of this process. `ingest` accepts pushed DataFrames."""

    resource_id: ResourceId
    shuffle: ShuffleEnvironment
    runner: TaskRunner
    settings: Settings
    clock: Clock
    random: SeededRandom
    metrics: MetricGroup
    ingest: IngestDoor | None = None
    run_blocking: BlockingStarter = start_thread
    scratch: Path | None = None
    local_copies: TaskLocalState | None = None

    def create(
        self,
        descriptor: TaskDeploymentDescriptor,
        listener: TaskListener,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Task:
        """Build a task, starting with its result partitions, whose memory must be reserved for the task to run."""
        outputs: list[PartitionOutput] = []
        inputs: list[GateInput] = []
        try:
            for deployment in descriptor.result_partitions:
                partition = self.shuffle.create_result_partition(deployment.descriptor)
                outputs.append(
                    PartitionOutput(partition, deployment.edge, deployment.consumer_max_parallelism)
                )
            for gate_descriptor in descriptor.input_gates:
                gate = self.shuffle.create_input_gate(gate_descriptor, descriptor.attempt_id)
                inputs.append(GateInput(gate, gate_descriptor))
        except BaseException:
            for output in outputs:
                output.partition.fail(None)
            for gate_input in inputs:
                gate_input.gate.close()
            raise
        settings = self.settings.with_values(descriptor.settings)
        environment = TaskEnvironment(
            attempt_id=descriptor.attempt_id,
            job_name=descriptor.job_name,
            vertex=descriptor.vertex,
            settings=settings,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            clock=self.clock,
            random=self.random,
            metrics=self._metric_group(descriptor),
            listener=listener,
            ingest=self.ingest,
            restore=descriptor.restore,
            snapshots=CheckpointFiles(settings, descriptor.attempt_id, self.local_copies),
            run_blocking=self.run_blocking,
            scratch=self.scratch,
            external_resources=external_resources or {},
        )
        return Task(environment, self.runner, inline_payloads(descriptor))

    def _metric_group(self, descriptor: TaskDeploymentDescriptor) -> MetricGroup:
        """Return a metric tree of its own, which is dropped with the task."""
        index = str(descriptor.attempt_id.subtask_index)
        scope = (*self.metrics.scope, descriptor.job_name, descriptor.vertex.name, index)
        return MetricGroup(self.clock, scope)


def inline_payloads(descriptor: TaskDeploymentDescriptor) -> VertexPayloads | None:
    """Return the payloads in the descriptor; None if it names a blob, or files that must be fetched first."""
    if descriptor.vertex.payloads is not None or descriptor.artifacts:
        return None
    edges = tuple(deployment.edge for deployment in descriptor.result_partitions)
    return VertexPayloads.of(descriptor.vertex, edges)
