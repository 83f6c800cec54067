"""SlotSharingGroup: a named group of operators that may share slots, with the resources of its slots as MemorySizes.

Source: Flink SlotSharingGroup (FLIP-169), MemorySize.
"""

from dataclasses import dataclass, field, replace
from functools import total_ordering
from typing import ClassVar, Final

from headrace.core.resource_profile import ResourceProfile

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
        """Return the size in KiB, rounded down, as for the larger units."""
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
    """A name and resources; two groups are equal if both are equal.

    Operators of different groups never share a slot. The slots of a group with resources have that size; a group
    without any has slots of the default size, which is the size of a TaskManager divided by its number of slots.

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
        """Return whether the group sets the resources of its slots."""
        return self != SlotSharingGroup(self.name)

    @property
    def profile(self) -> ResourceProfile | None:
        """Return the resources of each of the group's slots, or None if it sets none. Memory that is not set is 0."""
        if not self.has_resources:
            return None
        memory = (self.task_heap_memory, self.task_off_heap_memory, self.managed_memory)
        heap, off_heap, managed = (0 if each is None else each.get_bytes() for each in memory)
        return ResourceProfile(
            cpu_cores=self.cpu_cores or 0.0,
            task_heap_bytes=heap,
            task_off_heap_bytes=off_heap,
            managed_bytes=managed,
            external_resources=tuple(
                sorted((name, int(value)) for name, value in self.external_resources if value)
            ),
        )

    def get_name(self) -> str:
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Return the number of CPU cores; None if no resources were set, as for the other getters."""
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
    """Builds a SlotSharingGroup; as in Flink, cores and heap memory must be set together."""

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
        """Set the amount of another resource, such as a GPU, in each slot; the last value of a name counts.

        ValueError for a fraction, because slots cannot share a resource's address.
        """
        if value < 0 or value != int(value):
            raise ValueError(f"a slot takes a whole number of '{name}', not {value}")
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
