"""TaskEnvironment: the inputs of a task, such as its ids, chain, gates, partitions, clock and listener.

Nothing in it is unpickled: the task itself loads types, partitioners and functions (`user_payloads`).
`cluster/task_executor/deployment` builds it. Source: Flink Environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, Protocol

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, SubtaskRestore, TaskStateSnapshot
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import InputGateDescriptor
from headrace.core.threads import BlockingStarter, start_thread
from headrace.functions.ingest import IngestDoor
from headrace.graph.job_graph import JobEdge, JobVertex
from headrace.metrics.groups import MetricGroup
from headrace.network.gates.partition_requests import AnswerVerdict
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.network.partitions.result_partition import ResultPartition


class TaskListener(Protocol):
    """Receives the reports of a task. Every method may be called from any thread."""

    def state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        """Report that the task reached `state`; `error` is set for FAILED."""
        ...

    def operator_event(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes
    ) -> None:
        """Send an operator's event to its coordinator, in order per operator."""
        ...

    def checkpoint_acknowledged(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        """Report that the task's part of a checkpoint is stored, after all earlier operator events."""
        ...

    def checkpoint_declined(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        text: str,
    ) -> None:
        """Report that the task does not take part in a checkpoint."""
        ...

    def data_ended(self, attempt_id: ExecutionAttemptId) -> None:
        """Report that all operators have finished; the task stays for the final checkpoint."""
        ...

    def check_producer(
        self,
        attempt_id: ExecutionAttemptId,
        partition_id: ResultPartitionId,
        answer: AnswerVerdict,
    ) -> None:
        """Ask the scheduler for the state of a partition's producer that was not found.

        `answer` is called on any thread.
        """
        ...


class SnapshotStorage(Protocol):
    """Writes and reads the files of checkpoints."""

    def writer(self, options: CheckpointOptions, name_prefix: str) -> SnapshotWriter:
        """Return a writer for one subtask's part of one checkpoint; file names begin with `name_prefix`."""
        ...

    def reader(self) -> SnapshotReader:
        """Return a reader of all files that a restored checkpoint refers to."""
        ...


@dataclass(frozen=True)
class GateInput:
    """A gate and the descriptor of its input."""

    gate: SingleInputGate
    descriptor: InputGateDescriptor


@dataclass(frozen=True)
class PartitionOutput:
    """A partition and the edge it serves. `consumer_max_parallelism` is used by HASH partitioning."""

    partition: ResultPartition
    edge: JobEdge
    consumer_max_parallelism: int


class _NoSnapshots:
    """Storage of tasks that never take a checkpoint."""

    def writer(self, options: CheckpointOptions, name_prefix: str) -> NoReturn:
        raise AssertionError("this task has no checkpoint storage")

    def reader(self) -> NoReturn:
        raise AssertionError("this task has no checkpoint storage")


NO_SNAPSHOTS: Final[SnapshotStorage] = _NoSnapshots()


@dataclass(frozen=True)
class TaskEnvironment:
    """Surroundings of one attempt of one subtask. `ingest` accepts pushed DataFrames for the TaskManager.

    `restore`: state that the attempt starts from. `scratch`: a directory of this process for local files of state, or
    None. `external_resources`: addresses by name of the resources of its slot.
    """

    attempt_id: ExecutionAttemptId
    job_name: str
    vertex: JobVertex
    settings: Settings
    inputs: tuple[GateInput, ...]
    outputs: tuple[PartitionOutput, ...]
    clock: Clock
    random: SeededRandom
    metrics: MetricGroup
    listener: TaskListener
    ingest: IngestDoor | None = None
    restore: SubtaskRestore | None = None
    snapshots: SnapshotStorage = NO_SNAPSHOTS
    run_blocking: BlockingStarter = start_thread
    scratch: Path | None = None
    external_resources: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
