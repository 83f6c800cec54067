"""Admission: decides which jobs may take slots before all that they need exist. Pure.

A job runs once it has all its slots. A job that must first wait for another one to free some would keep the slots that
it gets from narrower jobs behind it; and two such jobs would wait for each other. So it takes none until as many can
be free at once as it lacks. Jobs that were admitted, and then lost TaskManagers without replacement, may hold slots
that others wait for: they are asked to return them if one of those could run with them. A wide job would wait forever
behind a stream of narrower ones. Once it has lost patience, jobs behind it that have no slot yet take none either:
freed slots are left for it. Jobs that have already run go on or restart: the slots that they lack come back sooner than
the slots that they would have to give up.
Source: Flink has no such thing: there both wait until `slot.request.timeout` is over.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.core.ids import JobId


@dataclass(frozen=True)
class Claim:
    """Slots that a job has, and the number that it needs in total."""

    job_id: JobId
    required_count: int
    held_count: int
    has_run: bool = False
    """True if the job has had slots before."""

    @property
    def lacking_count(self) -> int:
        """Number of slots that the job lacks."""
        return max(0, self.required_count - self.held_count)


@dataclass(frozen=True)
class Admission:
    """Claims of jobs that take no slots for now, and the number of slots that are promised to no job."""

    waiting: tuple[Claim, ...] = ()
    left_count: int = 0
    first: JobId | None = None
    """Job that has lost patience, and gets the slots that others free."""
    behind: frozenset[JobId] = frozenset()
    """Jobs that could run now, but wait for `first`."""

    @property
    def held_back(self) -> frozenset[JobId]:
        """Jobs that take no slots for now."""
        return frozenset(claim.job_id for claim in self.waiting)

    def to_give_back(self, keeping: Collection[JobId] = ()) -> tuple[JobId, ...]:
        """Return the jobs, newest first, with whose slots the first waiting job that can be helped could run.

        Jobs in `keeping` are left out.
        """
        for claim in self.waiting:
            found: list[JobId] = []
            gained = self.left_count
            for other in reversed(self.waiting):
                if other is claim or other.job_id in keeping or not other.held_count:
                    continue
                if gained < claim.lacking_count:
                    found.append(other.job_id)
                    gained += other.held_count
            if found and gained >= claim.lacking_count:
                return tuple(found)
        return ()


def admit(
    claims: Sequence[Claim], capacity: int | None, impatient: Collection[JobId] = ()
) -> Admission:
    """Decide which jobs are admitted, by the largest number of slots of the cluster; if that is None, all are.

    `claims` are in the order of the jobs' arrival. `impatient` jobs have waited for too long; one that needs more than
    the cluster can have does not hold up others.
    """
    if capacity is None:
        return Admission()
    left = capacity - sum(claim.held_count for claim in claims)
    waiting: list[Claim] = []
    first: JobId | None = None
    behind: set[JobId] = set()
    for claim in claims:
        if claim.lacking_count > left and claim.lacking_count:
            waiting.append(claim)
            is_possible = claim.required_count <= capacity
            if first is None and is_possible and claim.job_id in impatient:
                first = claim.job_id
        elif first is not None and claim.lacking_count and not (claim.held_count or claim.has_run):
            waiting.append(claim)
            behind.add(claim.job_id)
        else:
            left -= claim.lacking_count
    return Admission(tuple(waiting), left, first, frozenset(behind))
