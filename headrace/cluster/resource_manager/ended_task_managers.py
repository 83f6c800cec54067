"""EndedTaskManagers: the last TaskManagers that were registered and are gone, for people who ask why. Pure.

Their log files are kept as long as they are remembered.
"""

from typing import Final

from headrace.core.ids import ResourceId
from headrace.gateways.resource_manager import EndedTaskManager, TaskManagerInfo


class EndedTaskManagers:
    """At most `count_max` of them; the one that ended first is forgotten first."""

    def __init__(self, count_max: int) -> None:
        self._count_max: Final = count_max
        self._ended: dict[ResourceId, EndedTaskManager] = {}

    def __contains__(self, resource_id: ResourceId) -> bool:
        return resource_id in self._ended

    def find(self, resource_id: ResourceId) -> TaskManagerInfo | None:
        """Return one of them as it was last, or None."""
        found = self._ended.get(resource_id)
        return None if found is None else found.info

    def add(self, ended: EndedTaskManager) -> tuple[ResourceId, ...]:
        """Remember one; return those that are forgotten for it. None comes back: a lost one may not register again."""
        self._ended[ended.info.resource_id] = ended
        forgotten = tuple(self._ended)[: max(0, len(self._ended) - self._count_max)]
        for resource_id in forgotten:
            del self._ended[resource_id]
        return forgotten

    def describe(self) -> tuple[EndedTaskManager, ...]:
        """Return all of them, those that ended last first."""
        return tuple(reversed(self._ended.values()))
