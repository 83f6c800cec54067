"""TaskSlotTable: the slots of one TaskManager, their jobs, and the tasks in them. Pure; TaskSlots acts on it.

    FREE --allocate--> ALLOCATED --accepted by the JobMaster--> ACTIVE
      ^                  | timeout, refused                       | free with tasks inside
      |                  v                                        v
      +---------------- (freed) <--last task gone----------- RELEASING
    ACTIVE --JobMaster lost--> ALLOCATED again, with a new timeout

A slot that is cut for a request takes its resources from what no other slot uses, and is gone when it is free.
A timeout carries a ticket; one that is not the slot's newest does nothing. TaskSlots sets the timers, ends the tasks of
a slot that is given up and tells leaders of it, on the TaskExecutor's main thread.
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
    """Names one waiting period of an ALLOCATED slot."""

    allocation_id: AllocationId
    number: int


@dataclass(frozen=True)
class FreedSlot:
    """A slot that nobody has any more, and who had it."""

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
    """`slot_count` equal slots of `profile`, and those that are cut from the same resources.

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
        """Reserve a slot (-1: any free one) and start its waiting period; SlotOccupiedError where it is taken.

        An index beyond those that are always there is that of a slot to be cut for `profile`; SlotOccupiedError where
        too little is left. The same allocation again answers with a new ticket, or with the present one where the
        slot is in use.
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
        """The JobMaster accepted the slot; False where it is gone or being released."""
        slot = self._find(allocation_id)
        if slot is None or slot.state is TaskSlotState.RELEASING:
            return False
        slot.state = TaskSlotState.ACTIVE
        slot.ticket_number = 0
        return True

    def deactivate(self, allocation_id: AllocationId) -> SlotTicket | None:
        """The JobMaster was lost: wait for it again. None unless the slot was ACTIVE."""
        slot = self._find(allocation_id)
        if slot is None or slot.state is not TaskSlotState.ACTIVE:
            return None
        slot.state = TaskSlotState.ALLOCATED
        slot.ticket_number = self._draw_ticket_number()
        return SlotTicket(allocation_id, slot.ticket_number)

    def is_expired(self, ticket: SlotTicket) -> bool:
        """Whether a waiting period that is over was the newest of its slot: the slot is then to be freed."""
        slot = self._find(ticket.allocation_id)
        return (
            slot is not None
            and slot.state is TaskSlotState.ALLOCATED
            and slot.ticket_number == ticket.number
        )

    def free(self, allocation_id: AllocationId) -> FreedSlot | tuple[ExecutionAttemptId, ...]:
        """Give the slot up: FREE at once, or, after the tasks that are returned have ended, by `remove_task`.

        An unknown allocation answers with no tasks.
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
        """Put a task into an ACTIVE slot of its job; False where there is no such slot."""
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
        """A task has ended. Returns the slot where this was what its release waited for, else None."""
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
        """State of the allocation's slot; FREE where there is none."""
        slot = self._find(allocation_id)
        return TaskSlotState.FREE if slot is None else slot.state

    def job_of(self, allocation_id: AllocationId) -> JobId | None:
        """The job that the allocation's slot belongs to, or None where there is no such slot."""
        slot = self._find(allocation_id)
        return None if slot is None else slot.job_id

    def allocations_of(self, job_id: JobId, *states: TaskSlotState) -> tuple[AllocationId, ...]:
        """The job's allocations in one of `states`, by slot index."""
        return tuple(
            slot.allocation_id
            for slot in self._slots
            if slot.job_id == job_id and slot.allocation_id is not None and slot.state in states
        )

    def offers_for(self, job_id: JobId) -> tuple[SlotOffer, ...]:
        """The job's slots that its JobMaster has not accepted yet."""
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
        """Whether any slot belongs to the job."""
        return any(slot.job_id == job_id for slot in self._slots)

    def report(self, resource_id: ResourceId) -> SlotReport:
        """Every slot as it stands."""
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
        """Return as many addresses of each external resource as the profile names, of those that no slot has."""
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
    """One per TaskExecutor. `table` is how the slots stand now; `on_freed` hears that nobody has a slot any more."""

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
        """Reserve a slot, until its JobMaster accepts it or has had its time; SlotOccupiedError."""
        ticket = self.table.allocate(
            request.slot_id.slot_index,
            request.job_id,
            request.allocation_id,
            request.profile,
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
            self._on_freed(result)
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
