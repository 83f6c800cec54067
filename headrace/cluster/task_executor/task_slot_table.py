"""TaskSlotTable: the slots of one TaskManager, their jobs, and the tasks in them. Pure; TaskSlots performs its changes.

    FREE --allocate--> ALLOCATED --accepted by the JobMaster--> ACTIVE
      ^                  | timeout, refused                       | free with tasks inside
      |                  v                                        v
      +---------------- (freed) <--last task gone----------- RELEASING
    ACTIVE --JobMaster lost--> ALLOCATED again, with a new timeout

A slot that is cut for a request takes its resources from those that no other slot uses, and is removed when it is free.
A timeout carries a ticket; only the slot's newest ticket has an effect. TaskSlots sets the timers, ends the tasks of
a released slot and notifies leaders, on the TaskExecutor's main thread.
Source: Flink TaskSlotTableImpl, TaskSlot; TaskExecutor (freeSlotInternal, syncTaskSlotsWithSnapshotFromJobMaster).
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.cluster.task_executor.job_connections import JobConnection
from headrace.cluster.task_executor.options import SLOT_TIMEOUT
from headrace.cluster.task_executor.task_manager_services import SlotReleasedError
from headrace.cluster.task_executor.task_table import TaskTable
from headrace.core.ids import AllocationId, ExecutionAttemptId, JobId, ResourceId, SlotId
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile, sum_of
from headrace.gateways.errors import SlotOccupiedError
from headrace.gateways.messages import (
    AllocatedSlotReport,
    SlotOffer,
    SlotReport,
    SlotStatus,
)
from headrace.gateways.task_executor import SlotRequest
from headrace.rpc.endpoint import RpcEndpoint


class TaskSlotState(enum.Enum):
    """State of one slot on its TaskManager."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    ACTIVE = "ACTIVE"
    RELEASING = "RELEASING"


@dataclass(frozen=True)
class SlotTicket:
    """Identifies one waiting period of an ALLOCATED slot."""

    allocation_id: AllocationId
    number: int


@dataclass(frozen=True)
class FreedSlot:
    """A slot that was freed, with its previous job."""

    slot_index: int
    job_id: JobId
    allocation_id: AllocationId


@dataclass
class _Slot:
    index: int
    profile: ResourceProfile
    is_cut: bool = False
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    state: TaskSlotState = TaskSlotState.FREE
    job_id: JobId | None = None
    allocation_id: AllocationId | None = None
    ticket_number: int = 0
    attempts: set[ExecutionAttemptId] = field(default_factory=set[ExecutionAttemptId])


class TaskSlotTable:
    """`slot_count` equal slots of `profile`, and slots that are cut from the same resources.

    `addresses`: those of the external resources, by name; each belongs to one slot at a time.
    """

    def __init__(
        self,
        slot_count: int,
        profile: ResourceProfile,
        addresses: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        assert slot_count >= 1
        self.profile = profile
        self._addresses = dict(addresses or {})
        self._slot_count = slot_count
        self._slots = [_Slot(index, profile) for index in range(slot_count)]
        self._next_ticket_number = 1

    def allocate(
        self,
        slot_index: int,
        job_id: JobId,
        allocation_id: AllocationId,
        profile: ResourceProfile = UNSPECIFIED,
    ) -> SlotTicket:
        """Reserve a slot (-1: any free one) and start its waiting period. SlotOccupiedError if it is not free.

        An index beyond the permanent slots is that of a slot to be cut for `profile`; SlotOccupiedError if too little
        is left. The same allocation again returns a new ticket, or the current one if the slot is in use.
        """
        slot = self._find(allocation_id)
        if slot is None:
            slot = (
                self._cut(slot_index, profile)
                if slot_index >= self._slot_count
                else self._free_slot(slot_index)
            )
            slot.addresses = self._free_addresses(slot.profile)
            slot.state, slot.job_id, slot.allocation_id = (
                TaskSlotState.ALLOCATED,
                job_id,
                allocation_id,
            )
        if slot.state is TaskSlotState.ALLOCATED:
            slot.ticket_number = self._draw_ticket_number()
        return SlotTicket(allocation_id, slot.ticket_number)

    def activate(self, allocation_id: AllocationId) -> bool:
        """Activate a slot that the JobMaster accepted; return False if it is gone or being released."""
        slot = self._find(allocation_id)
        if slot is None or slot.state is TaskSlotState.RELEASING:
            return False
        slot.state = TaskSlotState.ACTIVE
        slot.ticket_number = 0
        return True

    def deactivate(self, allocation_id: AllocationId) -> SlotTicket | None:
        """Let an ACTIVE slot wait for a JobMaster again, because its own was lost; return None for other slots."""
        slot = self._find(allocation_id)
        if slot is None or slot.state is not TaskSlotState.ACTIVE:
            return None
        slot.state = TaskSlotState.ALLOCATED
        slot.ticket_number = self._draw_ticket_number()
        return SlotTicket(allocation_id, slot.ticket_number)

    def is_expired(self, ticket: SlotTicket) -> bool:
        """Return whether an expired waiting period is the newest of its slot, which must then be freed."""
        slot = self._find(ticket.allocation_id)
        return (
            slot is not None
            and slot.state is TaskSlotState.ALLOCATED
            and slot.ticket_number == ticket.number
        )

    def free(self, allocation_id: AllocationId) -> FreedSlot | tuple[ExecutionAttemptId, ...]:
        """Free a slot at once or, if it has tasks, return these; `remove_task` frees it after the last one.

        An unknown allocation returns no tasks.
        """
        slot = self._find(allocation_id)
        if slot is None:
            return ()
        if slot.attempts:
            slot.state = TaskSlotState.RELEASING
            return tuple(sorted(slot.attempts))
        assert slot.job_id is not None
        freed = FreedSlot(slot.index, slot.job_id, allocation_id)
        self._clear(slot)
        return freed

    def add_task(self, allocation_id: AllocationId, attempt_id: ExecutionAttemptId) -> bool:
        """Put a task into an ACTIVE slot of its job; return False if there is no such slot."""
        slot = self._find(allocation_id)
        if (
            slot is None
            or slot.state is not TaskSlotState.ACTIVE
            or slot.job_id != attempt_id.job_id
        ):
            return False
        slot.attempts.add(attempt_id)
        return True

    def remove_task(self, attempt_id: ExecutionAttemptId) -> FreedSlot | None:
        """Remove a task that has ended; return its slot if that was being released and is free now, else None."""
        for slot in self._slots:
            if attempt_id in slot.attempts:
                slot.attempts.discard(attempt_id)
                if slot.state is TaskSlotState.RELEASING and not slot.attempts:
                    assert slot.allocation_id is not None and slot.job_id is not None
                    freed = FreedSlot(slot.index, slot.job_id, slot.allocation_id)
                    self._clear(slot)
                    return freed
        return None

    def state_of(self, allocation_id: AllocationId) -> TaskSlotState:
        """Return the state of the allocation's slot; FREE if there is none."""
        slot = self._find(allocation_id)
        return TaskSlotState.FREE if slot is None else slot.state

    def job_of(self, allocation_id: AllocationId) -> JobId | None:
        """Return the job of the allocation's slot, or None if there is no such slot."""
        slot = self._find(allocation_id)
        return None if slot is None else slot.job_id

    def allocations_of(self, job_id: JobId, *states: TaskSlotState) -> tuple[AllocationId, ...]:
        """Return the job's allocations in one of `states`, by slot index."""
        return tuple(
            slot.allocation_id
            for slot in self._slots
            if slot.job_id == job_id and slot.allocation_id is not None and slot.state in states
        )

    def offers_for(self, job_id: JobId) -> tuple[SlotOffer, ...]:
        """Return the job's slots that its JobMaster has not accepted yet."""
        return tuple(
            SlotOffer(slot.allocation_id, slot.index, slot.profile)
            for slot in self._slots
            if slot.job_id == job_id
            and slot.allocation_id is not None
            and slot.state is TaskSlotState.ALLOCATED
        )

    def addresses_of(self, allocation_id: AllocationId) -> Mapping[str, tuple[str, ...]]:
        """Return the addresses of external resources that belong to the allocation's slot, by name."""
        slot = self._find(allocation_id)
        return {} if slot is None else slot.addresses

    def has_slots_of(self, job_id: JobId) -> bool:
        """Return whether any slot belongs to the job."""
        return any(slot.job_id == job_id for slot in self._slots)

    def report(self, resource_id: ResourceId) -> SlotReport:
        """Return the current state of every slot."""
        return SlotReport(
            tuple(
                SlotStatus(
                    SlotId(resource_id, slot.index),
                    slot.profile,
                    slot.job_id,
                    slot.allocation_id,
                    slot.is_cut,
                )
                for slot in self._slots
            )
        )

    def __iter__(self) -> Iterator[tuple[int, TaskSlotState]]:
        return iter([(slot.index, slot.state) for slot in self._slots])

    def _find(self, allocation_id: AllocationId) -> _Slot | None:
        for slot in self._slots:
            if slot.allocation_id == allocation_id:
                return slot
        return None

    def _free_slot(self, slot_index: int) -> _Slot:
        for slot in self._slots:
            is_asked_for = slot_index in (-1, slot.index) and not slot.is_cut
            if is_asked_for and slot.state is TaskSlotState.FREE:
                self._refuse_above_rest(slot.profile)
                return slot
        raise SlotOccupiedError(f"slot {slot_index} is not free")

    def _cut(self, slot_index: int, profile: ResourceProfile) -> _Slot:
        if any(slot.index == slot_index for slot in self._slots):
            raise SlotOccupiedError(f"slot {slot_index} is not free")
        self._refuse_above_rest(profile)
        slot = _Slot(slot_index, profile, is_cut=True)
        self._slots.append(slot)
        return slot

    def _refuse_above_rest(self, profile: ResourceProfile) -> None:
        used = sum_of(s.profile for s in self._slots if s.state is not TaskSlotState.FREE)
        rest = self.profile.times(self._slot_count).minus(used)
        if not rest.matches(profile):
            raise SlotOccupiedError(f"a slot of {profile} is too large for what is left: {rest}")

    def _free_addresses(self, profile: ResourceProfile) -> dict[str, tuple[str, ...]]:
        """Return unused addresses, as many of each external resource as the profile requires."""
        taken = {
            (name, each)
            for slot in self._slots
            if slot.state is not TaskSlotState.FREE
            for name, addresses in slot.addresses.items()
            for each in addresses
        }
        return {
            name: tuple(each for each in addresses if (name, each) not in taken)[
                : profile.amount_of(name)
            ]
            for name, addresses in self._addresses.items()
        }

    def _draw_ticket_number(self) -> int:
        number = self._next_ticket_number
        self._next_ticket_number += 1
        return number

    def _clear(self, slot: _Slot) -> None:
        slot.state, slot.job_id, slot.allocation_id = TaskSlotState.FREE, None, None
        slot.ticket_number = 0
        if slot.is_cut:
            self._slots.remove(slot)


class TaskSlots:
    """Slots of one TaskExecutor. `table` has their current state; `on_freed` is called when a slot is freed."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        table: TaskSlotTable,
        tasks: TaskTable,
        on_freed: Callable[[FreedSlot], None],
    ) -> None:
        self.table: Final = table
        self._endpoint: Final = endpoint
        self._on_freed: Final = on_freed
        self._tasks: Final = tasks
        self._timeout_ms: Final = endpoint.settings.duration_ms(SLOT_TIMEOUT)

    def allocate(self, request: SlotRequest) -> None:
        """Reserve a slot until its JobMaster accepts it or the time-out passes. SlotOccupiedError if it is not free."""
        ticket = self.table.allocate(
            request.slot_id.slot_index,
            request.job_id,
            request.allocation_id,
            request.profile,
        )
        self._await_activation(ticket)

    def enter(self, allocation_id: AllocationId, attempt_id: ExecutionAttemptId) -> bool:
        """Put a task into a slot of its job; return False if there is no such slot.

        A JobMaster that deploys into a slot has accepted it, even if its answer has not arrived yet.
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
        """Activate the slots that the JobMaster accepted, and free the other offered ones."""
        for offer in offered:
            allocation_id = offer.allocation_id
            if allocation_id not in accepted:
                self.free(allocation_id, "the JobMaster did not accept it")
            elif not self.table.activate(allocation_id):
                connection.fail_slot(allocation_id, "the slot was freed while it was offered")

    def reconcile(self, connection: JobConnection, slots: AllocatedSlotReport) -> None:
        """Compare the slots in the JobMaster's report with those here."""
        for allocation_id in slots.allocation_ids:
            if self.table.state_of(allocation_id) is TaskSlotState.FREE:
                connection.fail_slot(allocation_id, "the TaskManager does not have this slot")
        active = self.table.allocations_of(slots.job_id, TaskSlotState.ACTIVE)
        unlisted = {each for each in active if each not in slots.allocation_ids}
        # Requests and answers take different connections: a report may have left before the JobMaster accepted
        # a slot that is active here. So only slots missing in two consecutive reports count as forgotten.
        for allocation_id in sorted(unlisted & connection.unlisted_slots):
            self.free(allocation_id, "the JobMaster does not have it any more")
        connection.unlisted_slots = unlisted

    def await_job_master(self, job_id: JobId) -> None:
        """Let the slots of a lost JobMaster wait for a new one, as long as they waited at first."""
        for allocation_id in self.table.allocations_of(job_id, TaskSlotState.ACTIVE):
            ticket = self.table.deactivate(allocation_id)
            if ticket is not None:
                self._await_activation(ticket)

    def free(self, allocation_id: AllocationId, cause: str) -> None:
        """Release a slot, at once or with the last of its tasks, which are failed."""
        result = self.table.free(allocation_id)
        if isinstance(result, FreedSlot):
            self._on_freed(result)
            return
        for attempt_id in result:
            entry = self._tasks.find(attempt_id)
            assert entry is not None, "a task in a slot is in the table"
            self._tasks.fail_task(entry, SlotReleasedError(f"its slot was freed: {cause}"))

    def free_all(self, job_id: JobId, cause: str) -> None:
        """Release all slots of a job."""
        states = (TaskSlotState.ALLOCATED, TaskSlotState.ACTIVE)
        for allocation_id in self.table.allocations_of(job_id, *states):
            self.free(allocation_id, cause)

    def _await_activation(self, ticket: SlotTicket) -> None:
        def timed_out() -> None:
            if self.table.is_expired(ticket):
                self.free(ticket.allocation_id, "no JobMaster accepted it in time")

        self._endpoint.schedule_run_async(self._timeout_ms, timed_out)
