"""All that a task is given: who it is, its chain, its gates and partitions, its clock and its listener.

Nothing here was unpickled: what only user code can tell (types, partitioners, functions) the task loads itself.

Built by `cluster/task_executor/deployment`, the one place that knows both planes. Source: Flink Environment.
"""

from dataclasses import dataclass
from typing import Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, OperatorId, ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import InputGateDescriptor
from headrace.functions.ingest import IngestDoor
from headrace.graph.job_graph import JobEdge, JobVertex
from headrace.metrics.groups import MetricGroup
from headrace.network.partition import ResultPartition
from headrace.network.producer_check import AnswerVerdict
from headrace.network.single_input_gate import SingleInputGate


class TaskListener(Protocol):
    """How a task reports; every method may be called from any thread."""

    def state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        """The task reached `state`; `error` is set for FAILED."""
        ...

    def operator_event(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes
    ) -> None:
        """An operator speaks to its coordinator. Order per operator is kept."""
        ...

    def check_producer(
        self,
        attempt_id: ExecutionAttemptId,
        partition_id: ResultPartitionId,
        answer: AnswerVerdict,
    ) -> None:
        """The task cannot find a partition: ask the scheduler what its producer does. Answered on any thread."""
        ...


@dataclass(frozen=True)
class GateInput:
    """A gate and what it reads."""

    gate: SingleInputGate
    descriptor: InputGateDescriptor


@dataclass(frozen=True)
class PartitionOutput:
    """A partition and the edge it serves. `consumer_max_parallelism` is what HASH partitioning needs to know."""

    partition: ResultPartition
    edge: JobEdge
    consumer_max_parallelism: int


@dataclass(frozen=True)
class TaskEnvironment:
    """Surroundings of one attempt of one subtask. `ingest` is the TaskManager's door for pushed DataFrames."""

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
