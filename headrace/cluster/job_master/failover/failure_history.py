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
    "Number of failures of a job that are remembered, each with the failures that it caused.",
    least=1,
)  # fmt: skip
SAME_ERROR_RESTARTS: Final = ConfigOption(
    "headrace.restart.same-error-restarts", int, 2,
    "Number of restarts that may follow the same error at the same place (its class, operator, file and line) before "
    "the job FAILS with it, unless the job got past that place in between: a checkpoint was completed before which the "
    "sources had made progress, and which came later after the restart than the failure had come after its checkpoint. "
    "An error that a restart does not fix, such as a record on which a function fails, would recur forever. Losses "
    "of a process or a connection are not counted, nor are errors of services that do not respond (ConnectionError, "
    "TimeoutError, and those with an attribute `recoverable` that is True). 0: as many as the restart strategy allows, "
    "as in Flink.",
    least=0,
)  # fmt: skip
REPLAY_MARGIN_MS: Final = 1000
"""Tolerated delay in ms of a record that is read again after a restart, compared with the first time."""
FAULTS_MAX: Final = 100
"""Number of failures without progress that are searched for an earlier occurrence of the same fault."""
CONCURRENT_MAX: Final = 100
"""Number of concurrent failures remembered with one failure: a lost host may fail thousands of tasks."""


@dataclass(frozen=True)
class Failure:
    """Failure of an execution, or of the whole job if `attempt_id` is None."""

    error: ErrorInfo
    attempt_id: ExecutionAttemptId | None = None
    is_final: bool = False

    @classmethod
    def of_error(cls, error: BaseException) -> "Failure":
        """Return the failure of the whole job with `error`."""
        return cls(error_info_of(error))

    @classmethod
    def of_execution(cls, execution: Execution) -> "Failure":
        """Return the failure of a task, with its reported error, if any."""
        error = execution.error or ErrorInfo(
            "UnknownError",
            f"task {execution.attempt_id} failed and gave no reason",
            "INTERNAL",
            recoverable=True,
        )
        return cls(error, execution.attempt_id)

    @classmethod
    def unexpected_cancellation(cls, execution: Execution) -> "Failure":
        """Return the failure for a task that its TaskManager cancelled without a request."""
        text = f"task {execution.attempt_id} was cancelled by its TaskManager"
        info = ErrorInfo("TaskCancelledError", text, "INTERNAL", recoverable=True)
        return cls(info, execution.attempt_id)

    def as_final(self) -> "Failure":
        """Return the same failure as final, so that no restart follows."""
        return replace(self, is_final=True)

    def after_savepoint(self, uri: str) -> "Failure":
        """Return the same failure as final, of a job whose final savepoint is complete.

        Its output is committed, or will be, so an older checkpoint would write it twice.
        """
        text = (
            f"the savepoint {uri} is complete, but the job failed while it was stopping, so its output may not be "
            f"committed; start a job from the savepoint once to commit it: {self.error.text}"
        )
        return replace(self, error=msgspec.structs.replace(self.error, text=text), is_final=True)

    def after_same_errors(self, count: int) -> "Failure":
        """Return the same failure as final after `count` occurrences without progress."""
        first, newline, rest = self.error.text.partition("\n")
        on_failure = "; on_failure() skips records on which a function fails"
        text = (
            f"{first} (the same error {count} times without progress, so no restart follows: see "
            f"{SAME_ERROR_RESTARTS.key}{on_failure if self.error.domain == 'USER' else ''}){newline}{rest}"
        )
        return replace(self, error=msgspec.structs.replace(self.error, text=text), is_final=True)

    @property
    def is_consequence(self) -> bool:
        """Return whether another failure must have come before."""
        return self.error.is_consequence


@dataclass(frozen=True)
class FailedTask:
    """Failed task, with the TaskManager that ran it and its `host:port`, if it had a slot.

    `name` is for people, such as `Map (2/4) - execution #0`: the vertex, the subtask, and its attempt.
    """

    name: str
    resource_id: ResourceId | None
    endpoint: str = ""

    @classmethod
    def of(cls, failure: Failure, graph: JobGraph, executions: Executions) -> "FailedTask | None":
        """Return the task of a failure; None if the job failed as a whole."""
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
    """A failure as shown to people; `task` is None if the job failed as a whole."""

    failure: Failure
    timestamp_ms: int
    task: FailedTask | None


@dataclass
class RootException:
    """A failure after which tasks restarted or the job ended, with its concurrent failures."""

    root: ExceptionEntry
    concurrent: list[ExceptionEntry] = field(default_factory=list[ExceptionEntry])


class ProgressSinceFailure:
    """Tracks whether a job has got past its last failure. Times are wall-clock milliseconds.

    A checkpoint proves this if the sources have made progress, and the job had run before its trigger for longer than
    from the restored checkpoint to the failure: those rows have been read again.
    """

    def __init__(self) -> None:
        self._position: bytes | None = None
        self._triggered_ms = 0
        self._failed_at: bytes | None = None
        self._replayed_ms = 0

    def failed(self, now_ms: int, running_since_ms: int | None) -> None:
        """Record a failure; `running_since_ms` is None if not all tasks were running."""
        self._failed_at = self._position
        if running_since_ms is not None:
            self._replayed_ms = max(0, now_ms - max(self._triggered_ms, running_since_ms))

    def checkpoint_completed(
        self, position: bytes, triggered_ms: int, running_since_ms: int
    ) -> bool:
        """Record a checkpoint with the sources' `position`, empty if unknown; return whether it is progress."""
        self._position, self._triggered_ms = position, triggered_ms
        has_read = not position or position != self._failed_at
        return has_read and triggered_ms - running_since_ms > self._replayed_ms + REPLAY_MARGIN_MS


class FailureHistory:
    """Failures of one job; `cause` is the one to show to people. Source: Flink ExceptionHistory.

    `same_error_restarts`: number of restarts that may follow the same error without progress; 0 for any number.
    """

    def __init__(
        self, strategy: RestartStrategy, size: int = 16, same_error_restarts: int = 0
    ) -> None:
        self._strategy = strategy
        self._same_error_restarts = same_error_restarts
        # Failures followed by a restart since the last progress; a recurring fault is among the newest. Their
        # root may still be refined, so it is read only when it counts.
        self._unmended: deque[RootException] = deque(maxlen=FAULTS_MAX)
        self._progress: Final = ProgressSinceFailure()
        self.cause: Failure | None = None
        self.entries: deque[RootException] = deque(maxlen=size)
        self.restart_count = 0
        self.is_overcome = True
        """True if tasks were deployed again since the newest failure."""
        self.is_truncated = False
        """True if there were more failures than are remembered."""

    def overcome(self) -> None:
        """Record that the failed tasks are deployed again."""
        self.is_overcome = True

    def checkpoint_completed(
        self, position: bytes, triggered_ms: int, running_since_ms: int
    ) -> None:
        """Record a checkpoint with the sources' `position`; all tasks had been running since `running_since_ms`."""
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
        """Remember `failure` as the cause; return the pause before a restart in ms, or None if it is final.

        `running_since_ms`: time at which the last task started to run, None if not all did.
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
        """Return the pause.

        Planned removals by the host are no failures; only a job that may not restart ends with them.
        """
        if failure.error.is_planned and self._strategy.name != NoRestart.name:
            return 0.0
        return self._strategy.failure(monotonic_ms)

    def _count(self, failure: Failure) -> int:
        """Return the number of the fault's occurrences without progress, including this one; 0 if it has no fault."""
        fault = failure.error.fault
        if not fault:
            return 0
        return 1 + sum(entry.root.failure.error.fault == fault for entry in self._unmended)

    def forbid_restart(self, cause: Failure) -> None:
        """Make the newest failure final, with the reason `cause`."""
        newest = self.entries[-1]
        newest.root = replace(newest.root, failure=cause)
        self.cause = cause

    def refine(self, failure: Failure, now_ms: int = 0, task: FailedTask | None = None) -> None:
        """Add a concurrent failure, which becomes the cause if the current one is only a consequence."""
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
