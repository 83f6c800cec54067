"""TaskTable: the tasks of one TaskManager, from their submission until their last report was heard."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.cluster.task_executor.deployment import RunningTask
from headrace.cluster.task_executor.task_reports import TaskOutbox
from headrace.core.config import Settings
from headrace.core.ids import AllocationId, ExecutionAttemptId, JobId
from headrace.gateways.messages import TaskMetrics
from headrace.rpc.service import Cancellable


@dataclass
class TaskEntry:
    """One attempt. `task` is None while it is being built; what is wanted of it meanwhile is kept for then.

    `settings` are the job's over the TaskManager's.
    """

    attempt_id: ExecutionAttemptId
    allocation_id: AllocationId
    display_name: str
    settings: Settings
    outbox: TaskOutbox
    task: RunningTask | None = None
    has_ended: bool = False
    is_cancel_wanted: bool = False
    wanted_failure: BaseException | None = None
    last_metrics: TaskMetrics | None = None
    watchdog: Cancellable | None = None

    def cancel(self) -> None:
        """Cancel the task, now or as soon as it is built."""
        self.is_cancel_wanted = True
        self.outbox.interrupt()
        if self.task is not None:
            self.task.cancel()

    def fail(self, error: BaseException) -> None:
        """Fail the task, now or as soon as it is built."""
        self.wanted_failure = self.wanted_failure or error
        self.outbox.interrupt()
        if self.task is not None:
            self.task.fail_externally(error)

    def built(self, task: RunningTask) -> None:
        """Start the task; it ends at once where that was wanted meanwhile."""
        self.task = task
        task.start()
        if self.is_cancel_wanted:
            task.cancel()
        elif self.wanted_failure is not None:
            task.fail_externally(self.wanted_failure)

    def metrics(self) -> TaskMetrics:
        """The task's metrics now, or its last ones."""
        if self.last_metrics is not None:
            return self.last_metrics
        values = {} if self.task is None else self.task.metrics_snapshot()
        return TaskMetrics(self.attempt_id, values)


class TaskTable:
    """Entries by attempt. An entry stays while its JobMaster has not heard everything of it."""

    def __init__(self) -> None:
        self._entries: dict[ExecutionAttemptId, TaskEntry] = {}

    def add(self, entry: TaskEntry) -> None:
        """Add a new attempt."""
        assert entry.attempt_id not in self._entries
        self._entries[entry.attempt_id] = entry

    def find(self, attempt_id: ExecutionAttemptId) -> TaskEntry | None:
        """The entry, or None."""
        return self._entries.get(attempt_id)

    def remove(self, attempt_id: ExecutionAttemptId) -> None:
        """Forget an attempt."""
        self._entries.pop(attempt_id, None)

    def of_job(self, job_id: JobId) -> tuple[TaskEntry, ...]:
        """The job's entries, in order of submission."""
        return tuple(entry for entry in self if entry.attempt_id.job_id == job_id)

    @property
    def running(self) -> tuple[TaskEntry, ...]:
        """Entries whose task has not ended."""
        return tuple(entry for entry in self if not entry.has_ended)

    def __iter__(self) -> Iterator[TaskEntry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)
