"""WorkerLifecycle: the states of each TaskManager's Spark job; takes events, returns actions. Pure.

    SUBMITTED ──task active──► STARTED
        │ release                 │ release
        └────────► STOPPING ◄─────┘
                      │ grace over
                  CANCELLING ──ended──► gone (from any state): termination reported exactly once

It only tracks the Spark jobs. The WorkerPool tracks which workers are wanted, have registered or were given
up; it never requests an id twice and refuses those that it has given up.
A release follows the ResourceManager's stop by RPC, so a started worker gets a grace period to return by itself; only
then its job is cancelled, which kills the process without any clean-up, repeatedly until it has ended. The same holds
for the job of a worker whose executor is lost, as Spark would rerun it elsewhere. A worker that waits for an executor
may get one while it is released. Spark (4.3, PythonWorkerFactory) takes an interruption for the death of the process
from which it forks Python workers, and ends that process with all other workers of the executor. So the job is
cancelled a while later, counted from the moment in which its task became active, if it did. Source: Flink
ActiveResourceManager.
"""

import enum
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile


class WorkerPhase(enum.Enum):
    """Phases of a worker's job between its submission and its end."""

    SUBMITTED = "SUBMITTED"
    STARTED = "STARTED"
    STOPPING = "STOPPING"
    CANCELLING = "CANCELLING"


_GIVEN_UP: Final = (WorkerPhase.STOPPING, WorkerPhase.CANCELLING)


# Events


@dataclass(frozen=True)
class WorkerRequested:
    """The ResourceManager has requested a TaskManager."""

    worker_id: ResourceId
    profile: ResourceProfile


@dataclass(frozen=True)
class TaskActive:
    """The job's one task runs on an executor."""

    worker_id: ResourceId


@dataclass(frozen=True)
class JobEnded:
    """The job returned, raised an error, was cancelled or could not be submitted. `error` is None if it returned."""

    worker_id: ResourceId
    error: str | None


@dataclass(frozen=True)
class ExecutorDecommissioned:
    """Spark will soon remove the worker's executor."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class ExecutorLost:
    """The executor of the worker is gone, and the worker with it."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class ReleaseRequested:
    """The ResourceManager has stopped the worker by RPC, if it could reach it, and gives it up."""

    worker_id: ResourceId


@dataclass(frozen=True)
class ClockRead:
    """The clock was read."""


WorkerEvent = (
    WorkerRequested
    | TaskActive
    | JobEnded
    | ExecutorDecommissioned
    | ExecutorLost
    | ReleaseRequested
    | ClockRead
)


# Actions


@dataclass(frozen=True)
class SubmitJob:
    """Start a one-task Spark job for the worker."""

    worker_id: ResourceId
    profile: ResourceProfile


@dataclass(frozen=True)
class CancelJob:
    """Cancel the worker's job group."""

    worker_id: ResourceId


@dataclass(frozen=True)
class ReportStarted:
    """Tell the ResourceManager that the worker runs on an executor."""

    worker_id: ResourceId


@dataclass(frozen=True)
class ReportDecommissioned:
    """Tell the ResourceManager that the worker will end soon, and why."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class ReportTerminated:
    """Tell the ResourceManager that the worker is gone, and why."""

    worker_id: ResourceId
    diagnostics: str


WorkerAction = SubmitJob | CancelJob | ReportStarted | ReportDecommissioned | ReportTerminated


@dataclass(frozen=True)
class _Worker:
    phase: WorkerPhase = WorkerPhase.SUBMITTED
    # Time of the next timed action, monotonic ms; None: none is due.
    due_ms: float | None = None
    is_active: bool = False
    is_decommissioned: bool = False
    # Why its executor was lost.
    loss: str = ""


@dataclass
class WorkerLifecycles:
    """Every worker of one driver. Times are monotonic milliseconds, passed with each event.

    `stop_grace_ms`: time in which a started worker may return after its stop; `start_grace_ms`: time in which Spark may
    start the Python process of a worker that was released before; `cancel_retry_ms`: interval at which a cancellation
    is repeated until Spark reports the end.
    """

    stop_grace_ms: float
    start_grace_ms: float = 2000.0
    cancel_retry_ms: float = 1000.0
    _workers: dict[ResourceId, _Worker] = field(default_factory=dict[ResourceId, _Worker])

    def handle(self, event: WorkerEvent, monotonic_ms: float) -> list[WorkerAction]:
        """Handle one event and return the resulting actions, in order."""
        match event:
            case WorkerRequested(worker_id, profile):
                return self._requested(worker_id, profile)
            case TaskActive(worker_id):
                return self._active(worker_id, monotonic_ms)
            case JobEnded(worker_id, error):
                return self._ended(worker_id, error)
            case ExecutorDecommissioned(worker_id, cause):
                return self._decommissioned(worker_id, cause)
            case ExecutorLost(worker_id, cause):
                return self._executor_lost(worker_id, cause, monotonic_ms)
            case ReleaseRequested(worker_id):
                return self._released(worker_id, monotonic_ms)
            case ClockRead():
                return self._time_passed(monotonic_ms)

    @property
    def live_worker_ids(self) -> tuple[ResourceId, ...]:
        """Return the workers whose end has not been reported, in order of their request."""
        return tuple(self._workers)

    def is_given_up(self, worker_id: ResourceId) -> bool:
        """Return whether a worker ends because it was released, or because its executor is lost."""
        worker = self._workers.get(worker_id)
        return worker is not None and worker.phase in _GIVEN_UP

    def _requested(self, worker_id: ResourceId, profile: ResourceProfile) -> list[WorkerAction]:
        assert worker_id not in self._workers, f"worker {worker_id} was requested twice"
        self._workers[worker_id] = _Worker()
        return [SubmitJob(worker_id, profile)]

    def _active(self, worker_id: ResourceId, monotonic_ms: float) -> list[WorkerAction]:
        worker = self._workers.get(worker_id)
        if worker is None or worker.is_active:
            return []
        worker = replace(worker, is_active=True)
        match worker.phase:
            case WorkerPhase.SUBMITTED:
                self._workers[worker_id] = replace(worker, phase=WorkerPhase.STARTED)
                return [ReportStarted(worker_id)]
            case WorkerPhase.STOPPING:
                due_ms = monotonic_ms + self.start_grace_ms
                self._workers[worker_id] = replace(worker, due_ms=due_ms)
            case WorkerPhase.STARTED | WorkerPhase.CANCELLING:
                pass
        return []

    def _ended(self, worker_id: ResourceId, error: str | None) -> list[WorkerAction]:
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return []
        if worker.loss:
            diagnostics = worker.loss
        elif worker.phase in _GIVEN_UP:
            diagnostics = "released"
        else:
            diagnostics = error or "its Spark task returned"
        return [ReportTerminated(worker_id, diagnostics)]

    def _decommissioned(self, worker_id: ResourceId, cause: str) -> list[WorkerAction]:
        worker = self._workers.get(worker_id)
        if worker is None or worker.is_decommissioned:
            return []
        self._workers[worker_id] = replace(worker, is_decommissioned=True)
        return [ReportDecommissioned(worker_id, cause)]

    def _executor_lost(
        self, worker_id: ResourceId, cause: str, monotonic_ms: float
    ) -> list[WorkerAction]:
        worker = self._workers.get(worker_id)
        if worker is None or worker.phase is not WorkerPhase.STARTED or worker.loss:
            return []
        return self._cancel(worker_id, replace(worker, loss=cause), monotonic_ms)

    def _released(self, worker_id: ResourceId, monotonic_ms: float) -> list[WorkerAction]:
        worker = self._workers.get(worker_id)
        if worker is None:
            return []
        match worker.phase:
            case WorkerPhase.SUBMITTED | WorkerPhase.STARTED:
                is_started = worker.phase is WorkerPhase.STARTED
                due_ms = monotonic_ms + (self.stop_grace_ms if is_started else self.start_grace_ms)
                self._workers[worker_id] = replace(
                    worker, phase=WorkerPhase.STOPPING, due_ms=due_ms
                )
                return []
            case WorkerPhase.STOPPING | WorkerPhase.CANCELLING:
                return []

    def _time_passed(self, monotonic_ms: float) -> list[WorkerAction]:
        actions: list[WorkerAction] = []
        for worker_id, worker in list(self._workers.items()):
            if worker.due_ms is not None and monotonic_ms >= worker.due_ms:
                actions += self._cancel(worker_id, worker, monotonic_ms)
        return actions

    def _cancel(
        self, worker_id: ResourceId, worker: _Worker, monotonic_ms: float
    ) -> list[WorkerAction]:
        self._workers[worker_id] = replace(
            worker, phase=WorkerPhase.CANCELLING, due_ms=monotonic_ms + self.cancel_retry_ms
        )
        return [CancelJob(worker_id)]
