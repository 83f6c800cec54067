"""Workers: performs the WorkerPool's actions at the host, and passes the host's reports to the main thread."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from math import ceil
from typing import Any, Final

from headrace.cluster.blob.virtual_environment import INSTALL_TIMEOUT
from headrace.cluster.resource_manager.driver import WorkerHost, remedy_where_alike
from headrace.cluster.resource_manager.options import (
    DECOMMISSION_GRACE,
    FIXED_POOL_SIZE,
    PREVIOUS_WORKER_RECOVERY_TIMEOUT,
    REDUNDANT_TASK_MANAGERS,
    SLOTS_MAX,
    START_WORKER_MAX_FAILURE_RATE,
    START_WORKER_RETRY_INTERVAL,
    TASK_MANAGER_REGISTRATION_TIMEOUT,
    TASK_MANAGER_TIMEOUT,
)
from headrace.cluster.resource_manager.worker_events import (
    AskWhetherReleasable,
    PoolEvent,
    RecoveryEnded,
    ReleaseWorker,
    RequestWorker,
    TellShortage,
    TimePassed,
    WorkerRegistered,
    WorkersRecovered,
    WorkerStarted,
    WorkerTerminated,
)
from headrace.cluster.resource_manager.worker_pool import (
    PoolLimits,
    WorkerPool,
)
from headrace.cluster.task_executor.external_resources import external_resource_amounts
from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId, ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.options import HEARTBEAT_TIMEOUT

_LOG = logging.getLogger(__name__)


class Workers:
    """Connects the pool, the host and the clock. Runs on the ResourceManager's main thread.

    Implements WorkerListener, from any thread. `stop(worker_id, cause)` stops a registered TaskManager by RPC;
    `ask_whether_releasable(worker_id)` asks it whether its results are still read, and answers yes with an
    IdleReleaseAgreed. `on_terminated(worker_id, diagnostics)` is called when the host reports the end of a worker, and
    returns whether it was registered and has been handled. `on_decommissioned(worker_id, cause)`: the host removes the
    worker soon. `on_interpreter_failed(interpreter, cause, recoverable)`: no worker can run with this interpreter.
    `on_host_failed(error)`: the host itself has failed. `open` takes over the workers of an earlier ResourceManager of
    this cluster.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        host: WorkerHost,
        *,
        stop: Callable[[ResourceId, str], Awaitable[None]],
        ask_whether_releasable: Callable[[ResourceId], Coroutine[Any, Any, None]],
        on_terminated: Callable[[ResourceId, str], bool],
        on_decommissioned: Callable[[ResourceId, str], None],
        on_interpreter_failed: Callable[[str, str, bool], None],
        on_host_failed: Callable[[BaseException], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._host: Final = host
        self._stop: Final = stop
        self._ask_whether_releasable: Final = ask_whether_releasable
        self._on_terminated: Final = on_terminated
        self._on_decommissioned: Final = on_decommissioned
        self._on_interpreter_failed: Final = on_interpreter_failed
        self._on_host_failed: Final = on_host_failed
        self._usual_profile: Final = worker_profile(endpoint.settings)
        self._pool: Final = WorkerPool(_limits(endpoint.settings, host), host.new_worker_id)
        self._timer: Cancellable | None = None
        self._is_closing = False
        self._previous: frozenset[ResourceId] = frozenset()
        self._awaited: set[ResourceId] = set()
        self._recovered: Final = asyncio.Event()

    def open(self) -> None:
        """Open the host with its existing workers; a fixed pool is requested at once."""
        previous = self._host.open(self)
        self._previous = frozenset(previous.started)
        self._awaited = set(previous.started)
        self.handle(WorkersRecovered(previous.placeless, previous.started, previous.sized))
        if self._awaited:
            timeout_ms = self._endpoint.settings.duration_ms(PREVIOUS_WORKER_RECOVERY_TIMEOUT)
            self._endpoint.schedule_run_async(timeout_ms, self._end_recovery)
        else:
            self._end_recovery()

    def is_previous(self, worker_id: ResourceId) -> bool:
        """Return whether an earlier ResourceManager has started the worker."""
        return worker_id in self._previous

    def registered(self, worker_id: ResourceId) -> None:
        """Record that the TaskManager of a worker has registered, perhaps before the host reports its start."""
        self._host.mark_started(worker_id)
        self.handle(WorkerRegistered(worker_id))

    def reported(self, worker_id: ResourceId) -> None:
        """Record that a TaskManager has reported its slots."""
        self._await_no_more(worker_id)

    async def await_recovery(self) -> None:
        """Wait until TaskManagers of an earlier ResourceManager have reported; return at once if there are none."""
        await self._recovered.wait()

    def _await_no_more(self, worker_id: ResourceId) -> None:
        if worker_id in self._awaited:
            self._awaited.discard(worker_id)
            if not self._awaited:
                self._end_recovery()

    def _end_recovery(self) -> None:
        if self._recovered.is_set():
            return
        if self._awaited:
            names = ", ".join(sorted(map(str, self._awaited)))
            _LOG.warning(
                "%d of %d TaskManager(s) of the previous ResourceManager have not registered again within '%s'; "
                "slots are assigned without waiting for them: %s",
                len(self._awaited),
                len(self._previous),
                PREVIOUS_WORKER_RECOVERY_TIMEOUT.key,
                names,
            )
        elif self._previous:
            _LOG.info("all %d TaskManager(s) have registered again", len(self._previous))
        self._recovered.set()
        self.handle(RecoveryEnded())

    def stop_asking(self) -> None:
        """Request no more workers and let none register, because the cluster ends."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Let the host end every worker."""
        self.stop_asking()
        await self._host.close()

    def handle(self, event: PoolEvent) -> None:
        """Let the pool process an event, and perform its actions."""
        if self._is_closing:
            return
        # The host may grow and shrink: its limit is read again each time.
        self._pool.limits = replace(self._pool.limits, max_count=self._host.max_worker_count)
        monotonic_ms = self._endpoint.clock.monotonic_ms()
        for action in self._pool.handle(event, monotonic_ms):
            match action:
                case RequestWorker(worker_id, profile):
                    self._host.request_worker(worker_id, profile, self._usual_profile)
                case ReleaseWorker(worker_id, cause):
                    self._endpoint.spawn(self._release(worker_id, cause), f"release {worker_id}")
                case AskWhetherReleasable(worker_id):
                    question = self._ask_whether_releasable(worker_id)
                    self._endpoint.spawn(question, f"idle {worker_id}")
                case TellShortage(worker_count):
                    self._tell_shortage(worker_count)
        self._set_timer(self._pool.next_check_ms(), monotonic_ms)

    def _tell_shortage(self, worker_count: int) -> None:
        shortage = self._host.describe_shortage()
        failure = self._pool.failures.last.split("\n", 1)[0]
        last = f" (last failure: {failure})" if failure else ""
        _LOG.warning("%d TaskManager(s) are missing: %s%s", worker_count, shortage, last)

    def refusal_of(self, worker_id: ResourceId) -> str | None:
        """Return the reason why a TaskManager with this name may not register, or None if it may."""
        if self._is_closing:
            return "the cluster is shutting down"
        return self._pool.refusal_of(worker_id)

    def profile_of(self, worker_id: ResourceId) -> ResourceProfile | None:
        """Return the size for which a worker was requested; None for usual workers."""
        return self._pool.profile_of(worker_id)

    def may_another_come(self, worker_id: ResourceId) -> bool:
        """Return whether a worker like this one is starting, or may be requested now."""
        return self._pool.may_another_come(worker_id, self._endpoint.clock.monotonic_ms())

    def decommissioned(self, worker_id: ResourceId) -> str:
        """Return why the host removes a worker; empty if it does not."""
        return self._pool.decommissioned(worker_id)

    def refusal_of_size(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why no worker can have these resources for slots; empty if one can."""
        if self._pool.limits.fixed_count is not None:
            alike = f"{FIXED_POOL_SIZE.key} gives all TaskManagers the same size"
            return f"{alike}: unset it, or {remedy_where_alike(profile, usual)}"
        return self._host.refusal_of(profile, usual)

    def slot_capacity(self) -> int | None:
        """Return the largest number of slots that the host can currently provide, or None if unknown."""
        limits = replace(self._pool.limits, max_count=self._host.max_worker_count)
        count = limits.worker_count_max if limits.fixed_count is None else limits.fixed_count
        return None if count is None else count * limits.slots_per_worker

    @property
    def pending_count(self) -> int:
        """Number of workers that were requested and have not registered."""
        return self._pool.pending_count

    @property
    def start_failures_per_second(self) -> float:
        """Rate of workers that failed before they registered, over the last minute."""
        return self._pool.failures.starts_per_second(self._endpoint.clock.monotonic_ms())

    def describe_pending(self, waiting: Mapping[JobId, float]) -> str:
        """Return a text for people on the workers that jobs wait for; see WorkerPool."""
        return self._pool.describe_pending(self._endpoint.clock.monotonic_ms(), waiting)

    # WorkerListener: any thread

    def worker_started(self, worker_id: ResourceId) -> None:
        self._endpoint.run_async(lambda: self.handle(WorkerStarted(worker_id)))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        def terminated() -> None:
            self._await_no_more(worker_id)
            if not self._on_terminated(worker_id, diagnostics):
                self.handle(WorkerTerminated(worker_id, diagnostics))

        self._endpoint.run_async(terminated)

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        self._endpoint.run_async(lambda: self._on_decommissioned(worker_id, cause))

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        self._endpoint.run_async(
            lambda: self._on_interpreter_failed(interpreter, cause, recoverable)
        )

    def host_failed(self, error: BaseException) -> None:
        self._endpoint.run_async(lambda: self._on_host_failed(error))

    async def _release(self, worker_id: ResourceId, cause: str) -> None:
        """Stop a worker first by RPC, so that its TaskManager can disconnect, and then through the host."""
        await self._stop(worker_id, cause)
        self._host.release_worker(worker_id)

    def _set_timer(self, due_ms: float | None, monotonic_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer = self._endpoint.schedule_run_async(
                max(1.0, due_ms - monotonic_ms), lambda: self.handle(TimePassed())
            )


def worker_names(prefix: str) -> Callable[[int], str]:
    """Return a function that makes names of the form `<prefix>-tm-<n>`."""
    return lambda number: f"{prefix}-tm-{number}"


def worker_profile(settings: Settings) -> ResourceProfile:
    """Return the resources of a usual TaskManager; 0 cores: as many as the host gives a task."""
    return ResourceProfile(
        cpu_cores=settings.get_option(CPU_CORES),
        external_resources=external_resource_amounts(settings),
    )


def _limits(settings: Settings, host: WorkerHost) -> PoolLimits:
    slots_per_worker = settings.get_option(NUMBER_OF_TASK_SLOTS)
    fixed_count = settings.get_option(FIXED_POOL_SIZE) or None
    slots_max = settings.get_option(SLOTS_MAX)
    if (fixed_count or 1) * slots_per_worker > slots_max:
        raise ConfigurationError(
            SLOTS_MAX.key,
            str(slots_max),
            f"{fixed_count or 1} TaskManager(s) of {slots_per_worker} slot(s) have more ({FIXED_POOL_SIZE.key}, "
            f"{NUMBER_OF_TASK_SLOTS.key})",
        )
    return PoolLimits(
        slots_per_worker=slots_per_worker,
        fixed_count=fixed_count,
        max_count=host.max_worker_count,
        registration_timeout_ms=settings.duration_ms(TASK_MANAGER_REGISTRATION_TIMEOUT),
        idle_timeout_ms=settings.duration_ms(TASK_MANAGER_TIMEOUT),
        max_failures_per_minute=settings.get_option(START_WORKER_MAX_FAILURE_RATE),
        retry_interval_ms=settings.duration_ms(START_WORKER_RETRY_INTERVAL),
        slots_max=slots_max,
        redundant_count=settings.get_option(REDUNDANT_TASK_MANAGERS),
        cores_per_worker=max(1, ceil(settings.get_option(CPU_CORES))),
        previous_timeout_ms=settings.duration_ms(HEARTBEAT_TIMEOUT),
        decommission_grace_ms=settings.duration_ms(DECOMMISSION_GRACE),
        environment_timeout_ms=settings.duration_ms(INSTALL_TIMEOUT),
    )
