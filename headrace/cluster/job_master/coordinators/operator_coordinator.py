"""OperatorCoordinator: the part of an operator that runs in the JobMaster, on its main thread.

Source: Flink OperatorCoordinator, OperatorCoordinatorHolder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.metrics.groups import MetricGroup


class LaterCalls(Protocol):
    """Runs a coordinator's work, concurrently with the JobMaster's main thread or later on it; an error fails the job.

    No work runs once the JobMaster is being closed.
    """

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> Cancellable:
        """Run `action` on the main thread after `delay_ms`."""
        ...

    def call_blocking(
        self,
        name: str,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
        /,
    ) -> None:
        """Run `work`, which may block, on another thread, and `handler` with its result or error on it."""
        ...


class _NoLaterCalls:
    """Refuses every call; for coordinators that need none."""

    def schedule(self, delay_ms: float, action: Callable[[], None], /) -> NoReturn:
        raise AssertionError("this coordinator cannot schedule calls")

    def call_blocking(
        self,
        name: str,
        work: Callable[[], Any],
        handler: Callable[[Any, BaseException | None], None],
        /,
    ) -> NoReturn:
        raise AssertionError("this coordinator cannot run blocking calls")


NO_LATER_CALLS: Final[LaterCalls] = _NoLaterCalls()


@dataclass(frozen=True)
class CoordinatorContext:
    """Services and facts for an operator coordinator.

    `send_event(subtask_index, payload)` reaches the current attempt of a subtask. `run_async` posts a callable to the
    JobMaster's main thread from any thread. `fail_job` ends the job as FAILED. `report_backlog` reports whether the
    operator processes a backlog. `location` is the file and line of the user's program that created the operator,
    empty if unknown. `metric_group` is for the coordinator's own metrics, which are read on the main thread.
    """

    job_id: JobId
    operator_id: OperatorId
    operator_name: str
    parallelism: int
    settings: Settings
    send_event: Callable[[int, bytes], None]
    run_async: Callable[[Callable[[], None]], None]
    fail_job: Callable[[BaseException], None]
    later: LaterCalls = NO_LATER_CALLS
    report_backlog: Callable[[bool], None] = lambda is_backlog: None
    location: str = ""
    metric_group: MetricGroup = field(default_factory=MetricGroup)

    @property
    def place(self) -> str:
        """Name of the operator with its file and line, for errors."""
        return f"operator '{self.operator_name}'" + (f", {self.location}" if self.location else "")


class OperatorCoordinator(Protocol):
    """Coordinator of one operator that needs one; lives as long as the job."""

    def start(self) -> None:
        """Start the coordinator, before any task is deployed."""
        ...

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Handle that the attempt is RUNNING at `location` and can take events."""
        ...

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Handle that the attempt ended as FAILED or CANCELED; a new one may follow."""
        ...

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Handle an event of one of the operator's subtasks."""
        ...

    async def job_finishing(self) -> None:
        """Commit, after every task has FINISHED. The job becomes FINISHED afterwards; an exception makes it FAILED."""
        ...

    async def close(self) -> None:
        """Release everything, because the job has ended in any way. Idempotent."""
        ...


@runtime_checkable
class CheckpointedCoordinator(OperatorCoordinator, Protocol):
    """A coordinator that takes part in checkpoints; others start anew when the job is restored.

    Its part of checkpoint n is taken before any barrier n is sent, and later events reach a subtask
    after that subtask's part.
    """

    def checkpoint(self, checkpoint_id: int) -> bytes:
        """Return the current state. An error makes the checkpoint fail."""
        ...

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Handle that the checkpoint is published. Called for every one, in rising order."""
        ...

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Handle that the checkpoint was aborted, as if it had never been triggered."""
        ...

    def reset(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """Handle that the whole job starts from this checkpoint, or anew. No attempt runs meanwhile.

        Also called before `start`. `state` is None if the checkpoint has no state of this operator.
        """
        ...

    def subtask_reset(self, subtask_index: int, checkpoint_id: int | None) -> None:
        """Handle that one subtask starts from this checkpoint, or anew; if all start, `reset` is called instead."""
        ...


CoordinatorFactory = Callable[[CoordinatorContext, bytes], OperatorCoordinator]
CoordinatorFactories = Mapping[str, CoordinatorFactory]
"""Factories by the name that OperatorSpec.coordinator() returns. `collect` is built in; hosts add their own."""
