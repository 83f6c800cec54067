"""Events of a WorkerPool, and the actions that it answers with. Pure.

Times are monotonic milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.ids import JobId, ResourceId
from headrace.core.resource_profile import ResourceProfile

# Events


@dataclass(frozen=True)
class WorkersRecovered:
    """The host has these workers of an earlier ResourceManager, who come back now. `sized`: see PreviousWorkers."""

    placeless: tuple[ResourceId, ...]
    started: tuple[ResourceId, ...]
    sized: Mapping[ResourceId, ResourceProfile] = field(
        default_factory=dict[ResourceId, ResourceProfile]
    )


@dataclass(frozen=True)
class RecoveryEnded:
    """All of them have come back, or there was time enough: from now on it counts what jobs need."""


@dataclass(frozen=True)
class SlotsMissing:
    """The number of slots wanted beyond those of registered workers; `idle` are the workers without any job.

    Those of them that are `spent` can serve no other job, and are not to wait for one. `sized`: the resources of each
    missing slot that needs a worker of its own size. Those that are `awaited` have slots for which jobs wait that take
    none before they can have all: to give such a worker up would be to ask for another at once.
    """

    slot_count: int
    idle: tuple[ResourceId, ...]
    spent: tuple[ResourceId, ...] = ()
    sized: tuple[ResourceProfile, ...] = ()
    awaited: tuple[ResourceId, ...] = ()


@dataclass(frozen=True)
class WorkerStarted:
    """The host gave the worker a place."""

    worker_id: ResourceId


@dataclass(frozen=True)
class WorkerRegistered:
    """The worker's TaskManager registered."""

    worker_id: ResourceId


@dataclass(frozen=True)
class WorkerTerminated:
    """The host says that the worker is gone."""

    worker_id: ResourceId
    diagnostics: str


@dataclass(frozen=True)
class WorkerLost:
    """The worker's TaskManager stopped answering, said goodbye or was rejected: the process is not wanted any more.

    `job_ids`: the jobs that had slots there.
    """

    worker_id: ResourceId
    cause: str
    job_ids: frozenset[JobId] = frozenset()


@dataclass(frozen=True)
class WorkerDecommissioned:
    """The host takes the worker's place away soon."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class IdleReleaseAgreed:
    """The idle TaskManager holds nothing that somebody still reads."""

    worker_id: ResourceId


@dataclass(frozen=True)
class TimePassed:
    """The clock was read."""


PoolEvent = (
    WorkersRecovered
    | RecoveryEnded
    | SlotsMissing
    | WorkerStarted
    | WorkerRegistered
    | WorkerTerminated
    | WorkerLost
    | WorkerDecommissioned
    | IdleReleaseAgreed
    | TimePassed
)


# Actions


@dataclass(frozen=True)
class RequestWorker:
    """Ask the host for a worker: one with these resources for slots, or, without a profile, one as the settings say."""

    worker_id: ResourceId
    profile: ResourceProfile | None = None


@dataclass(frozen=True)
class ReleaseWorker:
    """Stop the worker by RPC where it is registered, then have the host stop it."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class AskWhetherReleasable:
    """Ask the idle TaskManager whether anybody still reads from it."""

    worker_id: ResourceId


@dataclass(frozen=True)
class TellShortage:
    """Tell people that for a while the host has had no place for `worker_count` workers that are needed."""

    worker_count: int


PoolAction = RequestWorker | ReleaseWorker | AskWhetherReleasable | TellShortage
