"""SlotPool: the slots that one job has, needs and returns. Pure; times are monotonic milliseconds.

A slot is FREE (accepted, unused) or RESERVED (for one execution slot sharing group). The job's need is a
count per profile, always declared as a whole. Source: Flink DefaultDeclarativeSlotPool, DeclarativeSlotPoolBridge.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.ids import AllocationId, ExecutionAttemptId, ExecutionVertexId, ResourceId
from headrace.core.resource_profile import (
    ResourceProfile,
    choose_slot,
    unserved,
)
from headrace.gateways.messages import SlotOffer
from headrace.gateways.resource_manager import ResourceRequirement


class LocalState:
    """Knows for each subtask the TaskManager with the state of its newest attempt, and so its preferred slot.

    A new JobMaster learns this from the TaskManagers that register: earlier TaskManagers have slots, in
    any order. Source: Flink StateLocalitySlotAssigner, PreviousAllocationSlotSelectionStrategy.
    """

    def __init__(self) -> None:
        self._newest: dict[ExecutionVertexId, tuple[int, ResourceId]] = {}

    def register(self, resource_id: ResourceId, attempts: Iterable[ExecutionAttemptId]) -> None:
        """Record the attempts whose state a TaskManager has."""
        for attempt in attempts:
            found = (attempt.attempt_number, resource_id)
            subtask = attempt.execution_vertex_id
            self._newest[subtask] = max(found, self._newest.get(subtask, found))

    def arrange(
        self,
        groups: Sequence[Sequence[ExecutionVertexId]],
        slots: "Sequence[PhysicalSlot]",
        before: "Sequence[PhysicalSlot | None]",
    ) -> list[int]:
        """Return for each group of subtasks the index of its slot; `slots[n]` was meant for `groups[n]`.

        Slots of one profile are exchanged so that as many subtasks as possible of the first group, then of the next
        one, find their state. Other groups stay on the host of the slot that they had `before`, if possible: it may
        still cache the data that they read again from a shared folder. The rest take the remaining slots in order.
        """
        by_process: list[tuple[int, int, str]] = []
        for number, subtasks in enumerate(groups):
            places = Counter(self._newest[each][1] for each in subtasks if each in self._newest)
            by_process += [(-count, number, place.name) for place, count in places.items()]
        by_host = [(0, number, slot.host) for number, slot in enumerate(before) if slot is not None]
        chosen: dict[int, int] = {}

        def not_chosen() -> list[int]:
            return sorted(set(range(len(slots))).difference(chosen.values()))

        wanted = [
            (by_process, [slot.resource_id.name for slot in slots]),
            (by_host, [slot.host for slot in slots]),
        ]
        for wishes, places in wanted:
            free: defaultdict[tuple[str, ResourceProfile], deque[int]] = defaultdict(deque)
            for index in not_chosen():
                free[places[index], slots[index].profile].append(index)
            for _, number, place in sorted(wishes):
                here = free[place, slots[number].profile]
                if number not in chosen and here:
                    chosen[number] = here.popleft()
        left: defaultdict[ResourceProfile, deque[int]] = defaultdict(deque)
        for index in not_chosen():
            left[slots[index].profile].append(index)
        return [
            chosen[number] if number in chosen else left[slots[number].profile].popleft()
            for number in range(len(groups))
        ]


@dataclass(frozen=True)
class PhysicalSlot:
    """An accepted slot and its location. `host`: the TaskManager's address, without its port."""

    allocation_id: AllocationId
    resource_id: ResourceId
    slot_index: int
    profile: ResourceProfile
    host: str = ""


@dataclass
class _Held:
    slot: PhysicalSlot
    is_reserved: bool
    free_since_ms: float


class SlotPool:
    """Slots of one job. `requirements` must be declared to the ResourceManager.

    `local_state` knows the TaskManagers with copies of the job's state.
    """

    def __init__(self) -> None:
        self.local_state: Final = LocalState()
        self._required: tuple[ResourceProfile, ...] = ()
        self._held: dict[AllocationId, _Held] = {}
        self._leaving: set[ResourceId] = set()

    def leave(self, resource_id: ResourceId) -> None:
        """Request other slots in place of those of a TaskManager that ends soon, and accept no more of its slots."""
        self._leaving.add(resource_id)

    def is_left(self, resource_id: ResourceId) -> bool:
        """Return whether the job no longer uses slots of this TaskManager."""
        return resource_id in self._leaving

    def require(self, profiles: Sequence[ResourceProfile]) -> None:
        """Require one slot for each of `profiles`, in place of earlier requirements."""
        self._required = tuple(profiles)

    @property
    def requirements(self) -> tuple[ResourceRequirement, ...]:
        """All requirements, with slots of equal profile counted together."""
        counts = Counter(self._required)
        return tuple(ResourceRequirement(profile, count) for profile, count in counts.items())

    @property
    def missing_count(self) -> int:
        """Number of required slots that no TaskManager has offered yet."""
        return self._unfulfilled().total()

    def offer(
        self,
        resource_id: ResourceId,
        offers: Iterable[SlotOffer],
        monotonic_ms: float,
        host: str = "",
    ) -> tuple[AllocationId, ...]:
        """Accept the slots that serve a missing requirement; slots held already are accepted again.

        `host`: of all offers.
        """
        accepted: list[AllocationId] = []
        unfulfilled = self._unfulfilled()
        for offer in offers:
            held = self._held.get(offer.allocation_id)
            if held is not None:
                if held.slot.resource_id == resource_id:
                    accepted.append(offer.allocation_id)
                continue
            served = _want_of(offer.profile, unfulfilled)
            if served is not None and resource_id not in self._leaving:
                _take_one(unfulfilled, served)
                slot = PhysicalSlot(
                    offer.allocation_id, resource_id, offer.slot_index, offer.profile, host
                )
                self._held[offer.allocation_id] = _Held(slot, False, monotonic_ms)
                accepted.append(offer.allocation_id)
        return tuple(accepted)

    def reserve(self, profiles: Sequence[ResourceProfile]) -> tuple[PhysicalSlot, ...] | None:
        """Reserve one free slot for each of `profiles`, in order.

        Return None, and reserve nothing, if one is missing.
        """
        free: defaultdict[ResourceProfile, deque[_Held]] = defaultdict(deque)
        for held in self._held.values():
            if not held.is_reserved and held.slot.resource_id not in self._leaving:
                free[held.slot.profile].append(held)
        chosen: dict[int, _Held] = {}
        # Groups without a preference take the remaining slots.
        for number in sorted(
            range(len(profiles)), key=lambda number: profiles[number].is_unspecified
        ):
            available = [each for each, slots in free.items() if slots]
            best = choose_slot(profiles[number], available)
            if best is None:
                return None
            chosen[number] = free[best].popleft()
        for held in chosen.values():
            held.is_reserved = True
        return tuple(chosen[number].slot for number in range(len(profiles)))

    def holds(self, allocation_id: AllocationId) -> bool:
        """Return whether the job still has the slot."""
        return allocation_id in self._held

    def fail_slot(self, allocation_id: AllocationId) -> PhysicalSlot | None:
        """Remove a slot that is gone; return it if it was held."""
        held = self._held.pop(allocation_id, None)
        return None if held is None else held.slot

    def fail_task_manager(self, resource_id: ResourceId) -> tuple[PhysicalSlot, ...]:
        """Remove and return all slots of a lost TaskManager."""
        lost = tuple(slot for slot in self.slots if slot.resource_id == resource_id)
        for slot in lost:
            del self._held[slot.allocation_id]
        return lost

    def take_idle(self, monotonic_ms: float, timeout_ms: float) -> tuple[PhysicalSlot, ...]:
        """Remove and return slots that were free for `timeout_ms` and that no requirement needs."""
        wanted = len(self._required)
        idle: list[PhysicalSlot] = []
        for allocation_id, held in list(self._held.items()):
            if len(self._held) <= wanted:
                break
            if not held.is_reserved and monotonic_ms - held.free_since_ms >= timeout_ms:
                idle.append(held.slot)
                del self._held[allocation_id]
        return tuple(idle)

    def take_all(self) -> tuple[PhysicalSlot, ...]:
        """Remove and return every slot."""
        slots = self.slots
        self._held.clear()
        return slots

    @property
    def slots(self) -> tuple[PhysicalSlot, ...]:
        """All slots held."""
        return tuple(held.slot for held in self._held.values())

    def allocations_on(self, resource_id: ResourceId) -> tuple[AllocationId, ...]:
        """Return the slots held on one TaskManager."""
        return tuple(slot.allocation_id for slot in self.slots if slot.resource_id == resource_id)

    def _unfulfilled(self) -> Counter[ResourceProfile]:
        """Return the missing slots by profile, largest first."""
        held = Counter(
            each.slot.profile
            for each in self._held.values()
            if each.slot.resource_id not in self._leaving
        )
        return unserved(Counter(self._required), held)


def _want_of(slot: ResourceProfile, wants: Counter[ResourceProfile]) -> ResourceProfile | None:
    """Return the requirement that a slot serves.

    The one it was cut for, an unspecified one, or the largest that fits.
    """
    if slot in wants:
        return slot
    served = [each for each in wants if slot.matches(each)]
    return next((each for each in served if each.is_unspecified), next(iter(served), None))


def _take_one(counts: Counter[ResourceProfile], profile: ResourceProfile) -> None:
    counts[profile] -= 1
    if not counts[profile]:
        del counts[profile]
