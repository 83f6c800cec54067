"""Runs a whole JobGraph in this process without a cluster: real tasks in threads over local channels."""

import sys
import threading
from dataclasses import dataclass, field

from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.cluster.task_executor.deployment import StreamTaskFactory
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.ids import (
    AllocationId,
    BlobKey,
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    OperatorId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import (
    InputChannelDescriptor,
    InputGateDescriptor,
    ResultPartitionDescriptor,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.gateways.task_executor import ResultPartitionDeployment, TaskDeploymentDescriptor
from headrace.graph.execution_graph import ExecutionGraph, expand
from headrace.graph.job_graph import JobGraph, VertexPayloads, offload
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.stream_graph import StreamGraph
from headrace.metrics.groups import MetricGroup
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.gates.partition_requests import AnswerVerdict, ProducerVerdict
from headrace.network.memory.local_buffer_pool import WaitStrategy
from headrace.task.task import Task
from headrace.task.task_runner import TaskRunner, ThreadTaskRunner

WAIT_SECONDS = 30
STARTED = threading.Event()
"""Set by a user function of a test, which runs in this process."""


@dataclass
class RecordingListener:
    """Keeps the states and operator events of every task; thread-safe."""

    states: dict[ExecutionAttemptId, list[ExecutionState]] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    events: list[tuple[OperatorId, bytes]] = field(default_factory=list)
    ended: threading.Condition = field(default_factory=threading.Condition)

    def state_changed(
        self, attempt_id: ExecutionAttemptId, state: ExecutionState, error: BaseException | None
    ) -> None:
        with self.ended:
            self.states.setdefault(attempt_id, []).append(state)
            if error is not None:
                self.errors.append(error)
            self.ended.notify_all()

    def operator_event(
        self, attempt_id: ExecutionAttemptId, operator_id: OperatorId, payload: bytes
    ) -> None:
        with self.ended:
            self.events.append((operator_id, payload))

    def checkpoint_acknowledged(
        self,
        attempt_id: ExecutionAttemptId,
        checkpoint_id: int,
        snapshot: TaskStateSnapshot,
        metrics: CheckpointMetrics,
    ) -> None:
        """See TaskListener. No coordinator is there that could complete it."""

    def check_producer(
        self,
        attempt_id: ExecutionAttemptId,
        partition_id: ResultPartitionId,
        answer: AnswerVerdict,
    ) -> None:
        """See TaskListener. No scheduler is there that could know."""
        answer(ProducerVerdict.ASK_AGAIN)

    def await_end(self, task_count: int) -> None:
        """Wait until so many tasks have reached a terminal state."""

        def all_ended() -> bool:
            last = [states[-1] for states in self.states.values()]
            return sum(state.is_terminal for state in last) == task_count

        with self.ended:
            assert self.ended.wait_for(all_ended, WAIT_SECONDS), self.states

    def await_state(self, state: ExecutionState) -> None:
        """Wait until every task that reported is in `state`."""
        with self.ended:
            assert self.ended.wait_for(
                lambda: all(states[-1] is state for states in self.states.values()), WAIT_SECONDS
            )


class LocalJob:
    """A job deployed in this process; use as a context manager."""

    def __init__(
        self,
        stream_graph: StreamGraph,
        settings: dict[str, str] | None = None,
        runner: TaskRunner | None = None,
        wait: WaitStrategy | None = None,
        *,
        are_payloads_apart: bool = False,
    ) -> None:
        """`runner` drives the tasks, by default in threads; `wait` is what they do when memory is out.

        Where payloads are apart, tasks are deployed without user code and wait for `payloads_of`.
        """
        self.settings = Settings(settings)
        self.random = SeededRandom(7)
        self.listener = RecordingListener()
        self.clock = SystemClock()
        self.shuffle = CreditBasedShuffleEnvironment(
            resource_id=ResourceId("tm-0"),
            settings=self.settings,
            secret=b"s" * 32,
            bind_host="127.0.0.1",
            advertised_host="127.0.0.1",
            clock=self.clock,
            random=self.random,
            socket_directory=None,
            wait=wait,
        )
        self.location = self.shuffle.start()
        graph = generate_job_graph(stream_graph, JobId.generate(self.random), self.settings)
        offloaded = offload(graph, 0 if are_payloads_apart else sys.maxsize)
        self._blobs: dict[BlobKey, bytes] = offloaded.blobs
        graph = offloaded.graph
        self.graph: JobGraph = graph
        self.execution_graph: ExecutionGraph = expand(graph)
        factory = StreamTaskFactory(
            ResourceId("tm-0"),
            self.shuffle,
            runner or ThreadTaskRunner(),
            self.settings,
            self.clock,
            self.random,
            MetricGroup(),
        )
        self.tasks: list[Task] = [
            factory.create(descriptor, self.listener) for descriptor in self._descriptors()
        ]

    def __enter__(self) -> "LocalJob":
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        self.listener.await_end(len(self.listener.states))
        self.shuffle.close()

    def run(self) -> None:
        """Start every task, wait for all to end and raise the first error."""
        self.start()
        self.listener.await_end(len(self.tasks))
        if self.listener.errors:
            raise self.listener.errors[0]

    def start(self) -> None:
        """Start every task."""
        for task in self.tasks:
            task.start()

    def payloads_of(self, vertex_index: int) -> VertexPayloads:
        """The payloads of a vertex, where they are apart."""
        key = self.graph.vertices[vertex_index].payloads
        assert key is not None
        return VertexPayloads.decode(memoryview(self._blobs[key]))

    def final_states(self) -> set[ExecutionState]:
        """The states that tasks ended in."""
        return {states[-1] for states in self.listener.states.values()}

    def _descriptors(self) -> list[TaskDeploymentDescriptor]:
        return [
            self._descriptor(vertex_index, subtask_index)
            for vertex_index, vertex in enumerate(self.graph.vertices)
            for subtask_index in range(vertex.parallelism)
        ]

    def _attempt(self, vertex_id: object, subtask_index: int) -> ExecutionAttemptId:
        return ExecutionAttemptId(
            self.graph.job_id,
            ExecutionVertexId(vertex_id, subtask_index),  # type: ignore[arg-type]
            0,
        )

    def _descriptor(self, vertex_index: int, subtask_index: int) -> TaskDeploymentDescriptor:
        vertex = self.graph.vertices[vertex_index]
        attempt = self._attempt(vertex.vertex_id, subtask_index)
        return TaskDeploymentDescriptor(
            attempt_id=attempt,
            allocation_id=AllocationId.generate(self.random),
            job_name=self.graph.name,
            settings=self.graph.settings,
            vertex=vertex,
            result_partitions=tuple(
                ResultPartitionDeployment(
                    ResultPartitionDescriptor(
                        ResultPartitionId(edge.job_edge.data_set_id, subtask_index, attempt),
                        edge.job_edge.result_type,
                        edge.subpartition_count(subtask_index),
                    ),
                    edge.job_edge,
                    self.graph.vertex(edge.job_edge.target_vertex_id).max_parallelism,
                )
                for edge in self.execution_graph.edges_out_of(vertex.vertex_id)
            ),
            input_gates=tuple(
                InputGateDescriptor(
                    edge.job_edge.data_set_id,
                    edge.job_edge.input_number,
                    tuple(
                        InputChannelDescriptor(
                            ShuffleDescriptor(
                                ResultPartitionId(
                                    edge.job_edge.data_set_id,
                                    source.partition_number,
                                    self._attempt(
                                        edge.job_edge.source_vertex_id, source.partition_number
                                    ),
                                ),
                                self.location,
                            ),
                            source.subpartition_index,
                        )
                        for source in edge.inputs_of(subtask_index)
                    ),
                    edge.job_edge.result_type,
                )
                for edge in self.execution_graph.edges_into(vertex.vertex_id)
            ),
        )


__all__ = ["LocalJob", "RecordingListener", "TaskManagerLocation"]
