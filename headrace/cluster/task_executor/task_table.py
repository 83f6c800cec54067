"""TaskTable: keeps the tasks of one TaskManager, from their submission until their last report was acknowledged.

A task that was cancelled or failed is watched: one that does not end in time is stopped with its process.
PayloadLoader loads payloads and files that descriptors only name, once per TaskManager, while tasks wait in DEPLOYING.
A task is built and acknowledged before, so that its partitions exist for consumers however long a blob takes.
Source: Flink TaskTable, Task.TaskCancelerWatchDog, TaskDeploymentDescriptor.loadBigData.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace.cluster.blob.artifact_cache import ArtifactCache
from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.blob.virtual_environment import (
    PackageConflictError,
    RequirementsNotInstalledError,
)
from headrace.cluster.task_executor.deployment import RunningTask
from headrace.cluster.task_executor.job_connections import JobConnections
from headrace.cluster.task_executor.task_outbox import TaskOutbox
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.errors import DECODE_ERRORS, HeadraceError
from headrace.core.ids import (
    AllocationId,
    ExecutionAttemptId,
    JobId,
    OperatorId,
    size_text,
)
from headrace.gateways.errors import BlobTransferError, UnfitArchiveError
from headrace.gateways.messages import TaskMetrics
from headrace.gateways.task_executor import TaskDeploymentDescriptor
from headrace.graph.job_graph import VertexPayloads
from headrace.graph.pipeline_options import TASK_CANCELLATION_TIMEOUT
from headrace.metrics.cluster_names import TASK_RECORDS_IN, TASK_RECORDS_OUT, TASKS_RUNNING
from headrace.metrics.names import NUM_RECORDS_IN, NUM_RECORDS_OUT
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)

_END_TIMEOUT_MS: Final = 3_000
_END_POLL_S: Final = 0.01
_TOTALS: Final = {
    NUM_RECORDS_IN.name: TASK_RECORDS_IN,
    NUM_RECORDS_OUT.name: TASK_RECORDS_OUT,
}
"""Counters of tasks, and the process metrics that sum them."""


@dataclass
class TaskEntry:
    """One attempt of a task. `settings` are the job's over the TaskManager's."""

    attempt_id: ExecutionAttemptId
    allocation_id: AllocationId
    display_name: str
    settings: Settings
    outbox: TaskOutbox
    task: RunningTask
    has_ended: bool = False
    last_metrics: TaskMetrics | None = None
    watchdog: Cancellable | None = None
    next_event_number: int = 0

    def deliver_event(self, operator_id: OperatorId, sequence_number: int, payload: bytes) -> None:
        """Pass a coordinator's event to the task, unless it was delivered before."""
        assert sequence_number <= self.next_event_number, "an event was skipped"
        if sequence_number == self.next_event_number:
            self.next_event_number += 1
            self.task.deliver_operator_event(operator_id, payload)

    def cancel(self) -> None:
        """Cancel the task."""
        self.outbox.interrupt()
        self.task.cancel()

    def fail(self, error: BaseException) -> None:
        """Fail the task."""
        self.outbox.interrupt()
        self.task.fail_externally(error)

    def mark_ended(self) -> None:
        """Record that the task has ended, and stop its watchdog."""
        self.has_ended = True
        if self.watchdog is not None:
            self.watchdog.cancel()

    def metrics(self) -> TaskMetrics:
        """Return the task's current metrics, or its last ones."""
        if self.last_metrics is not None:
            return self.last_metrics
        values = self.task.metrics_snapshot()
        return TaskMetrics(self.attempt_id, values, self.task.user_counters())


class TaskTable:
    """Tasks by attempt. An entry stays until its JobMaster has acknowledged all its reports.

    `exit_process(reason)` ends the process at once.
    """

    def __init__(self, endpoint: RpcEndpoint, exit_process: Callable[[str], None]) -> None:
        self._endpoint: Final = endpoint
        self._exit_process: Final = exit_process
        self._entries: dict[ExecutionAttemptId, TaskEntry] = {}
        # Records received and sent by tasks that have ended.
        self._ended: dict[str, float] = dict.fromkeys(_TOTALS, 0.0)
        # Other threads read metrics: for them a task is always either among the entries or among the ended ones.
        self._lock: Final = threading.Lock()

    def add(self, entry: TaskEntry) -> None:
        """Add a new attempt."""
        assert entry.attempt_id not in self._entries
        self._entries[entry.attempt_id] = entry

    def find(self, attempt_id: ExecutionAttemptId) -> TaskEntry | None:
        """Return the entry, or None."""
        return self._entries.get(attempt_id)

    def remove(self, entry: TaskEntry) -> None:
        """Forget an attempt that has ended and has no more reports to send."""
        entry.mark_ended()
        entry.outbox.close()
        last = entry.metrics()
        with self._lock:
            _add(self._ended, last)
            self._entries.pop(entry.attempt_id, None)

    def cancel_task(self, entry: TaskEntry, is_forced: bool = False) -> None:
        """Cancel a task unless it has ended, and monitor its end; `is_forced`: end it at once, with its process."""
        if entry.has_ended:
            return
        if is_forced:
            self._exit_process(
                f"task '{entry.display_name}' did not return, although its job must end at once"
            )
        self._watch(entry)
        entry.cancel()

    def fail_task(self, entry: TaskEntry, error: BaseException) -> None:
        """Fail a task unless it has ended, and monitor its end."""
        if not entry.has_ended:
            self._watch(entry)
            entry.fail(error)

    def of_job(self, job_id: JobId) -> tuple[TaskEntry, ...]:
        """Return the job's entries, in order of submission."""
        return tuple(entry for entry in self if entry.attempt_id.job_id == job_id)

    @property
    def running(self) -> tuple[TaskEntry, ...]:
        """Entries whose task has not ended."""
        return tuple(entry for entry in self if not entry.has_ended)

    def metrics(self) -> dict[str, float]:
        """Return the totals of all tasks since the start, and the number of running ones, as process metrics.

        Any thread.
        """
        with self._lock:
            totals, entries = self._ended.copy(), tuple(self)
        for entry in entries:
            _add(totals, entry.metrics())
        return {
            TASKS_RUNNING.name: float(sum(not entry.has_ended for entry in entries)),
            **{name.name: totals[counted] for counted, name in _TOTALS.items()},
        }

    async def await_end(self) -> None:
        """Wait a limited time for tasks to release their resources and report their end."""
        clock = self._endpoint.clock
        deadline_ns = clock.monotonic_ns() + _END_TIMEOUT_MS * 1_000_000
        while self._entries and clock.monotonic_ns() < deadline_ns:
            await asyncio.sleep(_END_POLL_S)
        for entry in self.running:
            _LOG.warning(
                "task '%s' has not ended in time; the process ends anyway", entry.display_name
            )

    def __iter__(self) -> Iterator[TaskEntry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def _watch(self, entry: TaskEntry) -> None:
        timeout_ms = entry.settings.duration_ms(TASK_CANCELLATION_TIMEOUT)
        if entry.watchdog is not None or timeout_ms <= 0:
            return

        def stuck() -> None:
            if not entry.has_ended:
                self._exit_process(
                    f"task '{entry.display_name}' did not end within {timeout_ms / 1000:g} s "
                    "(task.cancellation.timeout) after it was cancelled"
                )

        entry.watchdog = self._endpoint.schedule_run_async(timeout_ms, stuck)


def _add(totals: dict[str, float], metrics: TaskMetrics) -> None:
    for name in totals:
        totals[name] += metrics.values.get(name, 0.0)


class PayloadLoader:
    """Loads payloads for the tasks of one TaskExecutor, on its main thread."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        tasks: TaskTable,
        jobs: JobConnections,
        cache: BlobCache,
        artifacts: ArtifactCache,
    ) -> None:
        self._endpoint: Final = endpoint
        self._tasks: Final = tasks
        self._jobs: Final = jobs
        self._cache: Final = cache
        self._artifacts: Final = artifacts

    def load(self, entry: TaskEntry, descriptor: TaskDeploymentDescriptor) -> None:
        """Deliver payloads to a task, unless it has them, after the files of its job. Errors fail the task."""
        if descriptor.vertex.payloads is not None or descriptor.artifacts:
            self._endpoint.spawn(self._load(entry, descriptor), f"payloads of {entry.attempt_id}")

    async def _load(self, entry: TaskEntry, descriptor: TaskDeploymentDescriptor) -> None:
        job_id, key = entry.attempt_id.job_id, descriptor.vertex.payloads
        connection = self._jobs.find(job_id)
        address = "" if connection is None else connection.blob_server_address
        size = sum(each.key.size_bytes for each in descriptor.artifacts if each.key is not None)
        what = f"its files ({size_text(size)})"
        try:
            if descriptor.artifacts:
                await self._artifacts.provide(job_id, descriptor.artifacts, entry.settings, address)
            if key is None:
                edges = tuple(each.edge for each in descriptor.result_partitions)
                payloads = VertexPayloads.of(descriptor.vertex, edges)
            else:
                what = f"the functions and collections of '{descriptor.vertex.name}' ({size_text(key.size_bytes)})"
                payloads = VertexPayloads.decode(await self._cache.open(job_id, key, address))
        except (PackageConflictError, RequirementsNotInstalledError, UnfitArchiveError) as error:
            self._tasks.fail_task(entry, error)
            return
        except (HeadraceError, OSError, *DECODE_ERRORS) as error:
            text = f"job '{descriptor.job_name}' ({job_id}): {what} could not be fetched from {address}"
            self._tasks.fail_task(entry, BlobTransferError(f"{text}: {error}"))
            return
        entry.task.deliver_payloads(payloads)
