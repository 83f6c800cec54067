"""TaskTable: the tasks of one TaskManager, from their submission until their last report was heard."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.cluster.task_executor.deployment import RunningTask
from headrace.cluster.task_executor.task_reports import TaskOutbox
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.ids import AllocationId, ExecutionAttemptId, JobId
from headrace.gateways.messages import TaskMetrics


@dataclass
class TaskEntry:
    """One attempt. `settings` are the job's over the TaskManager's."""

    attempt_id: ExecutionAttemptId
    allocation_id: AllocationId
    display_name: str
    settings: Settings
    outbox: TaskOutbox
    task: RunningTask
    has_ended: bool = False
    last_metrics: TaskMetrics | None = None
    watchdog: Cancellable | None = None

    def cancel(self) -> None:
        """Cancel the task."""
        self.outbox.interrupt()
        self.task.cancel()

    def fail(self, error: BaseException) -> None:
        """Fail the task."""
        self.outbox.interrupt()
        self.task.fail_externally(error)

    def metrics(self) -> TaskMetrics:
        """The task's metrics now, or its last ones."""
        if self.last_metrics is not None:
            return self.last_metrics
        return TaskMetrics(self.attempt_id, self.task.metrics_snapshot())


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
