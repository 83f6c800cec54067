"""ResourceProfile: the resources of a slot or TaskManager, or those that a slot sharing group requires. Pure.

Source: Flink ResourceProfile, ResourceCounter, DefaultRequirementMatcher.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_CPU_TOLERANCE: Final = 1e-6
"""Sums of fractions of a core are not exact."""
_MEBIBYTE: Final = 1 << 20
JOB_ENVIRONMENT: Final = "environment:"
"""Prefix of an interpreter's name that stands for an environment which each host makes from the files of one job."""
_MEMORY_NAMES: Final = (
    ("task_heap_bytes", "task heap memory"),
    ("task_off_heap_bytes", "task off-heap memory"),
    ("managed_bytes", "managed memory"),
)


class ResourceProfile(msgspec.Struct, frozen=True, cache_hash=True):
    """Cores, bytes of memory by their use, and external resources (GPUs for example) by name and amount.

    A profile of zeros is unspecified: as a request, any slot serves it. `python_executable`: the interpreter of the
    process, if it differs from the cluster's, or the name of a job's environment (JOB_ENVIRONMENT). A slot of one
    interpreter serves no request for another.
    """

    cpu_cores: float = 0.0
    task_heap_bytes: int = 0
    task_off_heap_bytes: int = 0
    managed_bytes: int = 0
    network_bytes: int = 0
    external_resources: tuple[tuple[str, int], ...] = ()
    python_executable: str = ""

    @property
    def is_unspecified(self) -> bool:
        """Return whether the profile sets no amount of any resource."""
        return not (self.cpu_cores or self.memory_bytes or self.external_resources)

    def with_interpreter(self, python_executable: str) -> "ResourceProfile":
        """Return the same resources in processes of another interpreter; empty means the cluster's."""
        return msgspec.structs.replace(self, python_executable=python_executable)

    @property
    def memory_bytes(self) -> int:
        """Return the sum of its memory."""
        return (
            self.task_heap_bytes
            + self.task_off_heap_bytes
            + self.managed_bytes
            + self.network_bytes
        )

    def amount_of(self, name: str) -> int:
        """Return the amount of one external resource."""
        return dict(self.external_resources).get(name, 0)

    def matches(self, required: "ResourceProfile") -> bool:
        """Return whether a slot of this profile can serve `required`."""
        return (
            self.python_executable == required.python_executable
            and self.cpu_cores >= required.cpu_cores - _CPU_TOLERANCE
            and self.task_heap_bytes >= required.task_heap_bytes
            and self.task_off_heap_bytes >= required.task_off_heap_bytes
            and self.managed_bytes >= required.managed_bytes
            and self.network_bytes >= required.network_bytes
            and all(self.amount_of(name) >= amount for name, amount in required.external_resources)
        )

    def lacks_amounts_of(self, required: "ResourceProfile") -> bool:
        """Return whether a slot of this profile has too little for `required`, ignoring the interpreters."""
        return not self.with_interpreter(required.python_executable).matches(required)

    def plus(self, other: "ResourceProfile") -> "ResourceProfile":
        """Return the sum of both profiles."""
        return self._combined(other, 1)

    def minus(self, other: "ResourceProfile") -> "ResourceProfile":
        """Return this profile minus `other`; amounts may become negative."""
        return self._combined(other, -1)

    def times(self, factor: float) -> "ResourceProfile":
        """Return a multiple or a share; shares of bytes and amounts are rounded down."""
        return ResourceProfile(
            self.cpu_cores * factor,
            int(self.task_heap_bytes * factor),
            int(self.task_off_heap_bytes * factor),
            int(self.managed_bytes * factor),
            int(self.network_bytes * factor),
            tuple((name, int(amount * factor)) for name, amount in self.external_resources),
            self.python_executable,
        )

    def _combined(self, other: "ResourceProfile", sign: int) -> "ResourceProfile":
        amounts = dict(self.external_resources)
        for name, amount in other.external_resources:
            amounts[name] = amounts.get(name, 0) + sign * amount
        return ResourceProfile(
            self.cpu_cores + sign * other.cpu_cores,
            self.task_heap_bytes + sign * other.task_heap_bytes,
            self.task_off_heap_bytes + sign * other.task_off_heap_bytes,
            self.managed_bytes + sign * other.managed_bytes,
            self.network_bytes + sign * other.network_bytes,
            tuple(amounts.items()),
            self.python_executable or other.python_executable,
        )

    def shown_for(self, required: "ResourceProfile") -> str:
        """Describe for people the amounts of this profile that are too small for `required`."""
        is_short = self.cpu_cores < required.cpu_cores - _CPU_TOLERANCE
        parts = [f"{self.cpu_cores:g} core(s)"] if is_short else []
        for field, name in _MEMORY_NAMES:
            if getattr(self, field) < getattr(required, field):
                parts.append(f"{getattr(self, field) / _MEBIBYTE:.0f} mb of {name}")
        for name, amount in required.external_resources:
            if self.amount_of(name) < amount:
                parts.append(f"{self.amount_of(name) or 'no'} {name}")
        if self.python_executable != required.python_executable:
            parts.append(f"the interpreter {self.python_executable or 'of the cluster'}")
        return _listed(parts)

    def __str__(self) -> str:
        parts = [f"{self.cpu_cores:g} core(s)"] if self.cpu_cores else []
        for field, name in _MEMORY_NAMES:
            size_bytes: int = getattr(self, field)
            if size_bytes:
                parts.append(f"{size_bytes / _MEBIBYTE:.0f} mb of {name}")
        parts += [f"{amount} {name}" for name, amount in self.external_resources if amount]
        if self.python_executable:
            parts.append(f"the interpreter {self.python_executable}")
        return _listed(parts)


def _listed(parts: list[str]) -> str:
    if not parts:
        return "nothing in particular"
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


UNSPECIFIED: Final = ResourceProfile()


def order_of_size(profile: ResourceProfile) -> tuple[float, int, int]:
    """Return a sort key: an unspecified profile is the smallest."""
    amounts = sum(amount for _, amount in profile.external_resources)
    return profile.cpu_cores, profile.memory_bytes, amounts


def sum_of(profiles: Iterable[ResourceProfile]) -> ResourceProfile:
    """Return the sum of the profiles.

    Counted per distinct profile, of which there are few: a TaskManager may have hundreds of slots, and is summed up
    often.
    """
    total = UNSPECIFIED
    for profile, count in Counter(profiles).items():
        total = total.plus(profile.times(count))
    return total


def unserved(
    wanted: Mapping[ResourceProfile, int], held: Mapping[ResourceProfile, int]
) -> Counter[ResourceProfile]:
    """Return the number of slots of each wanted profile, largest first, that no held slot serves.

    A slot that was cut for a profile serves that one first; the others serve unspecified requests, then any that they
    fit. Counted per distinct profile, of which there are few: a job may have thousands of slots.
    """
    missing = Counter(wanted)
    free = Counter(held)
    for profile in wanted:
        serving = min(missing[profile], free[profile])
        missing[profile] -= serving
        free[profile] -= serving
    specified = sorted((each for each in wanted if not each.is_unspecified), key=order_of_size)
    unspecified = [each for each in wanted if each.is_unspecified]
    for profile in [*unspecified, *reversed(specified)]:
        for slot in sorted(free, key=order_of_size):
            if slot.matches(profile):
                serving = min(missing[profile], free[slot])
                missing[profile] -= serving
                free[slot] -= serving
    largest_first = [*reversed(specified), *unspecified]
    return Counter({each: missing[each] for each in largest_first if missing[each] > 0})


def choose_slot(
    wanted: ResourceProfile, slots: Iterable[ResourceProfile]
) -> ResourceProfile | None:
    """Return the profile of the slot that serves `wanted` best: cut for it, else the smallest; None if none does."""
    fitting = [each for each in slots if each.matches(wanted)]
    return wanted if wanted in fitting else min(fitting, key=order_of_size, default=None)


def workers_needed(
    wanted: Mapping[ResourceProfile, int], total: ResourceProfile, default: ResourceProfile
) -> int:
    """Return the number of TaskManagers of `total` that the wanted slots need, each cut from the first with room.

    Unspecified slots take a `default` each. Profiles that do not fit into `total` are left out.
    """
    rooms: list[ResourceProfile] = []
    for profile in sorted(wanted, key=order_of_size, reverse=True):
        slot = default if profile.is_unspecified else profile
        if not total.matches(slot):
            continue
        for _ in range(wanted[profile]):
            place = next((n for n, room in enumerate(rooms) if room.matches(slot)), None)
            if place is None:
                rooms.append(total)
                place = len(rooms) - 1
            rooms[place] = rooms[place].minus(slot)
    return len(rooms)
