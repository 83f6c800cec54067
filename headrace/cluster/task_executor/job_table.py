"""JobTable: keeps a TaskManager's slots, tasks, results and payloads by job, and the connection to its JobMaster.

A job is here from its first slot to its last slot and task. Whoever leads it may be lost and come back meanwhile: its
tasks fail then, and its slots wait. Main thread of the TaskExecutor. Source: Flink JobTable,
TaskExecutor.JobLeaderListenerImpl, TaskExecutor.SlotActionsImpl.
"""

from collections.abc import Callable
from typing import Final

from headrace.cluster.blob.blob_cache import BlobCache
from headrace.cluster.task_executor.cluster_partitions import ClusterPartitions
from headrace.cluster.task_executor.job_connections import JobConnections
from headrace.cluster.task_executor.pending_state_reads import PendingStateReads
from headrace.cluster.task_executor.task_manager_services import (
    JobMasterLostError,
    TaskManagerServices,
)
from headrace.cluster.task_executor.task_reporter import TaskReporter
from headrace.cluster.task_executor.task_slot_table import FreedSlot, TaskSlots, TaskSlotTable
from headrace.cluster.task_executor.task_table import PayloadLoader, TaskEntry, TaskTable
from headrace.core.ids import AllocationId, ExecutionAttemptId, JobId, SlotId
from headrace.gateways.task_executor import SlotRequest
from headrace.rpc.endpoint import RpcEndpoint


class JobTable:
    """One per TaskExecutor, its endpoint. `on_slot_freed` hears of slots that others may have."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        setup: TaskManagerServices,
        on_slot_freed: Callable[[SlotId, AllocationId], None],
    ) -> None:
        self._setup: Final = setup
        self._on_slot_freed: Final = on_slot_freed
        self.tasks: Final = TaskTable(endpoint, setup.exit_process)
        self.cluster_partitions: Final = ClusterPartitions(setup.partitions)
        slots = TaskSlotTable(setup.slot_count, setup.slot_profile)
        self.slots: Final = TaskSlots(endpoint, slots, self.tasks, self._slot_freed)
        self.connections: Final = JobConnections(
            endpoint,
            setup.resource_id,
            setup.location,
            offers_for=slots.offers_for,
            on_answered=self.slots.answered,
            on_lost=self._job_master_lost,
            on_rejected=self._job_master_rejected,
        )
        self.reporter: Final = TaskReporter(endpoint, self.tasks, self.connections, self._task_gone)
        cache = BlobCache(endpoint, setup.run_blocking, setup.scratch)
        self.payloads: Final = PayloadLoader(endpoint, self.tasks, self.connections, cache)
        self.reads: Final = PendingStateReads(endpoint)

    async def close(self) -> None:
        """The TaskManager ends, and its JobMasters know it."""
        for entry in self.tasks:
            entry.outbox.close()
        await self.payloads.close()

    def allocate_slot(self, request: SlotRequest) -> None:
        """Reserve a slot for a job and offer it to its JobMaster; SlotOccupiedError."""
        self.slots.allocate(request)
        self.payloads.retain_job(request.job_id)
        self.connections.follow(request.job_id, request.job_master_address, request.job_master_id)
        self.connections.offer_slots(request.job_id)

    def end_of_job(self, job_id: JobId) -> None:
        """Its JobMaster said that the job is over."""
        self.connections.end_of_job(job_id)
        self._free_slots_of(job_id, "the job is over")

    def leave_slot(self, attempt_id: ExecutionAttemptId) -> None:
        """A task is not in its slot any more, which may have been given up meanwhile."""
        freed = self.slots.table.remove_task(attempt_id)
        if freed is not None:
            self._slot_freed(freed)
        else:
            self._close_if_over(attempt_id.job_id)

    def _job_master_rejected(self, job_id: JobId, reason: str) -> None:
        self._free_slots_of(job_id, f"the JobMaster rejected the TaskManager: {reason}")

    def _job_master_lost(self, job_id: JobId, cause: str) -> None:
        for entry in self.tasks.of_job(job_id):
            entry.outbox.close()
            if entry.has_ended:
                self._task_gone(entry)
            else:
                self.tasks.fail_task(entry, JobMasterLostError(f"the JobMaster was lost: {cause}"))
        self.slots.await_job_master(job_id)

    def _slot_freed(self, freed: FreedSlot) -> None:
        slot_id = SlotId(self._setup.resource_id, freed.slot_index)
        self._on_slot_freed(slot_id, freed.allocation_id)
        self._close_if_over(freed.job_id)

    def _task_gone(self, entry: TaskEntry) -> None:
        """Forget a task that has ended; its JobMaster knows of the end, or never will."""
        self.tasks.remove(entry)
        self.reads.task_gone(entry.attempt_id)
        self.leave_slot(entry.attempt_id)

    def _free_slots_of(self, job_id: JobId, cause: str) -> None:
        self.slots.free_all(job_id, cause)
        self._close_if_over(job_id)

    def _close_if_over(self, job_id: JobId) -> None:
        if not self.slots.table.has_slots_of(job_id) and not self.tasks.of_job(job_id):
            self.cluster_partitions.release_job(job_id)
            self.connections.close(job_id, "no slots of the job are left here")
            self.payloads.release_job(job_id)
