"""Executions: the JobMaster's record of the attempts of subtasks, and its answers to their reports. Pure.

The legal transitions are the table of `core.lifecycle`; `Executions.report` interprets a TaskManager's report.
Source: Flink Execution, ExecutionVertex, DefaultExecutionGraph.
"""

import enum
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.cluster.job_master.slots.slot_pool import PhysicalSlot
from headrace.core.config import ConfigOption
from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    ExecutionVertexId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, check_execution_transition
from headrace.gateways.job_master import AttemptDetails, DeploymentPhase
from headrace.gateways.messages import ErrorInfo, ExecutionReport, TaskMetrics
from headrace.graph.execution_graph import ExecutionEdge
from headrace.graph.job_graph import JobGraph
from headrace.metrics import names

ATTEMPTS_HISTORY_SIZE: Final = ConfigOption(
    "jobmanager.execution.attempts-history-size", int, 16,
    "Number of earlier attempts of each subtask that are remembered; fewer in jobs of more than a thousand subtasks, "
    "for which 20000 are remembered in total.",
)  # fmt: skip
ATTEMPTS_MAX: Final = 20_000
"""Number of earlier attempts that are remembered for all subtasks of a job together."""

_S = ExecutionState
_NAMED_TASKS_MAX: Final = 4
_KEPT_METRICS: Final = tuple(
    row.name
    for row in (
        names.NUM_RECORDS_IN,
        names.NUM_RECORDS_OUT,
        names.NUM_BYTES_IN,
        names.NUM_BYTES_OUT,
        names.ACCUMULATE_BUSY_TIME,
        names.ACCUMULATE_IDLE_TIME,
        names.ACCUMULATE_BACK_PRESSURED_TIME,
    )
)
"""Metrics of earlier attempts that are remembered."""


class ReportVerdict(enum.Enum):
    """Result of handling a task's report."""

    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    UNKNOWN_ATTEMPT = "UNKNOWN_ATTEMPT"


class StateCounts:
    """Counts the current attempts of a job by state; `changed_ms` is the time of the last change.

    `phase` is the common phase of all attempts, since `phase_since_ms`.
    """

    def __init__(self) -> None:
        self._counts: Final = Counter[ExecutionState]()
        self._total = 0
        self.changed_ms = 0
        self.phase = DeploymentPhase.NONE
        self.phase_since_ms = 0

    def add(self, state: ExecutionState, now_ms: int) -> None:
        """Count a new attempt."""
        self._counts[state] += 1
        self._total += 1
        self._changed(now_ms)

    def remove(self, state: ExecutionState) -> None:
        """Remove an attempt, which another one follows, from the counts."""
        self._counts[state] -= 1
        self._total -= 1

    def moved(self, before: ExecutionState, after: ExecutionState, now_ms: int) -> None:
        """Move an attempt to the count of its new state."""
        self._counts[before] -= 1
        self._counts[after] += 1
        self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        self.changed_ms = now_ms
        counts, phase = self._counts, DeploymentPhase.NONE
        if counts[_S.DEPLOYING]:
            phase = DeploymentPhase.DEPLOYING
        elif counts[_S.INITIALIZING]:
            phase = DeploymentPhase.INITIALIZING
        elif counts[_S.RUNNING] + counts[_S.FINISHED] == self._total:
            phase = DeploymentPhase.ALL_RUNNING_OR_FINISHED
        if phase is not self.phase:
            self.phase, self.phase_since_ms = phase, now_ms

    @property
    def by_name(self) -> dict[str, int]:
        """Return the counts of all states, including 0."""
        return {state.name: self._counts[state] for state in ExecutionState}


@dataclass
class Execution:
    """One attempt. `timestamps_ms` maps each state that was reached to its wall-clock time.

    `endpoint`: `host:port` of its slot's TaskManager, empty before it has a slot. `counts`: the counts of its job.
    """

    attempt_id: ExecutionAttemptId
    state: ExecutionState = ExecutionState.CREATED
    slot: PhysicalSlot | None = None
    endpoint: str = ""
    error: ErrorInfo | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    counters: tuple[str, ...] = ()
    timestamps_ms: dict[ExecutionState, int] = field(default_factory=dict[ExecutionState, int])
    # True if it has processed all its data and waits for a checkpoint that records this.
    has_data_ended: bool = False
    # True if its cancellation was requested.
    was_cancelled: bool = False
    # Between the submit request and its answer the TaskManager may not know the task yet.
    is_submit_pending: bool = False
    counts: StateCounts = field(default_factory=StateCounts, repr=False)

    def become(self, state: ExecutionState, now_ms: int) -> None:
        """Change the state. IllegalTransitionError if the table does not allow it."""
        check_execution_transition(self.state, state)
        self.counts.moved(self.state, state, now_ms)
        self.state = state
        self.timestamps_ms.setdefault(state, now_ms)

    @property
    def resource_id(self) -> ResourceId | None:
        """Id of the TaskManager of its slot; None before it has a slot."""
        return None if self.slot is None else self.slot.resource_id

    @property
    def named_timestamps_ms(self) -> dict[str, int]:
        """Times of the reached states, by name."""
        return {state.name: time_ms for state, time_ms in self.timestamps_ms.items()}

    def take_metrics(self, metrics: TaskMetrics) -> None:
        """Record the metrics that its TaskManager measured."""
        self.metrics, self.counters = metrics.values, metrics.counters

    def as_earlier_attempt(self) -> AttemptDetails:
        """Return the details that are remembered once another attempt follows."""
        metrics = self.metrics
        return AttemptDetails(
            self.attempt_id.attempt_number,
            self.state,
            self.resource_id,
            self.endpoint,
            self.named_timestamps_ms,
            {name: metrics[name] for name in _KEPT_METRICS if name in metrics},
            self.error,
        )

    @property
    def is_deployed(self) -> bool:
        """Return whether a TaskManager may have the task."""
        return self.slot is not None and not self.state.is_terminal


class Executions:
    """The current attempt of every subtask of a job, in topological order, and some earlier ones of each.

    Attempts are numbered from `first_attempt_number`, above all attempts under earlier leaders of the same job.
    """

    def __init__(
        self,
        graph: JobGraph,
        now_ms: int,
        attempts_history_size: int = 16,
        first_attempt_number: int = 0,
    ) -> None:
        self._graph = graph
        self._current: dict[ExecutionVertexId, Execution] = {}
        self._earlier: dict[ExecutionVertexId, deque[AttemptDetails]] = {}
        subtask_count = sum(vertex.parallelism for vertex in graph.vertices)
        self._earlier_max: Final = min(attempts_history_size, ATTEMPTS_MAX // max(1, subtask_count))
        self.counts: Final = StateCounts()
        """Counts of the current attempts; read-only."""
        for vertex in graph.vertices:
            for subtask_index in range(vertex.parallelism):
                subtask = ExecutionVertexId(vertex.vertex_id, subtask_index)
                self._current[subtask] = self._new(subtask, first_attempt_number, now_ms)
        self._observe()

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._current.values())

    def current(self, subtask: ExecutionVertexId) -> Execution:
        """Return the current attempt of a subtask."""
        return self._current[subtask]

    def find(self, attempt_id: ExecutionAttemptId) -> Execution | None:
        """Return the execution of this attempt, or None if it is not the current one."""
        execution = self._current.get(attempt_id.execution_vertex_id)
        if execution is None or execution.attempt_id != attempt_id:
            return None
        return execution

    def reset(self, subtasks: Collection[ExecutionVertexId], now_ms: int) -> None:
        """Give these subtasks a new attempt; all must have ended."""
        for subtask, execution in self._current.items():
            if subtask not in subtasks:
                continue
            assert execution.state.is_terminal or execution.state is _S.CREATED
            self._remember(subtask, execution)
            self.counts.remove(execution.state)
            number = execution.attempt_id.attempt_number + 1
            self._current[subtask] = self._new(subtask, number, now_ms)
        self._observe()

    def earlier_attempts(self, subtask: ExecutionVertexId) -> tuple[AttemptDetails, ...]:
        """Return the remembered attempts before the current one, newest last."""
        return tuple(self._earlier.get(subtask, ()))

    def _remember(self, subtask: ExecutionVertexId, execution: Execution) -> None:
        if subtask not in self._earlier:
            self._earlier[subtask] = deque(maxlen=self._earlier_max)
        self._earlier[subtask].append(execution.as_earlier_attempt())

    def report(self, report: ExecutionReport, now_ms: int) -> ReportVerdict:
        """Apply the report of a TaskManager.

        While an execution is being cancelled every end means CANCELED; reports may be merged or late.
        """
        execution = self.find(report.attempt_id)
        if execution is None or execution.state.is_terminal:
            return ReportVerdict.UNKNOWN_ATTEMPT
        if report.metrics is not None:
            execution.take_metrics(report.metrics)
        if execution.state is _S.CANCELING:
            if not report.state.is_terminal:
                return ReportVerdict.IGNORED
            execution.error = report.error
            execution.become(_S.CANCELED, now_ms)
            return ReportVerdict.APPLIED
        if report.state not in _REPORTABLE.get(execution.state, frozenset()):
            return ReportVerdict.IGNORED
        execution.error = report.error
        execution.become(report.state, now_ms)
        return ReportVerdict.APPLIED

    def cancel(self, execution: Execution, now_ms: int) -> bool:
        """Start to cancel.

        Return True if a TaskManager must be called, False if it is CANCELED at once or has ended.
        """
        if execution.state.is_terminal or execution.state is _S.CANCELING:
            return False
        was_deployed = execution.state not in (_S.CREATED, _S.SCHEDULED)
        execution.was_cancelled = True
        execution.become(_S.CANCELING, now_ms)
        if not was_deployed:
            execution.become(_S.CANCELED, now_ms)
        return was_deployed

    def lose(self, execution: Execution, error: ErrorInfo, now_ms: int) -> bool:
        """Record the loss of its slot.

        Return True if this is a failure, False if it ends a cancellation or comes late.
        """
        if execution.state.is_terminal:
            return False
        execution.error = error
        if execution.state is _S.CANCELING:
            execution.become(_S.CANCELED, now_ms)
            return False
        execution.become(_S.FAILED, now_ms)
        return True

    def on_task_manager(self, resource_id: ResourceId) -> list[Execution]:
        """Return the executions that run, or may run, on a TaskManager."""
        return [e for e in self if e.is_deployed and e.resource_id == resource_id]

    def with_tasks(self, error: ErrorInfo, lost: Sequence[Execution]) -> ErrorInfo:
        """Add the names of the lost tasks to the error's first line, because one of them may be the cause."""
        first, _, rest = error.text.partition("\n")
        names = [self._task_name(execution) for execution in lost]
        if len(names) > _NAMED_TASKS_MAX:
            names[_NAMED_TASKS_MAX:] = [f"{len(names) - _NAMED_TASKS_MAX} more"]
        ran = f"; it ran {', '.join(names)}" if names else ""
        text = f"{first.rstrip(' :')}{ran}" + (f"\n{rest}" if rest else "")
        return msgspec.structs.replace(error, text=text)

    def _task_name(self, execution: Execution) -> str:
        subtask = execution.attempt_id.execution_vertex_id
        vertex = self._graph.vertex(subtask.vertex_id)
        return f"'{vertex.name}' ({subtask.subtask_index + 1}/{vertex.parallelism})"

    def in_slot(self, allocation_id: AllocationId) -> list[Execution]:
        """Return the executions that run, or may run, in a slot."""
        return [
            e for e in self if e.is_deployed and e.slot and e.slot.allocation_id == allocation_id
        ]

    def of(self, subtasks: Collection[ExecutionVertexId]) -> list[Execution]:
        """Return the current attempts of these subtasks, in topological order."""
        return [each for subtask, each in self._current.items() if subtask in subtasks]

    def partition_id_of(self, edge: ExecutionEdge, partition_number: int) -> ResultPartitionId:
        """Return the id of the partition that the current attempt of a producer writes along an edge."""
        subtask = ExecutionVertexId(edge.job_edge.source_vertex_id, partition_number)
        producer = self.current(subtask).attempt_id
        return ResultPartitionId(edge.job_edge.data_set_id, partition_number, producer)

    @property
    def subtasks(self) -> frozenset[ExecutionVertexId]:
        """All subtasks of the job."""
        return frozenset(self._current)

    @property
    def all_finished(self) -> bool:
        """Return whether every subtask is FINISHED."""
        return self._finished.holds

    @property
    def running_since_ms(self) -> int | None:
        """Wall-clock time at which the last subtask started to run; None if one has not started."""
        times = [
            one.timestamps_ms.get(_S.RUNNING) or one.timestamps_ms.get(_S.FINISHED) for one in self
        ]
        began = [time_ms for time_ms in times if time_ms is not None]
        return max(began) if len(began) == len(times) else None

    @property
    def has_all_data_ended(self) -> bool:
        """Return whether no subtask has data left."""
        return self._without_data.holds

    @property
    def all_ended(self) -> bool:
        """Return whether all executions have ended."""
        return self._ended.holds

    def end_of(self, subtasks: Collection[ExecutionVertexId]) -> "Conjunction":
        """Return a condition that holds once the current attempts of these subtasks have ended."""
        return Conjunction(self.of(subtasks), lambda each: each.state.is_terminal)

    def _observe(self) -> None:
        self._ended = self.end_of(self._current)
        self._finished = Conjunction(self, lambda each: each.state is _S.FINISHED)
        self._without_data = Conjunction(
            self, lambda each: each.has_data_ended or each.state is _S.FINISHED
        )

    def _new(self, subtask: ExecutionVertexId, attempt_number: int, now_ms: int) -> Execution:
        attempt_id = ExecutionAttemptId(self._graph.job_id, subtask, attempt_number)
        self.counts.add(_S.CREATED, now_ms)
        return Execution(attempt_id, timestamps_ms={_S.CREATED: now_ms}, counts=self.counts)


class Conjunction:
    """Condition that holds once all of some attempts meet a predicate; an attempt that meets it must never cease to.

    It is checked whenever an attempt changes: checking all of them each time would be quadratic. So attempts known to
    meet it, from the first on, are not checked again.
    """

    def __init__(self, attempts: Iterable[Execution], is_met: Callable[[Execution], bool]) -> None:
        self._attempts: Final = tuple(attempts)
        self._is_met: Final = is_met
        self._known_count = 0

    @property
    def holds(self) -> bool:
        """Return whether all attempts meet the predicate."""
        attempts = self._attempts
        while self._known_count < len(attempts) and self._is_met(attempts[self._known_count]):
            self._known_count += 1
        return self._known_count == len(attempts)


_REPORTABLE = {
    _S.DEPLOYING: frozenset({_S.INITIALIZING, _S.RUNNING, _S.FINISHED, _S.CANCELED, _S.FAILED}),
    _S.INITIALIZING: frozenset({_S.RUNNING, _S.FINISHED, _S.CANCELED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.FINISHED, _S.CANCELED, _S.FAILED}),
}
