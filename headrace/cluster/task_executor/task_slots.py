"""TaskSlots: the slots of a TaskManager over time: who waits for which, until when, and what ends with a slot.

The table decides; timers, the tasks in a slot and what leaders hear of it are here. Runs on the TaskExecutor's main
thread. Source: Flink TaskExecutor (freeSlotInternal, syncTaskSlotsWithSnapshotFromJobMaster), TimerService.
"""

from typing import Final, Protocol

from headrace.cluster.task_executor.job_connections import JobConnection
from headrace.cluster.task_executor.options import SLOT_TIMEOUT
from headrace.cluster.task_executor.setup import SlotReleasedError
from headrace.cluster.task_executor.slot_table import (
    FreedSlot,
    SlotTicket,
    TaskSlotState,
    TaskSlotTable,
)
from headrace.cluster.task_executor.task_table import TaskTable
from headrace.core.ids import AllocationId, ExecutionAttemptId, JobId
from headrace.gateways.messages import AllocatedSlotReport, SlotOffer
from headrace.gateways.task_executor import SlotRequest
from headrace.rpc.endpoint import RpcEndpoint


class TaskSlotsOwner(Protocol):
    """What the TaskExecutor does about its slots."""

    def slot_freed(self, freed: FreedSlot) -> None:
        """Nobody has the slot any more."""
        ...


class TaskSlots:
    """One per TaskExecutor. `table` is how the slots stand now."""

    def __init__(
        self, endpoint: RpcEndpoint, owner: TaskSlotsOwner, table: TaskSlotTable, tasks: TaskTable
    ) -> None:
        self.table: Final = table
        self._endpoint: Final = endpoint
        self._owner: Final = owner
        self._tasks: Final = tasks
        self._timeout_ms: Final = endpoint.settings.duration_ms(SLOT_TIMEOUT)

    def allocate(self, request: SlotRequest) -> None:
        """Reserve a slot, until its JobMaster accepts it or has had its time; SlotOccupiedError."""
        ticket = self.table.allocate(
            request.slot_id.slot_index, request.job_id, request.allocation_id
        )
        self._await_activation(ticket)

    def enter(self, allocation_id: AllocationId, attempt_id: ExecutionAttemptId) -> bool:
        """Put a task into a slot of its job; False where there is no such slot.

        A JobMaster that deploys into a slot has accepted it, whether or not its answer has come.
        """
        if self.table.state_of(allocation_id) is TaskSlotState.ALLOCATED:
            self.table.activate(allocation_id)
        return self.table.add_task(allocation_id, attempt_id)

    def answered(
        self,
        connection: JobConnection,
        offered: tuple[SlotOffer, ...],
        accepted: tuple[AllocationId, ...],
    ) -> None:
        """The JobMaster took these; it needs none of the others."""
        for offer in offered:
            allocation_id = offer.allocation_id
            if allocation_id not in accepted:
                self.free(allocation_id, "the JobMaster did not accept it")
            elif not self.table.activate(allocation_id):
                connection.fail_slot(allocation_id, "the slot was freed while it was offered")

    def reconcile(self, connection: JobConnection, slots: AllocatedSlotReport) -> None:
        """Compare what the JobMaster says it has with what it has here."""
        for allocation_id in slots.allocation_ids:
            if self.table.state_of(allocation_id) is TaskSlotState.FREE:
                connection.fail_slot(allocation_id, "the TaskManager does not have this slot")
        active = self.table.allocations_of(slots.job_id, TaskSlotState.ACTIVE)
        unlisted = {each for each in active if each not in slots.allocation_ids}
        # Requests and answers take different connections: a report may have left before the JobMaster accepted
        # what is active here. So only what two reports in a row do not list is taken for forgotten.
        for allocation_id in sorted(unlisted & connection.unlisted_slots):
            self.free(allocation_id, "the JobMaster does not have it any more")
        connection.unlisted_slots = unlisted

    def await_job_master(self, job_id: JobId) -> None:
        """The JobMaster was lost: its slots wait for it to come back, as long as they waited for it at first."""
        for allocation_id in self.table.allocations_of(job_id, TaskSlotState.ACTIVE):
            ticket = self.table.deactivate(allocation_id)
            if ticket is not None:
                self._await_activation(ticket)

    def free(self, allocation_id: AllocationId, cause: str) -> None:
        """Give a slot up: at once, or with the last of the tasks in it, which fail."""
        result = self.table.free(allocation_id)
        if isinstance(result, FreedSlot):
            self._owner.slot_freed(result)
            return
        for attempt_id in result:
            entry = self._tasks.find(attempt_id)
            assert entry is not None, "a task in a slot is in the table"
            self._tasks.fail_task(entry, SlotReleasedError(f"its slot was freed: {cause}"))

    def free_all(self, job_id: JobId, cause: str) -> None:
        """Give up all slots of a job."""
        states = (TaskSlotState.ALLOCATED, TaskSlotState.ACTIVE)
        for allocation_id in self.table.allocations_of(job_id, *states):
            self.free(allocation_id, cause)

    def _await_activation(self, ticket: SlotTicket) -> None:
        def timed_out() -> None:
            if self.table.is_expired(ticket):
                self.free(ticket.allocation_id, "no JobMaster accepted it in time")

        self._endpoint.schedule_run_async(self._timeout_ms, timed_out)
