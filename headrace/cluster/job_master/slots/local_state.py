"""LocalState: on which TaskManagers copies of a job's state are, and which slot each group is to have for their sake.

Pure. A JobMaster that follows another one learns it from the TaskManagers that register: those of before have slots, in
whatever order. Source: Flink StateLocalitySlotAssigner, PreviousAllocationSlotSelectionStrategy.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence

from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, ResourceId
from headrace.core.resource_profile import ResourceProfile


class LocalState:
    """Knows for each subtask the TaskManager that has the state of its newest attempt."""

    def __init__(self) -> None:
        self._newest: dict[ExecutionVertexId, tuple[int, ResourceId]] = {}

    def register(self, resource_id: ResourceId, attempts: Iterable[ExecutionAttemptId]) -> None:
        """Remember the attempts whose state a TaskManager has."""
        for attempt in attempts:
            found = (attempt.attempt_number, resource_id)
            subtask = attempt.execution_vertex_id
            self._newest[subtask] = max(found, self._newest.get(subtask, found))

    def arrange(
        self,
        groups: Sequence[Sequence[ExecutionVertexId]],
        slots: Sequence[tuple[ResourceId, ResourceProfile]],
    ) -> list[int]:
        """Return for each group of subtasks the index of its slot, where `slots[n]` was meant for `groups[n]`.

        Slots of one profile change places, so that as many subtasks as possible of one group, and then of the next one,
        find their state; the others take in order what is left.
        """
        free: defaultdict[tuple[ResourceId, ResourceProfile], deque[int]] = defaultdict(deque)
        for index, slot in enumerate(slots):
            free[slot].append(index)
        wishes: list[tuple[int, int, ResourceId]] = []
        for number, subtasks in enumerate(groups):
            places = Counter(self._newest[each][1] for each in subtasks if each in self._newest)
            wishes += [(-count, number, place) for place, count in places.items()]
        chosen: dict[int, int] = {}
        for _, number, place in sorted(wishes):
            here = free[place, slots[number][1]]
            if number not in chosen and here:
                chosen[number] = here.popleft()
        left: defaultdict[ResourceProfile, deque[int]] = defaultdict(deque)
        for index in sorted(index for indices in free.values() for index in indices):
            left[slots[index][1]].append(index)
        return [
            chosen[number] if number in chosen else left[slots[number][1]].popleft()
            for number in range(len(groups))
        ]
