"""Deployment: makes a task, with its partitions, gates and environment, from a deployment descriptor.

This is the one door between the control plane and the data plane. Nothing is unpickled here: user code is loaded by the
task that runs it. Source: Flink TaskExecutor.submitTask, Task's constructor.
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
    """Files to which a task writes its parts of checkpoints, at the URIs that each names, and from which it restores.

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
    """A task as the TaskExecutor sees it; `headrace.task.task.Task` is the real one."""

    @property
    def attempt_id(self) -> ExecutionAttemptId:
        """Return the id of the attempt that the task runs."""
        ...

    @property
    def state(self) -> ExecutionState:
        """The state last reached."""
        ...

    @property
    def thread_ids(self) -> ThreadIds | None:
        """Return the names of the thread that runs the task, or None before it does."""
        ...

    def start(self) -> None:
        """Begin; states are reported to the listener."""
        ...

    def deliver_payloads(self, payloads: VertexPayloads) -> None:
        """Hand over what the descriptor only named; the task waits for it."""
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
        """Return the task's progress with a checkpoint; None if it does not run yet."""
        ...

    def trigger_checkpoint(
        self, checkpoint_id: int, timestamp_ms: int, options: CheckpointOptions
    ) -> None:
        """Begin a checkpoint here."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is published."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """The checkpoint was aborted."""
        ...

    def read_state(self, read: StateRead) -> None:
        """Begin to read the state of an operator; a task that ends meanwhile may leave it without an answer."""
        ...

    def metrics_snapshot(self) -> dict[str, float]:
        """Metrics by name."""
        ...

    def user_counters(self) -> tuple[str, ...]:
        """Return the names, among those of the snapshot, of counters that functions of the user's made."""
        ...

    def metric_samples(self) -> TaskSamples:
        """Return the same metrics, those of each operator apart."""
        ...


class TaskFactory(Protocol):
    """Makes tasks; the seam at which tests put tasks without a data plane."""

    def create(
        self,
        descriptor: TaskDeploymentDescriptor,
        listener: TaskListener,
        external_resources: Mapping[str, tuple[str, ...]] | None = None,
    ) -> RunningTask:
        """Build what the task needs, without starting it, and without loading any user code.

        `external_resources`: the addresses that its slot has of each.
        """
        ...


@dataclass(frozen=True)
class StreamTaskFactory:
    """Builds real tasks on the data plane of this process. `ingest` is its door for pushed DataFrames."""

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
        """Build a task, its result partitions first: room is reserved for them, or the task cannot run at all."""
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
        """A tree of its own, which goes when the task goes."""
        index = str(descriptor.attempt_id.subtask_index)
        scope = (*self.metrics.scope, descriptor.job_name, descriptor.vertex.name, index)
        return MetricGroup(self.clock, scope)


def inline_payloads(descriptor: TaskDeploymentDescriptor) -> VertexPayloads | None:
    """The payloads that came with the descriptor; None where it names a blob, or files that must be there before."""
    if descriptor.vertex.payloads is not None or descriptor.artifacts:
        return None
    edges = tuple(deployment.edge for deployment in descriptor.result_partitions)
    return VertexPayloads.of(descriptor.vertex, edges)
