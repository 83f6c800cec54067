"""Failures of a job: what they were, which of several is the cause, and whether a restart may follow. Pure.

A streaming job whose exchanges are pipelined is one region, so a restart takes all its subtasks.
Source: Flink ExecutionFailureHandler, ThrowableClassifier.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.executions import Execution
from headrace.cluster.job_master.restart_strategies import RestartStrategy
from headrace.core.ids import ExecutionAttemptId
from headrace.gateways.messages import ErrorInfo

HISTORY_SIZE: Final = 16


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
    def unexpected_cancellation(cls, execution: Execution) -> "Failure":
        """A TaskManager cancelled a task that nobody had asked it to cancel."""
        text = f"task {execution.attempt_id} was cancelled by its TaskManager"
        info = ErrorInfo("TaskCancelledError", text, "INTERNAL", recoverable=True)
        return cls(info, execution.attempt_id)

    def as_final(self) -> "Failure":
        """The same, after which no restart makes sense."""
        return replace(self, is_final=True)

    @property
    def is_consequence(self) -> bool:
        """Whether something else must have failed before."""
        return self.error.is_consequence


class FailureHistory:
    """The failures of one job; `cause` is the one that people should read."""

    def __init__(self, strategy: RestartStrategy) -> None:
        self._strategy = strategy
        self.cause: Failure | None = None
        self.recent: deque[Failure] = deque(maxlen=HISTORY_SIZE)
        self.restart_count = 0

    def decide(self, failure: Failure, monotonic_ms: float) -> float | None:
        """Remember `failure` as the cause; return the pause before a restart, or None where it is final."""
        self.cause = failure
        self.recent.append(failure)
        if failure.is_final or not failure.error.recoverable:
            return None
        delay_ms = self._strategy.failure(monotonic_ms)
        if delay_ms is not None:
            self.restart_count += 1
        return delay_ms

    def refine(self, failure: Failure) -> None:
        """A concurrent failure: it becomes the cause where the present one is only a consequence of something."""
        self.recent.append(failure)
        if self.cause is None or (self.cause.is_consequence and not failure.is_consequence):
            self.cause = failure
