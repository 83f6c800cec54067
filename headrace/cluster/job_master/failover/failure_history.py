"""FailureHistory: records a job's failures, finds the cause among several, and decides if a restart may follow. Pure.

The subtasks that restart are chosen by `failover_strategies`, the pause by `restart_strategies`.
Source: Flink ExecutionFailureHandler, ThrowableClassifier, ExceptionHistory.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.executions import Execution, Executions
from headrace.cluster.job_master.failover.restart_strategies import NoRestart, RestartStrategy
from headrace.core.config import ConfigOption
from headrace.core.ids import ExecutionAttemptId, ResourceId
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph

EXCEPTION_HISTORY_SIZE: Final = ConfigOption(
    "web.exception-history-size", int, 16,
    "How many failures of a job are remembered, each with the failures that it caused.",
    least=1,
)  # fmt: skip
SAME_ERROR_RESTARTS: Final = ConfigOption(
    "headrace.restart.same-error-restarts", int, 2,
    "How many restarts may follow the same error at the same place (its class, operator, file and line) before the "
    "job FAILS with it, unless the job got past that place in between: a checkpoint was completed for which the "
    "sources had read on, and which came later after the restart than the failure had come after its checkpoint. What "
    "a restart does not mend, such as a record on which a function fails, would come again for ever. What was lost "
    "with a process or a connection is not counted, nor are errors of services that do not answer (ConnectionError, "
    "TimeoutError, and those with an attribute `recoverable` that is True). 0: as many as the restart strategy allows, "
    "as in Flink.",
    least=0,
)  # fmt: skip
REPLAY_MARGIN_MS: Final = 1000
"""Tolerated delay of a record that comes again after a restart, compared with the first time."""
FAULTS_MAX: Final = 100
"""Number of failures without progress among which an earlier occurrence of the same fault is looked for."""
CONCURRENT_MAX: Final = 100
"""Number of concurrent failures that are remembered with one: a lost host may fail thousands of tasks."""


@dataclass(frozen=True)
class Failure:
    """Something failed: an execution, or the job as a whole where `attempt_id` is None."""

    error: ErrorInfo
    attempt_id: ExecutionAttemptId | None = None
    is_final: bool = False

    @classmethod
    def of_error(cls, error: BaseException) -> "Failure":
        """A failure of the job as a whole."""
        return cls(error_info_of(error))

    @classmethod
    def of_execution(cls, execution: Execution) -> "Failure":
        """The failure of a task, with the error that it reported, if it reported one."""
        error = execution.error or ErrorInfo(
            "UnknownError",
            f"task {execution.attempt_id} failed and gave no reason",
            "INTERNAL",
            recoverable=True,
        )
        return cls(error, execution.attempt_id)

    @classmethod
    def unexpected_cancellation(cls, execution: Execution) -> "Failure":
        """A TaskManager cancelled a task that nobody had asked it to cancel."""
        text = f"task {execution.attempt_id} was cancelled by its TaskManager"
        info = ErrorInfo("TaskCancelledError", text, "INTERNAL", recoverable=True)
        return cls(info, execution.attempt_id)

    def as_final(self) -> "Failure":
        """The same, after which no restart makes sense."""
        return replace(self, is_final=True)

    def after_savepoint(self, uri: str) -> "Failure":
        """The same of a job whose final savepoint is complete: its output is committed, or is to be, so it is final."""
        text = (
            f"the savepoint {uri} is complete, but the job failed while it was stopping, so that its output may not be "
            f"committed; start a job from the savepoint once to commit it: {self.error.text}"
        )
        return replace(self, error=msgspec.structs.replace(self.error, text=text), is_final=True)

    def after_same_errors(self, count: int) -> "Failure":
        """The same, which has come so many times without progress: one more restart would not mend it."""
        first, newline, rest = self.error.text.partition("\n")
        on_failure = "; on_failure() skips records on which a function fails"
        text = (
            f"{first} (the same error {count} times without progress, so no restart follows: see "
            f"{SAME_ERROR_RESTARTS.key}{on_failure if self.error.domain == 'USER' else ''}){newline}{rest}"
        )
        return replace(self, error=msgspec.structs.replace(self.error, text=text), is_final=True)

    @property
    def is_consequence(self) -> bool:
        """Whether something else must have failed before."""
        return self.error.is_consequence


@dataclass(frozen=True)
class FailedTask:
    """The task that failed, and the TaskManager it ran on and its `host:port`, if it had a slot.

    `name` is for people, such as `Map (2/4) - execution #0`: the vertex, the subtask, and its attempt.
    """

    name: str
    resource_id: ResourceId | None
    endpoint: str = ""

    @classmethod
    def of(cls, failure: Failure, graph: JobGraph, executions: Executions) -> "FailedTask | None":
        """Find the task of a failure; None where the job failed as a whole."""
        if failure.attempt_id is None:
            return None
        subtask = failure.attempt_id.execution_vertex_id
        task = graph.vertex(subtask.vertex_id).subtask_name(subtask.subtask_index)
        name = f"{task} - execution #{failure.attempt_id.attempt_number}"
        execution = executions.find(failure.attempt_id)
        if execution is None:
            return cls(name, None)
        return cls(name, execution.resource_id, execution.endpoint)


@dataclass(frozen=True)
class ExceptionEntry:
    """A failure as people read of it; `task` is None where the job failed as a whole."""

    failure: Failure
    timestamp_ms: int
    task: FailedTask | None


@dataclass
class RootException:
    """A failure after which something was restarted or ended, and those that came with it."""

    root: ExceptionEntry
    concurrent: list[ExceptionEntry] = field(default_factory=list[ExceptionEntry])


class ProgressSinceFailure:
    """Whether a job has got past the place where it failed last. Times are wall-clock milliseconds.

    A checkpoint says so for which the sources had read on, and before whose trigger the job had run for longer than
    from the checkpoint that it restarted from to the failure: what was read then has been read again.
    """

    def __init__(self) -> None:
        self._position: bytes | None = None
        self._triggered_ms = 0
        self._failed_at: bytes | None = None
        self._replayed_ms = 0

    def failed(self, now_ms: int, running_since_ms: int | None) -> None:
        """The job failed; `running_since_ms` is None where not all of its tasks ran."""
        self._failed_at = self._position
        if running_since_ms is not None:
            self._replayed_ms = max(0, now_ms - max(self._triggered_ms, running_since_ms))

    def checkpoint_completed(
        self, position: bytes, triggered_ms: int, running_since_ms: int
    ) -> bool:
        """Take in a checkpoint of the sources' `position`, empty where nobody knows it; whether it is progress."""
        self._position, self._triggered_ms = position, triggered_ms
        has_read = not position or position != self._failed_at
        return has_read and triggered_ms - running_since_ms > self._replayed_ms + REPLAY_MARGIN_MS


class FailureHistory:
    """The failures of one job; `cause` is the one that people should read. Source: Flink ExceptionHistory.

    `same_error_restarts`: so many restarts may follow the same error without progress; 0 for any number.
    """

    def __init__(
        self, strategy: RestartStrategy, size: int = 16, same_error_restarts: int = 0
    ) -> None:
        self._strategy = strategy
        self._same_error_restarts = same_error_restarts
        # Those that a restart followed, since the last progress; a fault that comes again is among the newest. Their
        # root may still be refined, so it is asked for when it counts.
        self._unmended: deque[RootException] = deque(maxlen=FAULTS_MAX)
        self._progress: Final = ProgressSinceFailure()
        self.cause: Failure | None = None
        self.entries: deque[RootException] = deque(maxlen=size)
        self.restart_count = 0
        self.is_overcome = True
        """Whether tasks were deployed again since the newest failure."""
        self.is_truncated = False
        """Whether there were more failures than are remembered."""

    def overcome(self) -> None:
        """Record that the failed tasks are deployed again."""
        self.is_overcome = True

    def checkpoint_completed(
        self, position: bytes, triggered_ms: int, running_since_ms: int
    ) -> None:
        """A checkpoint counts for the sources' `position`; all tasks had been running since `running_since_ms`."""
        if self._progress.checkpoint_completed(position, triggered_ms, running_since_ms):
            self._unmended.clear()

    def decide(
        self,
        failure: Failure,
        monotonic_ms: float,
        now_ms: int = 0,
        task: FailedTask | None = None,
        running_since_ms: int | None = None,
    ) -> float | None:
        """Remember `failure` as the cause; return the pause before a restart, or None where it is final.

        `running_since_ms`: when the last task began to run, if all did.
        """
        count = self._count(failure)
        if 0 < self._same_error_restarts < count:
            failure = failure.after_same_errors(count)
        self._progress.failed(now_ms, running_since_ms)
        self.cause = failure
        self.is_overcome = False
        entry = RootException(ExceptionEntry(failure, now_ms, task))
        self.is_truncated |= len(self.entries) == self.entries.maxlen
        self.entries.append(entry)
        if failure.is_final or not failure.error.recoverable:
            return None
        delay_ms = self._pause_ms(failure, monotonic_ms)
        if delay_ms is not None:
            self.restart_count += 1
            self._unmended.append(entry)
        return delay_ms

    def _pause_ms(self, failure: Failure, monotonic_ms: float) -> float | None:
        """A host that takes resources away is no failure of the job; only a job that may not restart ends with it."""
        if failure.error.is_planned and self._strategy.name != NoRestart.name:
            return 0.0
        return self._strategy.failure(monotonic_ms)

    def _count(self, failure: Failure) -> int:
        """Count the occurrences of the failure's fault without progress, this one included; 0 if it has no fault."""
        fault = failure.error.fault
        if not fault:
            return 0
        return 1 + sum(entry.root.failure.error.fault == fault for entry in self._unmended)

    def forbid_restart(self, cause: Failure) -> None:
        """The newest failure is final after all; `cause` says why."""
        newest = self.entries[-1]
        newest.root = replace(newest.root, failure=cause)
        self.cause = cause

    def refine(self, failure: Failure, now_ms: int = 0, task: FailedTask | None = None) -> None:
        """A concurrent failure: it becomes the cause where the present one is only a consequence of something."""
        entry = ExceptionEntry(failure, now_ms, task)
        if not self.entries:
            self.cause = failure
            self.entries.append(RootException(entry))
            return
        newest = self.entries[-1]
        if newest.root.failure.is_consequence and not failure.is_consequence:
            newest.root, entry = entry, newest.root
            self.cause = failure
        if len(newest.concurrent) < CONCURRENT_MAX:
            newest.concurrent.append(entry)
