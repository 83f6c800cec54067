"""SlotSharingGroup: a named group of operators that may share slots, with the resources of its slots as MemorySizes.

Source: Flink SlotSharingGroup (FLIP-169), MemorySize.
"""

import logging
from dataclasses import dataclass, field, replace
from functools import total_ordering
from typing import ClassVar, Final

_LOG: Final = logging.getLogger(__name__)
_TOLD: Final[set["SlotSharingGroup"]] = set()
"""Groups of which a warning has said that their resources have no effect."""
_UNITS: Final = (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10))


@total_ordering
class MemorySize:
    """A number of bytes that compares, and prints in the largest unit that fits exactly.

    Example:
        >>> print(MemorySize.of_mebi_bytes(3), MemorySize(bytes_size=1024), MemorySize(bytes_size=1500))
        3 mb 1 kb 1500 bytes
    """

    __slots__ = ("_bytes",)

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            raise ValueError(f"a size cannot be negative, but is {bytes_size}")
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> "MemorySize":
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Rounded down, as the larger units."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, MemorySize):
            raise TypeError(f"a MemorySize compares with another one, not with {other!r}")
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash((MemorySize, self._bytes))

    def __str__(self) -> str:
        for unit, size in _UNITS:
            if self._bytes and self._bytes % size == 0:
                return f"{self._bytes // size} {unit}"
        return f"{self._bytes} bytes"

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"


@dataclass(frozen=True)
class SlotSharingGroup:
    """A name and resources; equal where both are.

    Operators of different groups never share a slot. Resources can be set and read, but have no effect, because all
    slots are alike: a warning says so when a group with resources is used.

    Example:
        >>> group = SlotSharingGroup.builder("models").set_cpu_cores(2.0).set_task_heap_memory_mb(100).build()
        >>> group.get_name(), group.get_cpu_cores(), str(group.get_task_heap_memory())
        ('models', 2.0, '100 mb')
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: tuple[tuple[str, float], ...] = field(default=())

    # PyFlink programs find the builder in here.
    Builder: ClassVar[type["SlotSharingGroupBuilder"]]

    @staticmethod
    def builder(name: str) -> "SlotSharingGroupBuilder":
        """Begin a group of that name."""
        return SlotSharingGroupBuilder(name)

    @property
    def has_resources(self) -> bool:
        """Return whether it sets resources of its slots."""
        return self != SlotSharingGroup(self.name)

    def get_name(self) -> str:
        return self.name

    def get_cpu_cores(self) -> float | None:
        """None where none were set, as for the others."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        return dict(self.external_resources)


class SlotSharingGroupBuilder:
    """Builds a SlotSharingGroup; cores and heap memory come together, as in Flink, or not at all."""

    def __init__(self, name: str) -> None:
        if not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a slot sharing group needs a name, not {name!r}")
        self._group = SlotSharingGroup(name)

    def set_cpu_cores(self, cpu_cores: float) -> "SlotSharingGroupBuilder":
        if cpu_cores <= 0:
            raise ValueError(f"cpu_cores must be above 0, not {cpu_cores}")
        self._group = replace(self._group, cpu_cores=float(cpu_cores))
        return self

    def set_task_heap_memory(self, task_heap_memory: MemorySize) -> "SlotSharingGroupBuilder":
        if task_heap_memory.get_bytes() == 0:
            raise ValueError("task_heap_memory must be above 0")
        self._group = replace(self._group, task_heap_memory=task_heap_memory)
        return self

    def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> "SlotSharingGroupBuilder":
        return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

    def set_task_off_heap_memory(
        self, task_off_heap_memory: MemorySize
    ) -> "SlotSharingGroupBuilder":
        self._group = replace(self._group, task_off_heap_memory=task_off_heap_memory)
        return self

    def set_task_off_heap_memory_mb(
        self, task_off_heap_memory_mb: int
    ) -> "SlotSharingGroupBuilder":
        return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

    def set_managed_memory(self, managed_memory: MemorySize) -> "SlotSharingGroupBuilder":
        self._group = replace(self._group, managed_memory=managed_memory)
        return self

    def set_managed_memory_mb(self, managed_memory_mb: int) -> "SlotSharingGroupBuilder":
        return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

    def set_external_resource(self, name: str, value: float) -> "SlotSharingGroupBuilder":
        """Name another resource, such as a GPU; the last value of a name holds."""
        others = tuple(one for one in self._group.external_resources if one[0] != name)
        self._group = replace(self._group, external_resources=(*others, (name, float(value))))
        return self

    def build(self) -> SlotSharingGroup:
        group = self._group
        if group.has_resources and (group.cpu_cores is None or group.task_heap_memory is None):
            raise ValueError(
                f"the slot sharing group '{group.name}' names resources, so it needs both set_cpu_cores and "
                "set_task_heap_memory"
            )
        return group


SlotSharingGroup.Builder = SlotSharingGroupBuilder


def name_of_group(group: "str | SlotSharingGroup") -> str:
    """Return the name; warn once for each group with resources that they have no effect."""
    if not isinstance(group, SlotSharingGroup):
        return group
    if group.has_resources and group not in _TOLD:
        _TOLD.add(group)
        _LOG.warning(
            "the resources of the slot sharing group '%s' have no effect: all slots have the resources that the "
            "taskmanager.* settings give them",
            group.name,
        )
    return group.name
