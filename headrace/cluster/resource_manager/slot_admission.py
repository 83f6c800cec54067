"""Admission: which jobs may take slots although not all that they need are there yet. Pure.

A job runs once it has all its slots. One that cannot have them before another job has freed some would keep those that
it gets from narrower jobs behind it; and two such jobs would wait for each other. So it takes none, until as many can
be there at once as it lacks. Jobs that were admitted, and then lost TaskManagers that nobody replaces, may hold what
others wait for: they are asked to give it back where one of those could run with it.
Source: Flink has no such thing: there both wait until `slot.request.timeout` is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.core.ids import JobId


@dataclass(frozen=True)
class Claim:
    """Slots that a job has, and those that it needs altogether, in order of arrival of the jobs."""

    job_id: JobId
    required_count: int
    held_count: int

    @property
    def lacking_count(self) -> int:
        """Slots that it does not have yet."""
        return max(0, self.required_count - self.held_count)


@dataclass(frozen=True)
class Admission:
    """Jobs that take no slot for now, and those of them that are to give back what they hold, as another could run."""

    held_back: frozenset[JobId] = frozenset()
    to_give_back: tuple[JobId, ...] = ()


def admit(claims: Sequence[Claim], capacity: int | None) -> Admission:
    """Decide by the slots that the cluster can have at most; None where nobody knows: then all are admitted."""
    if capacity is None:
        return Admission()
    left = capacity - sum(claim.held_count for claim in claims)
    waiting: list[Claim] = []
    for claim in claims:
        if claim.lacking_count > left and claim.lacking_count:
            waiting.append(claim)
        else:
            left -= claim.lacking_count
    return Admission(frozenset(claim.job_id for claim in waiting), _to_give_back(waiting, left))


def _to_give_back(waiting: Sequence[Claim], left: int) -> tuple[JobId, ...]:
    """Return holders, the last to come first, with whose slots the first job that can be helped could run."""
    for claim in waiting:
        found: list[JobId] = []
        gained = left
        for other in reversed(waiting):
            if other is not claim and other.held_count and gained < claim.lacking_count:
                found.append(other.job_id)
                gained += other.held_count
        if found and gained >= claim.lacking_count:
            return tuple(found)
    return ()
