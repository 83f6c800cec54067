"""Admission: which jobs may take slots although not all that they need are there yet. Pure.

A job runs once it has all its slots. One that cannot have them before another job has freed some would keep those that
it gets from narrower jobs behind it; and two such jobs would wait for each other. So it takes none, until as many can
be there at once as it lacks. Jobs that were admitted, and then lost TaskManagers that nobody replaces, may hold what
others wait for: they are asked to give it back where one of those could run with it.
A wide job would wait for ever behind a stream of narrower ones. Once it has lost patience, jobs behind it that have no
slot yet take none either: what others free is left for it. Jobs that have run already go on, or on again: what they
lack comes sooner back than what they would have to give up.
Source: Flink has no such thing: there both wait until `slot.request.timeout` is over.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.core.ids import JobId


@dataclass(frozen=True)
class Claim:
    """Slots that a job has, and those that it needs altogether."""

    job_id: JobId
    required_count: int
    held_count: int
    has_run: bool = False
    """Whether it has had slots before."""

    @property
    def lacking_count(self) -> int:
        """Slots that it does not have yet."""
        return max(0, self.required_count - self.held_count)


@dataclass(frozen=True)
class Admission:
    """The claims of jobs that take no slot for now, and how many slots there can be that are promised to nobody."""

    waiting: tuple[Claim, ...] = ()
    left_count: int = 0
    first: JobId | None = None
    """The job that has lost patience, and gets what others free."""
    behind: frozenset[JobId] = frozenset()
    """Jobs that could run now, and wait for it."""

    @property
    def held_back(self) -> frozenset[JobId]:
        """Jobs that take no slot for now."""
        return frozenset(claim.job_id for claim in self.waiting)

    def to_give_back(self, keeping: Collection[JobId] = ()) -> tuple[JobId, ...]:
        """Return holders, the last to come first, with whose slots the first job that can be helped could run.

        Those that are `keeping` what they hold are none of them.
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
    """Decide by the slots that the cluster can have at most; None where nobody knows: then all are admitted.

    `claims` are in order of arrival of the jobs. Those that are `impatient` have waited for too long; one that needs
    more than the cluster can have waits in vain, and holds up nobody.
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
