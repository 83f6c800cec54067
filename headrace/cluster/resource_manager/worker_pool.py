"""WorkerPool: decides which workers to request and to release, and explains why a worker is missing. Pure.

    (none) --request--> REQUESTED --host gave it a place--> STARTED --registered--> REGISTERED
                            | demand fell, timeout              |                        | idle, or unwanted
                            +---------------> released (tombstone) <---------------------+

There are two kinds: on demand (workers follow the missing slots) and a fixed pool (always `fixed_count` workers, none
given up). The host's room may grow and shrink: while it limits requests, it is checked periodically. While a worker on
demand is used, `redundant_count` more idle ones are kept. Slots that are too large for a usual worker get workers of
their size, one each. The place of a decommissioned worker already counts as free; the worker is released once no job
has a slot there, or `decommission_grace_ms` is over. Workers of an earlier ResourceManager begin as REQUESTED or
STARTED; started ones are not released unless they stay away for `previous_timeout_ms`: jobs with slots there may not
have registered yet. Times are monotonic milliseconds. Source: Flink ActiveResourceManager, StandaloneResourceManager.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from headrace.cluster.blob.virtual_environment import INSTALL_TIMEOUT
from headrace.cluster.resource_manager.worker_events import (
    AskWhetherReleasable,
    IdleReleaseAgreed,
    PoolAction,
    PoolEvent,
    RecoveryEnded,
    ReleaseWorker,
    RequestWorker,
    SlotsMissing,
    TellShortage,
    TimePassed,
    WorkerDecommissioned,
    WorkerLost,
    WorkerRegistered,
    WorkersRecovered,
    WorkerStarted,
    WorkerTerminated,
)
from headrace.cluster.resource_manager.worker_failures import WorkerFailures
from headrace.cluster.resource_manager.worker_shortage import WorkerShortage
from headrace.core.ids import JobId, ResourceId
from headrace.core.resource_profile import JOB_ENVIRONMENT, ResourceProfile

_TOMBSTONES_MAX: Final = 1000
_ROOM_CHECK_MS: Final = 1_000.0
"""Interval in ms at which a host without room for a worker is checked again, because it does not report new room."""
_SPENT_CHECK_MS: Final = 1_000.0
"""Interval in ms at which a spent worker whose results are still read is asked again; others may need its place."""


class WorkerState(enum.Enum):
    """States of a live worker."""

    REQUESTED = "REQUESTED"
    STARTED = "STARTED"
    REGISTERED = "REGISTERED"


@dataclass(frozen=True)
class PoolLimits:
    """Limits of the pool; `fixed_count` None means on demand, None as a maximum means no limit.

    `max_count` is the host's room for workers, `slots_max` the limit of the cluster's slots. `environment_timeout_ms`:
    extra time to register for a worker whose host first makes the Python environment of a job.
    """

    slots_per_worker: int
    fixed_count: int | None
    max_count: int | None
    registration_timeout_ms: float
    idle_timeout_ms: float
    max_failures_per_minute: float
    retry_interval_ms: float
    slots_max: int | None = None
    redundant_count: int = 0
    cores_per_worker: int = 1
    previous_timeout_ms: float = float("inf")
    decommission_grace_ms: float = 0.0
    environment_timeout_ms: float = 0.0

    @property
    def worker_count_max(self) -> int | None:
        """Largest number of workers: the smaller of the two maxima."""
        if self.slots_max is None:
            return self.max_count
        count = self.slots_max // self.slots_per_worker
        return count if self.max_count is None else min(count, self.max_count)


@dataclass(frozen=True)
class _Worker:
    state: WorkerState
    since_ms: float
    idle_since_ms: float | None = None
    is_spent: bool = False
    is_awaited: bool = False
    profile: ResourceProfile | None = None
    is_previous: bool = False
    # Cause of its decommissioning, and the latest time of its end.
    leaving: str = ""
    leaves_at_ms: float = 0.0


@dataclass
class WorkerPool:
    """All workers of this ResourceManager. `new_worker_id` makes a name that was never used before."""

    limits: PoolLimits
    new_worker_id: Callable[[], ResourceId]
    failures: WorkerFailures = field(init=False)
    _workers: dict[ResourceId, _Worker] = field(default_factory=dict[ResourceId, _Worker])
    _tombstones: dict[ResourceId, str] = field(default_factory=dict[ResourceId, str])
    _missing_slot_count: int = 0
    _missing_sized: Counter[ResourceProfile] = field(default_factory=Counter[ResourceProfile])
    _redundant_missing_count: int = 0
    _held_back_count: int = 0
    _room_check_due_ms: float | None = None
    _shortage: WorkerShortage = field(default_factory=WorkerShortage)
    _is_recovering: bool = False

    def __post_init__(self) -> None:
        limits = self.limits
        self.failures = WorkerFailures(limits.max_failures_per_minute, limits.retry_interval_ms)

    def handle(self, event: PoolEvent, monotonic_ms: float) -> list[PoolAction]:
        """Process an event and return the actions to perform, in order."""
        actions: list[PoolAction] = []
        match event:
            case WorkersRecovered():
                self._recover(event, monotonic_ms)
            case RecoveryEnded():
                self._is_recovering = False
            case SlotsMissing(slot_count, idle, spent, sized, awaited):
                self._missing_slot_count = slot_count
                self._missing_sized = Counter(sized)
                self._mark_idle(idle, awaited, monotonic_ms)
                actions += self._mark_spent(spent, monotonic_ms)
                actions += [
                    self._release(worker_id, worker.leaving)
                    for worker_id in idle
                    if (worker := self._workers.get(worker_id)) is not None and worker.leaving
                ]
                self._redundant_missing_count = self._redundant_missing()
            case WorkerStarted(worker_id):
                self._move(worker_id, WorkerState.STARTED, monotonic_ms)
            case WorkerRegistered(worker_id):
                self._registered(worker_id, monotonic_ms)
            case WorkerTerminated(worker_id, diagnostics):
                self._terminated(worker_id, diagnostics, monotonic_ms)
            case WorkerLost(worker_id, cause, job_ids):
                if worker_id in self._workers:
                    self._terminated(worker_id, cause, monotonic_ms, job_ids)
                    actions.append(ReleaseWorker(worker_id, cause))
            case WorkerDecommissioned(worker_id, cause):
                worker = self._workers.get(worker_id)
                if worker is not None:
                    leaves_at_ms = monotonic_ms + self.limits.decommission_grace_ms
                    self._workers[worker_id] = replace(
                        worker, leaving=cause, leaves_at_ms=leaves_at_ms
                    )
            case IdleReleaseAgreed(worker_id):
                worker = self._workers.get(worker_id)
                if (
                    worker is not None
                    and worker.idle_since_ms is not None
                    and self._is_spare(worker)
                ):
                    actions.append(self._release(worker_id, "idle: no job has a slot here"))
            case TimePassed():
                actions += self._time_passed(monotonic_ms)
        actions += self._converge(monotonic_ms)
        return [*actions, *self._tell_shortage(monotonic_ms)]

    def refusal_of(self, worker_id: ResourceId) -> str | None:
        """Return the reason why a TaskManager with this name may not register, or None if it may."""
        if worker_id in self._tombstones:
            return f"TaskManager {worker_id} has ended or was released before ({self._tombstones[worker_id]})"
        if worker_id not in self._workers:
            return f"TaskManager {worker_id} was not requested by this ResourceManager"
        return None

    @property
    def pending_count(self) -> int:
        """Number of workers that were requested and have not registered."""
        return sum(w.state is not WorkerState.REGISTERED for w in self._workers.values())

    def decommissioned(self, worker_id: ResourceId) -> str:
        """Return why the host removes a worker; empty if it does not."""
        worker = self._workers.get(worker_id)
        return "" if worker is None else worker.leaving

    def may_another_come(self, worker_id: ResourceId, monotonic_ms: float) -> bool:
        """Return whether a worker like this one is starting, or may be requested now; False in a fixed pool."""
        if self.limits.fixed_count is not None:
            return False
        profile = self.profile_of(worker_id)
        places = self._places(profile)
        return self._pending_of(profile) > 0 or self._allowed(places, monotonic_ms) >= places

    def profile_of(self, worker_id: ResourceId) -> ResourceProfile | None:
        """Return the size for which a worker was requested; None for usual workers."""
        worker = self._workers.get(worker_id)
        return None if worker is None else worker.profile

    def describe_pending(self, monotonic_ms: float, waiting: Mapping[JobId, float]) -> str:
        """Return a text for people on the workers that jobs wait for; empty if there are none.

        `waiting`: the jobs that lack slots, each with the monotonic time in ms since which it does.
        """
        parts: list[str] = []
        for state, text in (
            (WorkerState.REQUESTED, "wait for a place on the host"),
            (WorkerState.STARTED, "started and have not registered yet"),
        ):
            since = [w.since_ms for w in self._workers.values() if w.state is state]
            if since:
                waited_s = (monotonic_ms - min(since)) / 1000
                parts.append(f"{len(since)} worker(s) {text} (for {waited_s:.0f} s)")
        if self.failures.holds_back(monotonic_ms):
            parts.append("requests for new workers are paused because too many failed to start")
        maximum = self.limits.worker_count_max
        are_missing = self._missing_slot_count or +self._missing_sized
        if maximum is not None and len(self._staying) >= maximum and are_missing:
            if maximum == self.limits.max_count:
                parts.append(f"the host can run at most {maximum} worker(s)")
            else:
                parts.append(
                    f"slotmanager.number-of-slots.max allows at most {self.limits.slots_max} slot(s)"
                )
        if self.failures.last_concerns(waiting):
            parts.append(f"last failure of a worker: {self.failures.last}")
        return "; ".join(parts)

    def next_check_ms(self) -> float | None:
        """Return the next time at which `TimePassed` can have an effect, or None."""
        known = (
            self.failures.pause_end_ms,
            self._room_check_due_ms,
            self._shortage.next_check_ms,
        )
        due = [at for at in known if at is not None]
        for worker in self._workers.values():
            if worker.leaving:
                due.append(worker.leaves_at_ms)
            elif worker.state is WorkerState.STARTED:
                due.append(worker.since_ms + self._registration_timeout_ms(worker))
            elif (
                worker.idle_since_ms is not None
                and self._ends_when_idle(worker)
                and self._is_spare(worker)
            ):
                due.append(worker.idle_since_ms + self._idle_timeout_ms(worker))
        return min(due, default=None)

    def _recover(self, previous: WorkersRecovered, monotonic_ms: float) -> None:
        self._is_recovering = True
        for worker_id in previous.placeless:
            profile = previous.sized.get(worker_id)
            self._workers[worker_id] = _Worker(WorkerState.REQUESTED, monotonic_ms, profile=profile)
        for worker_id in previous.started:
            profile = previous.sized.get(worker_id)
            self._workers[worker_id] = _Worker(
                WorkerState.STARTED, monotonic_ms, profile=profile, is_previous=True
            )

    def _registration_timeout_ms(self, worker: _Worker) -> float:
        timeout_ms = self.limits.registration_timeout_ms
        if _environment_of(worker):
            timeout_ms += self.limits.environment_timeout_ms
        return (
            min(timeout_ms, self.limits.previous_timeout_ms) if worker.is_previous else timeout_ms
        )

    def _mark_idle(
        self, idle: Iterable[ResourceId], awaited: Iterable[ResourceId], monotonic_ms: float
    ) -> None:
        now_idle, now_awaited = set(idle), set(awaited)
        for worker_id, worker in self._workers.items():
            is_awaited = worker_id in now_awaited
            since_ms = worker.idle_since_ms
            if worker_id not in now_idle:
                since_ms = None
            elif since_ms is None or worker.is_awaited > is_awaited:
                # An awaited worker gets its full idle time from now on: another job may come.
                since_ms = monotonic_ms
            self._workers[worker_id] = replace(
                worker, idle_since_ms=since_ms, is_awaited=is_awaited
            )

    def _mark_spent(self, spent: Iterable[ResourceId], monotonic_ms: float) -> list[PoolAction]:
        """Ask workers that have just become spent at once whether they may be released.

        After a refusal they are asked again.
        """
        actions: list[PoolAction] = []
        for worker_id in spent:
            worker = self._workers.get(worker_id)
            if worker is not None and not worker.is_spent:
                actions.append(AskWhetherReleasable(worker_id))
                self._workers[worker_id] = replace(
                    worker, idle_since_ms=monotonic_ms, is_spent=True
                )
        return actions

    def _ends_when_idle(self, worker: _Worker) -> bool:
        return worker.is_spent or self.limits.fixed_count is None

    def _idle_timeout_ms(self, worker: _Worker) -> float:
        timeout_ms = self.limits.idle_timeout_ms
        return min(timeout_ms, _SPENT_CHECK_MS) if worker.is_spent else timeout_ms

    def _move(self, worker_id: ResourceId, state: WorkerState, monotonic_ms: float) -> bool:
        """Change a worker's state; return False if it has registered already, or is unknown."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.state is WorkerState.REGISTERED:
            return False
        self._workers[worker_id] = replace(
            worker, state=state, since_ms=monotonic_ms, is_previous=False
        )
        return True

    def _registered(self, worker_id: ResourceId, monotonic_ms: float) -> None:
        # A worker that did not get the answer in time registers again: it serves no further slot.
        if not self._move(worker_id, WorkerState.REGISTERED, monotonic_ms):
            return
        # Its slots are about to be matched; until then they must not be requested again.
        profile = self.profile_of(worker_id)
        if profile is not None:
            self._missing_sized[profile] -= 1
        elif self._missing_slot_count:
            served = self._missing_slot_count - self.limits.slots_per_worker
            self._missing_slot_count = max(0, served)
        else:
            self._redundant_missing_count = max(0, self._redundant_missing_count - 1)

    def _terminated(
        self,
        worker_id: ResourceId,
        diagnostics: str,
        monotonic_ms: float,
        job_ids: frozenset[JobId] = frozenset(),
    ) -> None:
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return
        self._remember_given_up(worker_id, diagnostics)
        is_start = worker.state is not WorkerState.REGISTERED
        self.failures.add(worker_id, diagnostics, monotonic_ms, job_ids, is_start=is_start)

    def _time_passed(self, monotonic_ms: float) -> list[PoolAction]:
        self.failures.time_passed(monotonic_ms)
        actions: list[PoolAction] = []
        for worker_id, worker in list(self._workers.items()):
            if worker.leaving:
                if monotonic_ms >= worker.leaves_at_ms:
                    actions.append(self._release(worker_id, worker.leaving))
            elif worker.state is WorkerState.STARTED:
                if monotonic_ms - worker.since_ms >= self._registration_timeout_ms(worker):
                    cause = _absence_of(worker)
                    self._terminated(worker_id, cause, monotonic_ms)
                    actions.append(ReleaseWorker(worker_id, cause))
            elif self._is_idle_too_long(worker, monotonic_ms):
                actions.append(AskWhetherReleasable(worker_id))
                # Asked again after another timeout if the answer is no or never comes.
                self._workers[worker_id] = replace(worker, idle_since_ms=monotonic_ms)
        return actions

    def _is_idle_too_long(self, worker: _Worker, monotonic_ms: float) -> bool:
        if worker.idle_since_ms is None or not self._ends_when_idle(worker):
            return False
        if not self._is_spare(worker):
            return False
        return monotonic_ms - worker.idle_since_ms >= self._idle_timeout_ms(worker)

    def _release(self, worker_id: ResourceId, cause: str) -> ReleaseWorker:
        del self._workers[worker_id]
        self._remember_given_up(worker_id, cause)
        return ReleaseWorker(worker_id, cause)

    def _remember_given_up(self, worker_id: ResourceId, cause: str) -> None:
        """Keep the reason to refuse a late registration; without it, the worker is refused as not requested."""
        self._tombstones[worker_id] = cause
        if len(self._tombstones) > _TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]

    def _converge(self, monotonic_ms: float) -> list[PoolAction]:
        """Adjust the number of workers that are not registered to the number needed."""
        if self.limits.fixed_count is not None:
            wanted_new_count = self.limits.fixed_count - len(self._staying)
        else:
            slots = self._missing_slot_count
            wanted_new_count = -(-slots // self.limits.slots_per_worker) - self._pending_of(None)
            wanted_new_count += self._redundant_missing_count
        sized = self._new_sized()
        wanted_count = max(0, wanted_new_count)
        allowed_count = self._allowed(wanted_count + sum(map(self._places, sized)), monotonic_ms)
        new_count = min(wanted_count, allowed_count)
        left = allowed_count - new_count
        granted: list[ResourceProfile] = []
        for profile in sized:
            if self._places(profile) <= left:
                left -= self._places(profile)
                granted.append(profile)
        self._held_back_count = wanted_count - new_count + len(sized) - len(granted)
        needs_room = self._held_back_count > 0 and not self.failures.holds_back(monotonic_ms)
        self._room_check_due_ms = monotonic_ms + _ROOM_CHECK_MS if needs_room else None
        actions = [] if self._is_recovering else self._give_up_surplus(-wanted_new_count)
        for profile in [*granted, *[None] * new_count]:
            worker_id = self.new_worker_id()
            self._workers[worker_id] = _Worker(WorkerState.REQUESTED, monotonic_ms, profile=profile)
            actions.append(RequestWorker(worker_id, profile))
        return actions

    def _new_sized(self) -> list[ResourceProfile]:
        """Return the sizes of workers that are missing and have not been requested."""
        return [
            profile
            for profile, count in self._missing_sized.items()
            for _ in range(count - self._pending_of(profile))
        ]

    def _places(self, profile: ResourceProfile | None) -> int:
        """Return the number of usual workers that use as many cores of the host."""
        if profile is None:
            return 1
        return max(1, ceil(ceil(profile.cpu_cores) / self.limits.cores_per_worker))

    @property
    def _staying(self) -> list[_Worker]:
        return [worker for worker in self._workers.values() if not worker.leaving]

    def _pending_of(self, profile: ResourceProfile | None) -> int:
        return sum(
            worker.state is not WorkerState.REGISTERED and worker.profile == profile
            for worker in self._staying
        )

    def _give_up_surplus(self, default_count: int) -> list[PoolAction]:
        """Release workers that are not needed and have not registered.

        `default_count` usual ones, and surplus sized ones.
        """
        actions = self._give_up_pending(None, default_count)
        for profile in dict.fromkeys(worker.profile for worker in self._workers.values()):
            if profile is not None:
                surplus = self._pending_of(profile) - max(0, self._missing_sized[profile])
                actions += self._give_up_pending(profile, surplus)
        return actions

    def _allowed(self, wanted_count: int, monotonic_ms: float) -> int:
        """Return how many of `wanted_count` new workers may be requested now."""
        if self.failures.holds_back(monotonic_ms):
            return 0
        maximum = self.limits.worker_count_max
        if maximum is None:
            return max(0, wanted_count)
        taken = sum(self._places(worker.profile) for worker in self._staying)
        return max(0, min(wanted_count, maximum - taken))

    @property
    def _are_any_used(self) -> bool:
        return any(
            worker.state is WorkerState.REGISTERED and worker.idle_since_ms is None
            for worker in self._workers.values()
        )

    @property
    def _redundant_count(self) -> int:
        """Number of idle workers that could replace another one."""
        return sum(
            worker.idle_since_ms is not None and not worker.is_spent and worker.profile is None
            for worker in self._staying
        )

    @property
    def _are_sized_held_back(self) -> bool:
        """Return whether slots that need a sized worker wait for a place, which they need more than redundancy does."""
        return bool(self._held_back_count and +self._missing_sized)

    def _redundant_missing(self) -> int:
        if not self._are_any_used or self._are_sized_held_back:
            return 0
        return max(0, self.limits.redundant_count - self._redundant_count)

    def _is_spare(self, worker: _Worker) -> bool:
        """Return whether an idle worker is needed neither for jobs that wait for its slots nor for redundancy."""
        if worker.is_awaited:
            return False
        if worker.is_spent or worker.profile is not None or not self._are_any_used:
            return True
        if self._are_sized_held_back:
            return True
        return self._redundant_count > self.limits.redundant_count

    def _tell_shortage(self, monotonic_ms: float) -> list[PoolAction]:
        placeless_count = sum(w.state is WorkerState.REQUESTED for w in self._workers.values())
        short_count = self._held_back_count + placeless_count
        is_told = self._shortage.is_to_be_told(short_count, monotonic_ms)
        return [TellShortage(short_count)] if is_told else []

    def _give_up_pending(self, profile: ResourceProfile | None, count: int) -> list[PoolAction]:
        """Release `count` workers of a size that have not registered, those without a place first."""
        pending = [
            (worker.state is WorkerState.STARTED, worker_id)
            for worker_id, worker in self._workers.items()
            if worker.state is not WorkerState.REGISTERED
            and worker.profile == profile
            and not (worker.is_previous or worker.leaving)
        ]
        pending.sort(key=lambda entry: entry[0])
        return [
            self._release(worker_id, "no longer needed")
            for _, worker_id in pending[: max(0, count)]
        ]


def _environment_of(worker: _Worker) -> str:
    """Return the name of the job's environment that the host of a worker makes first; empty if it makes none."""
    name = "" if worker.profile is None else worker.profile.python_executable
    return name if name.startswith(JOB_ENVIRONMENT) else ""


def _absence_of(worker: _Worker) -> str:
    """Return the time-out within which a worker has not registered, as a clause."""
    if worker.is_previous:
        return "it did not register at the next ResourceManager within heartbeat.timeout"
    cause = "it did not register within resourcemanager.taskmanager-registration.timeout"
    environment = _environment_of(worker)
    if environment:
        cause += (
            f" and {INSTALL_TIMEOUT.key}, which includes the time to make the job's Python environment "
            f"'{environment.removeprefix(JOB_ENVIRONMENT)}'"
        )
    return cause
