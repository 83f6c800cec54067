"""BatchProgress: the progress of a BATCH job's subtasks, computed from their reports. Pure.

SCHEDULED ── all inputs finished: Spark has the task ──► DEPLOYING ── first report ──► RUNNING ──► FINISHED
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from headrace.core.ids import JobVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.job_master import (
    AttemptDetails,
    DeploymentPhase,
    SubtaskDetails,
    VertexDetails,
)
from headrace.gateways.messages import ErrorInfo
from headrace.gateways.subtask_report import SubtaskReport
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.metrics import names

_S = ExecutionState
_ATTEMPTS_MAX: Final = 16


@dataclass
class _Subtask:
    """The newest attempt of one subtask, and the earlier ones that have reported."""

    state: ExecutionState = _S.CREATED
    attempt_number: int = 0
    host: str = ""
    times_ms: dict[str, int] = field(default_factory=dict[str, int])
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    counters: tuple[str, ...] = ()
    error: ErrorInfo | None = None
    earlier: deque[AttemptDetails] = field(default_factory=lambda: deque(maxlen=_ATTEMPTS_MAX))

    def become(self, state: ExecutionState, now_ms: int) -> None:
        self.state = state
        self.times_ms.setdefault(state.name, now_ms)

    def begin_again(self, attempt_number: int, now_ms: int) -> None:
        """Begin a new attempt, as Spark reruns the task after a failure whose report may have been lost."""
        if self.state in (_S.RUNNING, _S.FAILED):
            self.become(_S.FAILED, now_ms)
            self.earlier.append(
                AttemptDetails(
                    self.attempt_number,
                    self.state,
                    None,
                    self.host,
                    self.times_ms,
                    self.metrics,
                    self.error,
                )
            )
        self.attempt_number = attempt_number
        kept = (_S.CREATED.name, _S.SCHEDULED.name, _S.DEPLOYING.name)
        self.times_ms = {name: time for name, time in self.times_ms.items() if name in kept}
        self.state, self.error = _S.DEPLOYING, None


class BatchProgress:
    """The subtasks of one job and their states."""

    def __init__(self, graph: JobGraph, now_ms: int) -> None:
        self._graph: Final = graph
        self._vertices: Final[dict[JobVertexId, list[_Subtask]]] = {
            vertex.vertex_id: [_Subtask() for _ in range(vertex.parallelism)]
            for vertex in graph.vertices
        }
        self.changed_ms = now_ms
        self._change_all(_S.CREATED, now_ms)
        self._change_all(_S.SCHEDULED, now_ms)
        self._deploy_ready(now_ms)

    def report(self, report: SubtaskReport) -> None:
        """Apply a report; reports of ended attempts, and outdated ones, change nothing."""
        subtask = self._vertices[JobVertexId.from_hex(report.vertex_id)][report.subtask_index]
        if subtask.state in (_S.FINISHED, _S.CANCELED):
            return
        if report.attempt_number < subtask.attempt_number:
            return
        if report.attempt_number > subtask.attempt_number:
            subtask.begin_again(report.attempt_number, report.started_ms)
        subtask.host = report.host
        subtask.times_ms.setdefault(_S.DEPLOYING.name, report.started_ms)
        subtask.times_ms.setdefault(_S.RUNNING.name, report.started_ms)
        busy_ms = max(0, report.reported_ms - report.started_ms)
        subtask.metrics = {
            **report.metrics,
            names.NUM_RECORDS_IN.name: report.records_in,
            names.NUM_RECORDS_OUT.name: report.records_out,
            names.NUM_BYTES_IN.name: report.bytes_in,
            names.NUM_BYTES_OUT.name: report.bytes_out,
            names.ACCUMULATE_BUSY_TIME.name: busy_ms,
        }
        subtask.counters = report.counters
        if subtask.state is not report.state:
            subtask.become(report.state, report.reported_ms)
            self.changed_ms = max(self.changed_ms, report.reported_ms)
        if report.state is _S.FINISHED:
            self._deploy_ready(report.reported_ms)

    def fail(
        self, vertex_id: JobVertexId, subtask_index: int, error: ErrorInfo, now_ms: int
    ) -> None:
        """Record that the job ends because of a subtask's failure."""
        subtask = self._vertices[vertex_id][subtask_index]
        subtask.error = error
        subtask.become(_S.FAILED, now_ms)

    def end(self, state: ExecutionState, now_ms: int) -> None:
        """Record the job's end: subtasks that have not ended get `state`.

        In a finished job these read empty parts of DataFrames, or are sinks that Spark has written.
        """
        for subtasks in self._vertices.values():
            for subtask in subtasks:
                if not subtask.state.is_terminal:
                    subtask.become(state, now_ms)
        self.changed_ms = now_ms

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of subtasks by state."""
        found = Counter(one.state for subtasks in self._vertices.values() for one in subtasks)
        return {state.name: found[state] for state in ExecutionState}

    @property
    def summary(self) -> str:
        """Return a sentence about the progress of the subtasks."""
        counts = self.counts
        return (
            f"{counts[_S.FINISHED.name]} of {sum(counts.values())} subtasks have finished, {counts[_S.RUNNING.name]} "
            f"are running"
        )

    @property
    def phase(self) -> DeploymentPhase:
        """Return the common phase of the subtasks."""
        return DeploymentPhase.DEPLOYING if self.counts[_S.DEPLOYING.name] else DeploymentPhase.NONE

    @property
    def accumulators(self) -> dict[str, float]:
        """Return the sums of the user functions' counters over all finished subtasks."""
        sums: dict[str, float] = {}
        for subtasks in self._vertices.values():
            for subtask in subtasks:
                for name in subtask.counters:
                    sums[name] = sums.get(name, 0) + subtask.metrics[name]
        return sums

    def vertices(self) -> tuple[VertexDetails, ...]:
        """Return the vertices with their progress, for clients."""
        return tuple(map(self._described, self._graph.vertices))

    def _described(self, vertex: JobVertex) -> VertexDetails:
        subtasks = tuple(
            SubtaskDetails(
                index,
                one.attempt_number,
                one.state,
                None,
                one.metrics,
                one.host,
                dict(one.times_ms),
                one.error,
                tuple(one.earlier),
                one.counters,
            )
            for index, one in enumerate(self._vertices[vertex.vertex_id])
        )
        return VertexDetails(
            vertex.vertex_id,
            vertex.name,
            vertex.parallelism,
            subtasks,
            vertex.max_parallelism,
            vertex.slot_sharing_group,
        )

    def _deploy_ready(self, now_ms: int) -> None:
        for vertex_id, subtasks in self._vertices.items():
            sources = {edge.source_vertex_id for edge in self._graph.edges_into(vertex_id)}
            is_ready = all(
                one.state is _S.FINISHED for each in sources for one in self._vertices[each]
            )
            for subtask in subtasks:
                if is_ready and subtask.state is _S.SCHEDULED:
                    subtask.become(_S.DEPLOYING, now_ms)

    def _change_all(self, state: ExecutionState, now_ms: int) -> None:
        for subtasks in self._vertices.values():
            for subtask in subtasks:
                subtask.become(state, now_ms)
