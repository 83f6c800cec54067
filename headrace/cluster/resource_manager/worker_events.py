"""Events that a WorkerPool processes, and its actions. Pure.

Times are monotonic milliseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.ids import JobId, ResourceId
from headrace.core.resource_profile import ResourceProfile

# Events


@dataclass(frozen=True)
class WorkersRecovered:
    """The host has these workers of an earlier ResourceManager, which will register again.

    `sized`: see PreviousWorkers.
    """

    placeless: tuple[ResourceId, ...]
    started: tuple[ResourceId, ...]
    sized: Mapping[ResourceId, ResourceProfile] = field(
        default_factory=dict[ResourceId, ResourceProfile]
    )


@dataclass(frozen=True)
class RecoveryEnded:
    """All earlier workers have registered, or had time to: from now on the requirements of jobs count."""


@dataclass(frozen=True)
class SlotsMissing:
    """Number of slots needed beyond those of registered workers; `idle` are the workers without any job.

    Those of them that are `spent` can serve no other job, and must not wait for one. `sized`: the resources of each
    missing slot that needs a worker of its own size. The `awaited` ones have slots for jobs that take
    none before they can have all: releasing such a worker would only mean requesting another one.
    """

    slot_count: int
    idle: tuple[ResourceId, ...]
    spent: tuple[ResourceId, ...] = ()
    sized: tuple[ResourceProfile, ...] = ()
    awaited: tuple[ResourceId, ...] = ()


@dataclass(frozen=True)
class WorkerStarted:
    """The host has started the worker."""

    worker_id: ResourceId


@dataclass(frozen=True)
class WorkerRegistered:
    """The worker's TaskManager registered."""

    worker_id: ResourceId


@dataclass(frozen=True)
class WorkerTerminated:
    """The host reports that the worker has ended."""

    worker_id: ResourceId
    diagnostics: str


@dataclass(frozen=True)
class WorkerLost:
    """The worker's TaskManager does not respond, has ended or was rejected, so that its process is not needed any more.

    `job_ids`: the jobs that had slots there.
    """

    worker_id: ResourceId
    cause: str
    job_ids: frozenset[JobId] = frozenset()


@dataclass(frozen=True)
class WorkerDecommissioned:
    """The host will remove the worker soon."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class IdleReleaseAgreed:
    """The idle TaskManager holds no results that are still read."""

    worker_id: ResourceId


@dataclass(frozen=True)
class TimePassed:
    """Time has passed; the clock was read."""


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
    """Request a worker from the host: with these resources for slots or, without a profile, as set by the settings."""

    worker_id: ResourceId
    profile: ResourceProfile | None = None


@dataclass(frozen=True)
class ReleaseWorker:
    """Stop the worker by RPC if it is registered, then through the host."""

    worker_id: ResourceId
    cause: str


@dataclass(frozen=True)
class AskWhetherReleasable:
    """Ask the idle TaskManager whether its results are still read."""

    worker_id: ResourceId


@dataclass(frozen=True)
class TellShortage:
    """Tell people that the host has had no place for `worker_count` needed workers for a while."""

    worker_count: int


PoolAction = RequestWorker | ReleaseWorker | AskWhetherReleasable | TellShortage
