"""SlotPool: the slots that one job has, wants and returns. Pure; times are monotonic milliseconds.

A slot is FREE (accepted, nobody in it) or RESERVED (for one execution slot sharing group). What the job wants is a
count per profile, always told as a whole. Source: Flink DefaultDeclarativeSlotPool, DeclarativeSlotPoolBridge.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.core.ids import AllocationId, ResourceId
from headrace.gateways.messages import ResourceProfile, SlotOffer
from headrace.gateways.resource_manager import ResourceRequirement


@dataclass(frozen=True)
class PhysicalSlot:
    """An accepted slot and where it is."""

    allocation_id: AllocationId
    resource_id: ResourceId
    slot_index: int
    profile: ResourceProfile


@dataclass
class _Held:
    slot: PhysicalSlot
    is_reserved: bool
    free_since_ms: float


class SlotPool:
    """Slots of one job. `requirements` is what must be declared to the ResourceManager."""

    def __init__(self) -> None:
        self._required: tuple[ResourceProfile, ...] = ()
        self._held: dict[AllocationId, _Held] = {}

    def require(self, profiles: Sequence[ResourceProfile]) -> None:
        """Want one slot for each of `profiles`, in place of what was wanted before."""
        self._required = tuple(profiles)

    @property
    def requirements(self) -> tuple[ResourceRequirement, ...]:
        """The whole set, slots of equal profile counted together."""
        counts = Counter(self._required)
        return tuple(ResourceRequirement(profile, count) for profile, count in counts.items())

    @property
    def missing_count(self) -> int:
        """How many of the wanted slots nobody has offered yet."""
        return self._unfulfilled().total()

    def offer(
        self, resource_id: ResourceId, offers: Iterable[SlotOffer], monotonic_ms: float
    ) -> tuple[AllocationId, ...]:
        """Take the slots that serve an unfulfilled want; those held already are accepted again."""
        accepted: list[AllocationId] = []
        unfulfilled = self._unfulfilled()
        for offer in offers:
            held = self._held.get(offer.allocation_id)
            if held is not None:
                if held.slot.resource_id == resource_id:
                    accepted.append(offer.allocation_id)
                continue
            served = next((each for each in unfulfilled if offer.profile.matches(each)), None)
            if served is not None:
                _take_one(unfulfilled, served)
                slot = PhysicalSlot(
                    offer.allocation_id, resource_id, offer.slot_index, offer.profile
                )
                self._held[offer.allocation_id] = _Held(slot, False, monotonic_ms)
                accepted.append(offer.allocation_id)
        return tuple(accepted)

    def reserve(self, profiles: Sequence[ResourceProfile]) -> tuple[PhysicalSlot, ...] | None:
        """Reserve one free slot for each of `profiles`, in order; None, and nothing reserved, if one is missing."""
        free: defaultdict[ResourceProfile, deque[_Held]] = defaultdict(deque)
        for held in self._held.values():
            if not held.is_reserved:
                free[held.slot.profile].append(held)
        chosen: list[_Held] = []
        for wanted in profiles:
            fitting = [each for each, slots in free.items() if slots and each.matches(wanted)]
            if not fitting:
                return None
            chosen.append(free[min(fitting, key=_size)].popleft())
        for held in chosen:
            held.is_reserved = True
        return tuple(held.slot for held in chosen)

    def holds(self, allocation_id: AllocationId) -> bool:
        """Whether the slot is still the job's."""
        return allocation_id in self._held

    def fail_slot(self, allocation_id: AllocationId) -> PhysicalSlot | None:
        """The slot is gone; returns it where it was held."""
        held = self._held.pop(allocation_id, None)
        return None if held is None else held.slot

    def fail_task_manager(self, resource_id: ResourceId) -> tuple[PhysicalSlot, ...]:
        """All slots of a TaskManager are gone."""
        lost = tuple(slot for slot in self.slots if slot.resource_id == resource_id)
        for slot in lost:
            del self._held[slot.allocation_id]
        return lost

    def take_idle(self, monotonic_ms: float, timeout_ms: float) -> tuple[PhysicalSlot, ...]:
        """Remove and return slots that were free for `timeout_ms` and that no want needs."""
        wanted = len(self._required)
        idle: list[PhysicalSlot] = []
        for allocation_id, held in list(self._held.items()):
            if len(self._held) <= wanted:
                break
            if not held.is_reserved and monotonic_ms - held.free_since_ms >= timeout_ms:
                idle.append(held.slot)
                del self._held[allocation_id]
        return tuple(idle)

    @property
    def slots(self) -> tuple[PhysicalSlot, ...]:
        """Every slot held."""
        return tuple(held.slot for held in self._held.values())

    def allocations_on(self, resource_id: ResourceId) -> tuple[AllocationId, ...]:
        """Slots held on one TaskManager."""
        return tuple(slot.allocation_id for slot in self.slots if slot.resource_id == resource_id)

    def _unfulfilled(self) -> Counter[ResourceProfile]:
        """Wants, largest first, that no held slot serves, and how many of each.

        Counted by profile, of which there are few: a job may want thousands of slots.
        """
        held = Counter(each.slot.profile for each in self._held.values())
        unfulfilled: Counter[ResourceProfile] = Counter()
        for wanted, count in sorted(
            Counter(self._required).items(), key=lambda item: _size(item[0]), reverse=True
        ):
            missing = count
            for profile in held:
                if profile.matches(wanted):
                    serving = min(missing, held[profile])
                    held[profile] -= serving
                    missing -= serving
            if missing:
                unfulfilled[wanted] = missing
        return unfulfilled


def _size(profile: ResourceProfile) -> tuple[float, int]:
    return profile.cpu_cores, profile.memory_bytes


def _take_one(counts: Counter[ResourceProfile], profile: ResourceProfile) -> None:
    counts[profile] -= 1
    if not counts[profile]:
        del counts[profile]
