"""SlotMatching: assigns free slots to the requirements of jobs, and tracks the owner of each slot. Pure.

    FREE --matched--> PENDING --TaskManager accepted--> ALLOCATED
      ^                  | refused, timed out               | freed, or reported empty
      +------------------+----------------------------------+

Requirements are whole sets: a job's declaration replaces its previous one. Exclusive TaskManagers belong to the
first job that gets one of their slots, and are spent once that job needs no more slots. For a request that names
resources a slot is cut from the rest of a TaskManager's resources; another request takes one of the permanent slots
while enough is left. A job that cannot have all its slots before others free some takes none (see
slot_admission).
Source: Flink FineGrainedSlotManager, DefaultResourceAllocationStrategy, DefaultSlotStatusSyncer.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.cluster.resource_manager.slot_admission import Admission, Claim, admit
from headrace.core.ids import AllocationId, JobId, ResourceId, SlotId
from headrace.core.resource_profile import ResourceProfile, order_of_size, sum_of, unserved
from headrace.gateways.messages import SlotStatus
from headrace.gateways.resource_manager import ResourceRequirement, SlotInfo

_UNKNOWN_JOB: Final = JobId(bytes(16))
"""Owner of an idle exclusive TaskManager that registers again, as it is unknown whose modules it has loaded."""


class SlotState(enum.Enum):
    """States of a slot as known to the ResourceManager."""

    FREE = "FREE"
    PENDING = "PENDING"
    ALLOCATED = "ALLOCATED"


# Events


@dataclass(frozen=True)
class RequirementsDeclared:
    """All requirements of a job; empty when it needs no slots any more."""

    job_id: JobId
    requirements: tuple[ResourceRequirement, ...]


@dataclass(frozen=True)
class TaskManagerAdded:
    """A TaskManager registered and reported its slots. `is_previous`: it worked for an earlier ResourceManager."""

    resource_id: ResourceId
    slots: tuple[SlotStatus, ...]
    is_previous: bool = False


@dataclass(frozen=True)
class TaskManagerRemoved:
    """A TaskManager is gone or must not be used any more."""

    resource_id: ResourceId


@dataclass(frozen=True)
class TaskManagerDecommissioned:
    """The host removes a TaskManager soon: no job gets its slots, and jobs that use some need others."""

    resource_id: ResourceId


@dataclass(frozen=True)
class SlotsReported:
    """A heartbeat reported the actual slots of a TaskManager."""

    resource_id: ResourceId
    slots: tuple[SlotStatus, ...]


@dataclass(frozen=True)
class SlotFreed:
    """The TaskManager released an allocation."""

    resource_id: ResourceId
    allocation_id: AllocationId


@dataclass(frozen=True)
class AllocationAnswered:
    """The TaskManager accepted or refused the slot request, or did not answer."""

    resource_id: ResourceId
    allocation_id: AllocationId
    is_accepted: bool


@dataclass(frozen=True)
class BlockedHostPatienceEnded:
    """A job has passed over TaskManagers for long enough."""


SlotEvent = (
    RequirementsDeclared
    | TaskManagerAdded
    | TaskManagerRemoved
    | TaskManagerDecommissioned
    | SlotsReported
    | SlotFreed
    | AllocationAnswered
    | BlockedHostPatienceEnded
)


@dataclass(frozen=True)
class AllocateSlot:
    """Request to reserve the slot for the job at the TaskManager; the only action."""

    resource_id: ResourceId
    slot_index: int
    job_id: JobId
    allocation_id: AllocationId
    profile: ResourceProfile


@dataclass(frozen=True)
class MissingSlots:
    """Slots that one job still lacks for one requirement."""

    job_id: JobId
    profile: ResourceProfile
    required_count: int
    missing_count: int
    is_held_back: bool = False
    """True if the job takes none before other jobs have freed as many as it lacks."""
    waits_for: JobId | None = None
    """Job for which this one waits because that has waited for too long; the job itself if it is that one."""


@dataclass
class _Slot:
    profile: ResourceProfile
    is_cut: bool = False
    state: SlotState = SlotState.FREE
    job_id: JobId | None = None
    allocation_id: AllocationId | None = None

    def free(self) -> None:
        self.state, self.job_id, self.allocation_id = SlotState.FREE, None, None

    def reserve(self, state: SlotState, job_id: JobId | None, allocation_id: AllocationId) -> None:
        self.state, self.job_id, self.allocation_id = state, job_id, allocation_id


@dataclass
class SlotMatching:
    """All slots and all requirements. `new_allocation_id` draws ids.

    TaskManagers are filled in order of arrival; if slots `are_spread_out`, the least used one comes next. Blocked ones
    (`is_blocked`) come last; they give no slots to a job that `passes_over` them, which is called with the job, the
    TaskManager and the number of slots that the job needs. TaskManagers made for requests of one size (`is_sized`)
    serve no request without a size. Unless slots `are_cut`, all are permanent. `capacity()` is the largest number of
    slots, None if unknown; a TaskManager has `slots_per_worker` of them. A job `is_impatient` once it has waited for
    too long.
    """

    new_allocation_id: Callable[[], AllocationId]
    is_exclusive: bool = False
    are_spread_out: bool = False
    is_blocked: Callable[[ResourceId], bool] = lambda _: False
    passes_over: Callable[[JobId, ResourceId, int], bool] = lambda *_: False
    is_sized: Callable[[ResourceId], bool] = lambda _: False
    are_cut: bool = True
    capacity: Callable[[], int | None] = lambda: None
    slots_per_worker: int = 1
    is_impatient: Callable[[JobId], bool] = lambda _: False
    _slots: dict[ResourceId, dict[int, _Slot]] = field(
        default_factory=dict[ResourceId, dict[int, _Slot]]
    )
    _served: set[JobId] = field(default_factory=set[JobId], init=False)
    _requirements: dict[JobId, tuple[ResourceRequirement, ...]] = field(
        default_factory=dict[JobId, tuple[ResourceRequirement, ...]]
    )
    _change_numbers: dict[ResourceId, int] = field(default_factory=dict[ResourceId, int])
    _owners: dict[ResourceId, JobId] = field(default_factory=dict[ResourceId, JobId])
    """Job to which an exclusive TaskManager belongs."""
    _leaving: set[ResourceId] = field(default_factory=set[ResourceId])
    """TaskManagers that were decommissioned."""
    admission: Admission = field(default_factory=Admission)
    """Jobs that take no slots for now, as of the last event."""

    def handle(self, event: SlotEvent) -> list[AllocateSlot]:
        """Process an event, then match slots again."""
        match event:
            case RequirementsDeclared(job_id, requirements):
                if requirements:
                    self._requirements[job_id] = requirements
                else:
                    self._requirements.pop(job_id, None)
            case TaskManagerAdded(resource_id, slots, is_previous):
                self._slots[resource_id] = {}
                self._apply_report(resource_id, slots)
                if is_previous:
                    self._own(resource_id, _UNKNOWN_JOB)
            case TaskManagerRemoved(resource_id):
                self._slots.pop(resource_id, None)
                self._change_numbers.pop(resource_id, None)
                self._owners.pop(resource_id, None)
                self._leaving.discard(resource_id)
            case TaskManagerDecommissioned(resource_id):
                self._leaving.add(resource_id)
            case SlotsReported(resource_id, slots):
                if resource_id in self._slots:
                    self._apply_report(resource_id, slots)
            case SlotFreed(resource_id, allocation_id):
                self._free(resource_id, allocation_id)
            case AllocationAnswered(resource_id, allocation_id, is_accepted):
                self._answered(resource_id, allocation_id, is_accepted)
            case BlockedHostPatienceEnded():
                pass
        held = self._held()
        self._served = {job for job in (*self._served, *held) if job in self._requirements}
        self.admission = self._admit(held)
        return self._match(held)

    def missing(self) -> list[MissingSlots]:
        """Return the missing slots of each job, which no free or pending slot serves."""
        admission = self.admission
        held_back = admission.held_back
        in_line = admission.behind | {admission.first}
        held = self._held()
        return [
            MissingSlots(
                job_id,
                requirement.profile,
                requirement.slot_count,
                count,
                job_id in held_back,
                admission.first if job_id in in_line else None,
            )
            for job_id in self._requirements
            for requirement, count in self._unfulfilled(job_id, held)
            if count
        ]

    def _admit(self, held: Mapping[JobId, Counter[ResourceProfile]]) -> Admission:
        """Decide which jobs take slots. If slots differ in size all do, because counts mean nothing then."""
        capacity = self.capacity()
        if capacity is None or self._are_sizes_mixed():
            return Admission()
        claimed = self._claimed(held)
        jobs = [
            *self._requirements,
            *(job_id for job_id in claimed if job_id not in self._requirements),
        ]
        claims = [
            Claim(
                job_id,
                self._claim_of(self._requirements.get(job_id, ())),
                claimed[job_id],
                has_run=job_id in self._served,
            )
            for job_id in jobs
        ]
        # A registered TaskManager may have another number of slots than the settings of this process.
        more = sum(len(slots) - self.slots_per_worker for slots in self._slots.values())
        impatient = [job_id for job_id in self._requirements if self.is_impatient(job_id)]
        return admit(claims, capacity + more, impatient)

    def _are_sizes_mixed(self) -> bool:
        """Return whether counts of slots mean nothing.

        Slots differ in size, or a named interpreter needs a TaskManager.
        """
        are_of_one = self.slots_per_worker == 1
        return any(
            not (each.profile.is_unspecified and (are_of_one or not each.profile.python_executable))
            for job in self._requirements.values()
            for each in job
        ) or any(slot.is_cut for slots in self._slots.values() for slot in slots.values())

    def _claim_of(self, requirements: Sequence[ResourceRequirement]) -> int:
        count = sum(each.slot_count for each in requirements)
        each = self.slots_per_worker
        return -(-count // each) * each if self.is_exclusive else count

    def _claimed(self, held: Mapping[JobId, Counter[ResourceProfile]]) -> Counter[JobId]:
        """Return the slots that each job keeps from the others; of an exclusive TaskManager all."""
        if not self.is_exclusive:
            return Counter({job_id: slots.total() for job_id, slots in held.items()})
        claimed: Counter[JobId] = Counter()
        for resource_id, owner in self._owners.items():
            if owner in self._requirements and resource_id not in self._leaving:
                claimed[owner] += len(self._slots[resource_id])
        return claimed

    def idle_task_managers(self) -> list[ResourceId]:
        """Return TaskManagers without any assigned slot."""
        return [
            resource_id
            for resource_id, slots in self._slots.items()
            if all(slot.state is SlotState.FREE for slot in slots.values())
        ]

    def awaited_slots(self) -> Counter[ResourceId]:
        """Count the free slots of TaskManagers that are awaited by jobs which take none before they can have all."""
        awaited: Counter[ResourceId] = Counter()
        if held_back := self.admission.held_back:
            wanted = {
                requirement.profile.python_executable
                for job_id in held_back
                for requirement in self._requirements.get(job_id, ())
            }
            for resource_id, slots in self._slots.items():
                owner = self._owners.get(resource_id)
                if (owner is None or owner in held_back) and not (
                    resource_id in self._leaving
                    or self.is_sized(resource_id)
                    or self.total_of(resource_id).python_executable not in wanted
                ):
                    awaited[resource_id] = sum(
                        slot.state is SlotState.FREE for slot in slots.values()
                    )
        return awaited

    def spent_task_managers(self) -> list[ResourceId]:
        """Return exclusive TaskManagers that are idle because their job needs no more slots."""
        return [
            resource_id
            for resource_id in self.idle_task_managers()
            if resource_id in self._owners and self._owners[resource_id] not in self._requirements
        ]

    def has_reported(self, resource_id: ResourceId) -> bool:
        """Return whether a TaskManager has reported its slots."""
        return bool(self._slots.get(resource_id))

    def slots_of(self, resource_id: ResourceId) -> tuple[SlotInfo, ...]:
        """Return every slot of a TaskManager with its current or future job.

        Free permanent slots for which no resources are left are omitted.
        """
        slots = self._slots.get(resource_id, {})
        free = self.free_of(resource_id)
        found: list[SlotInfo] = []
        for index, slot in slots.items():
            if slot.state is SlotState.FREE:
                if not free.matches(slot.profile):
                    continue
                free = free.minus(slot.profile)
            found.append(
                SlotInfo(SlotId(resource_id, index), slot.allocation_id, slot.job_id, slot.profile)
            )
        return tuple(found)

    def total_of(self, resource_id: ResourceId) -> ResourceProfile:
        """Return the total resources of a TaskManager for slots."""
        slots = self._slots.get(resource_id, {}).values()
        return sum_of(slot.profile for slot in slots if not slot.is_cut)

    def free_of(self, resource_id: ResourceId) -> ResourceProfile:
        """Return the resources of a TaskManager that no job's slot uses."""
        slots = self._slots.get(resource_id, {}).values()
        used = sum_of(slot.profile for slot in slots if slot.state is not SlotState.FREE)
        return self.total_of(resource_id).minus(used)

    def task_managers_of(self, job_id: JobId) -> tuple[ResourceId, ...]:
        """Return the TaskManagers on which a job has slots."""
        return tuple(
            resource_id
            for resource_id, slots in self._slots.items()
            if any(slot.job_id == job_id for slot in slots.values())
        )

    def jobs_on(self, resource_id: ResourceId) -> list[JobId]:
        """Return the jobs that hold slots of a TaskManager, each once."""
        slots = self._slots.get(resource_id, {}).values()
        return list(dict.fromkeys(slot.job_id for slot in slots if slot.job_id is not None))

    def change_number(self, resource_id: ResourceId) -> int:
        """Return a number that grows whenever a slot of the TaskManager changes its owner by anything but a report."""
        return self._change_numbers.get(resource_id, 0)

    def _apply_report(self, resource_id: ResourceId, reported: Sequence[SlotStatus]) -> None:
        slots = self._slots[resource_id]
        indexes = {status.slot_id.slot_index for status in reported}
        for index in [index for index, slot in slots.items() if slot.is_cut]:
            if index not in indexes and slots[index].state is SlotState.ALLOCATED:
                del slots[index]
        for status in reported:
            slot = slots.setdefault(
                status.slot_id.slot_index, _Slot(status.profile, is_cut=status.is_cut)
            )
            if slot.state is SlotState.PENDING:
                # The report may be older than the arrival of our request; its answer decides.
                continue
            if status.allocation_id is None:
                slot.free()
            else:
                slot.reserve(SlotState.ALLOCATED, status.job_id, status.allocation_id)
                if status.job_id is not None:
                    self._own(resource_id, status.job_id)

    def _free(self, resource_id: ResourceId, allocation_id: AllocationId) -> None:
        slots = self._slots.get(resource_id, {})
        for index, slot in list(slots.items()):
            if slot.allocation_id == allocation_id:
                self._empty(slots, index)
                self._changed(resource_id)

    def _empty(self, slots: dict[int, _Slot], index: int) -> None:
        """Mark a slot as unused, and remove it if it was cut."""
        slots[index].free()
        if slots[index].is_cut:
            del slots[index]

    def _answered(
        self, resource_id: ResourceId, allocation_id: AllocationId, is_accepted: bool
    ) -> None:
        slots = self._slots.get(resource_id, {})
        for index, slot in list(slots.items()):
            if slot.allocation_id == allocation_id and slot.state is SlotState.PENDING:
                self._changed(resource_id)
                if is_accepted:
                    slot.state = SlotState.ALLOCATED
                else:
                    self._empty(slots, index)

    def _changed(self, resource_id: ResourceId) -> None:
        self._change_numbers[resource_id] = self._change_numbers.get(resource_id, 0) + 1

    def _held(self) -> dict[JobId, Counter[ResourceProfile]]:
        """Return the slots of each job by profile, without those that end soon."""
        held: defaultdict[JobId, Counter[ResourceProfile]] = defaultdict(Counter)
        for resource_id, slots in self._slots.items():
            if resource_id not in self._leaving:
                for slot in slots.values():
                    if slot.job_id is not None:
                        held[slot.job_id][slot.profile] += 1
        return held

    def _unfulfilled(
        self, job_id: JobId, held: Mapping[JobId, Counter[ResourceProfile]]
    ) -> list[tuple[ResourceRequirement, int]]:
        """Return the job's requirements, largest first, each with its number of missing slots."""
        requirements = sorted(
            self._requirements[job_id], key=lambda each: order_of_size(each.profile), reverse=True
        )
        missing = unserved(
            {each.profile: each.slot_count for each in requirements}, held.get(job_id, {})
        )
        return [(each, missing[each.profile]) for each in requirements]

    def _match(self, held: Mapping[JobId, Counter[ResourceProfile]]) -> list[AllocateSlot]:
        actions: list[AllocateSlot] = []
        held_back = self.admission.held_back
        for job_id in self._requirements:
            if job_id in held_back:
                continue
            for requirement, missing in self._unfulfilled(job_id, held):
                for _ in range(missing):
                    action = self._reserve(job_id, requirement.profile)
                    if action is None:
                        break
                    actions.append(action)
        return actions

    def _reserve(self, job_id: JobId, profile: ResourceProfile) -> AllocateSlot | None:
        for resource_id, slots in self._in_order_of_choice():
            if self._owners.get(resource_id, job_id) != job_id:
                continue
            slot_index = self._choose(resource_id, slots, profile)
            if slot_index is None:
                continue
            if self.is_blocked(resource_id) and self._passes_over(job_id, resource_id):
                continue
            if slot_index not in slots:
                slots[slot_index] = _Slot(profile, is_cut=True)
            allocation_id = self.new_allocation_id()
            slots[slot_index].reserve(SlotState.PENDING, job_id, allocation_id)
            self._own(resource_id, job_id)
            self._changed(resource_id)
            return AllocateSlot(resource_id, slot_index, job_id, allocation_id, profile)
        return None

    def _passes_over(self, job_id: JobId, resource_id: ResourceId) -> bool:
        slot_count = sum(each.slot_count for each in self._requirements[job_id])
        return self.passes_over(job_id, resource_id, slot_count)

    def _choose(
        self, resource_id: ResourceId, slots: dict[int, _Slot], profile: ResourceProfile
    ) -> int | None:
        """Return a free slot that serves `profile`, or the index of one to cut; None if too little is left."""
        if profile.is_unspecified and self.is_sized(resource_id):
            return None
        is_cut = self.are_cut and not profile.is_unspecified
        cut_count = sum(slot.is_cut for slot in slots.values())
        left = self.free_of(resource_id) if is_cut or cut_count else None
        if is_cut:
            if left is None or not left.matches(profile):
                return None
            return next(n for n in range(len(slots) - cut_count, 1 << 31) if n not in slots)
        for index, slot in slots.items():
            if slot.state is SlotState.FREE and slot.profile.matches(profile):
                return index if left is None or left.matches(slot.profile) else None
        return None

    def _in_order_of_choice(self) -> Iterator[tuple[ResourceId, dict[int, _Slot]]]:
        entries = [entry for entry in self._slots.items() if entry[0] not in self._leaving]
        if self.are_spread_out:
            entries = sorted(entries, key=lambda entry: _used_share(entry[1].values()))
        # Usually the first one is taken, and the others are not examined.
        yield from (entry for entry in entries if not self.is_blocked(entry[0]))
        yield from (entry for entry in entries if self.is_blocked(entry[0]))

    def _own(self, resource_id: ResourceId, job_id: JobId) -> None:
        if self.is_exclusive:
            self._owners.setdefault(resource_id, job_id)


def _used_share(slots: Collection[_Slot]) -> float:
    if any(slot.is_cut for slot in slots):
        total = sum(slot.profile.cpu_cores for slot in slots if not slot.is_cut)
        used = sum(slot.profile.cpu_cores for slot in slots if slot.state is not SlotState.FREE)
        return used / total if total else 1.0
    used_count = sum(slot.state is not SlotState.FREE for slot in slots)
    return used_count / max(1, len(slots))
