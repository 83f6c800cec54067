"""Searches for the planted bugs: for each bug, the runs of a group that must not all be exact."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from testkit.chaos.groups import GROUPS, Group
from testkit.chaos.planted_bugs import BUGS
from testkit.chaos.runner import ChaosRunner, Outcome


@dataclass(frozen=True)
class Search:
    """Runs of a group by name, one after the other until one is not exact."""

    group_name: str
    run_names: tuple[str, ...]

    @property
    def group(self) -> Group:
        """Return the group of that name, whose settings the runs have."""
        return GROUPS[self.group_name]

    def runs(self, runner: ChaosRunner) -> Iterator[Outcome]:
        """Yield outcomes as they come."""
        for name in self.run_names:
            yield from self.group.runs(runner, 1, name)


_KILLED: Final = Search(
    "kills", ("ack sent", "upload done before ack", "first barrier on one channel")
)
# What the digest job has none of.
_OF_EVENTS: Final = Search("events", ("ack sent", "first barrier on one channel", "upload at half"))
_OTHERS: Final = {
    "lose-a-join-side-at-restore": _OF_EVENTS,
    "lose-broadcast-state-at-restore": _OF_EVENTS,
    "merge-too-little": _OF_EVENTS,
    "forget-late-records": _OF_EVENTS,
    # A checkpoint must fail after the sinks have prepared their part of it.
    "forget-what-was-prepared": Search("storage", ("writing state fails late",)),
    "use-ids-again": Search("kills", ("in stop-with-savepoint",)),
}
SEARCHES: Final[dict[str, Search]] = {bug: _OTHERS.get(bug, _KILLED) for bug in BUGS}
