"""Workers: carries out the WorkerPool's decisions at the host, and brings the host's reports to the main thread."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from headrace.cluster.resource_manager.driver import ResourceManagerDriver
from headrace.cluster.resource_manager.options import (
    FIXED_POOL_SIZE,
    START_WORKER_MAX_FAILURE_RATE,
    START_WORKER_RETRY_INTERVAL,
    TASK_MANAGER_REGISTRATION_TIMEOUT,
    TASK_MANAGER_TIMEOUT,
)
from headrace.cluster.resource_manager.worker_pool import (
    AskWhetherReleasable,
    PoolEvent,
    PoolLimits,
    ReleaseWorker,
    RequestWorker,
    TellShortage,
    TimePassed,
    WorkerPool,
    WorkerStarted,
    WorkerTerminated,
)
from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.gateways.messages import ResourceProfile
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)


class Workers:
    """The pool, the driver and the clock between them. Runs on the ResourceManager's main thread.

    Implements WorkerListener, from any thread. `stop(worker_id, cause)` stops a TaskManager by RPC where it is
    registered; `ask_whether_releasable(worker_id)` asks it whether somebody still reads from it, and answers yes with
    an IdleReleaseAgreed. `on_terminated(worker_id, diagnostics)` hears that the host says that a worker is gone, and
    returns whether it was registered and has been dealt with. `on_host_failed(error)`: the host itself is gone.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        driver: ResourceManagerDriver,
        worker_name: Callable[[int], str],
        *,
        stop: Callable[[ResourceId, str], Awaitable[None]],
        ask_whether_releasable: Callable[[ResourceId], Coroutine[Any, Any, None]],
        on_terminated: Callable[[ResourceId, str], bool],
        on_host_failed: Callable[[BaseException], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._driver: Final = driver
        self._stop: Final = stop
        self._ask_whether_releasable: Final = ask_whether_releasable
        self._on_terminated: Final = on_terminated
        self._on_host_failed: Final = on_host_failed
        self._worker_name: Final = worker_name
        self._worker_profile: Final = worker_profile(endpoint.settings)
        self._name_count = 0
        self._pool: Final = WorkerPool(_limits(endpoint.settings, driver), self._new_worker_id)
        self._timer: Cancellable | None = None
        self._is_closing = False

    def open(self) -> None:
        """Open the host; a fixed pool is asked for at once."""
        self._driver.initialize(self)
        self.handle(TimePassed())

    def stop_asking(self) -> None:
        """The cluster ends: ask for no more workers and let none register."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Have the host end every worker."""
        self.stop_asking()
        await self._driver.close()

    def handle(self, event: PoolEvent) -> None:
        """Let the pool decide, and do it."""
        if self._is_closing:
            return
        # The host may grow and shrink: its limit is asked for again each time.
        self._pool.limits = replace(self._pool.limits, max_count=self._driver.max_worker_count)
        monotonic_ms = self._endpoint.clock.monotonic_ms()
        for action in self._pool.handle(event, monotonic_ms):
            match action:
                case RequestWorker(worker_id):
                    self._driver.request_worker(worker_id, self._worker_profile)
                case ReleaseWorker(worker_id, cause):
                    self._endpoint.spawn(self._release(worker_id, cause), f"release {worker_id}")
                case AskWhetherReleasable(worker_id):
                    question = self._ask_whether_releasable(worker_id)
                    self._endpoint.spawn(question, f"idle {worker_id}")
                case TellShortage(worker_count):
                    self._tell_shortage(worker_count)
        self._set_timer(self._pool.next_check_ms(), monotonic_ms)

    def _tell_shortage(self, worker_count: int) -> None:
        shortage = self._driver.describe_shortage()
        failure = self._pool.last_failure.split("\n", 1)[0]
        last = f" (the last one that ended: {failure})" if failure else ""
        _LOG.warning("%d TaskManager(s) are waited for: %s%s", worker_count, shortage, last)

    def refusal_of(self, worker_id: ResourceId) -> str | None:
        """Return the reason why a TaskManager of this name may not register, or None if it may."""
        if self._is_closing:
            return "the cluster is shutting down"
        return self._pool.refusal_of(worker_id)

    @property
    def pending_count(self) -> int:
        """Workers that were asked for and have not registered."""
        return self._pool.pending_count

    def describe_pending(self) -> str:
        """Say what the wait for workers is about, for people."""
        return self._pool.describe_pending(self._endpoint.clock.monotonic_ms())

    # WorkerListener: any thread

    def worker_started(self, worker_id: ResourceId) -> None:
        self._endpoint.run_async(lambda: self.handle(WorkerStarted(worker_id)))

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        def terminated() -> None:
            if not self._on_terminated(worker_id, diagnostics):
                self.handle(WorkerTerminated(worker_id, diagnostics))

        self._endpoint.run_async(terminated)

    def host_failed(self, error: BaseException) -> None:
        self._endpoint.run_async(lambda: self._on_host_failed(error))

    async def _release(self, worker_id: ResourceId, cause: str) -> None:
        """Stop a worker by RPC first, so that its TaskManager can say goodbye, and then by the host."""
        await self._stop(worker_id, cause)
        self._driver.release_worker(worker_id)

    def _set_timer(self, due_ms: float | None, monotonic_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            self._timer = self._endpoint.schedule_run_async(
                max(1.0, due_ms - monotonic_ms), lambda: self.handle(TimePassed())
            )

    def _new_worker_id(self) -> ResourceId:
        self._name_count += 1
        return ResourceId(self._worker_name(self._name_count))


def worker_names(prefix: str) -> Callable[[int], str]:
    """`<prefix>-tm-<n>`."""
    return lambda number: f"{prefix}-tm-{number}"


def worker_profile(settings: Settings) -> ResourceProfile:
    """Return the resource profile with which every TaskManager is requested."""
    return ResourceProfile(cpu_cores=settings.get_option(CPU_CORES))


def _limits(settings: Settings, driver: ResourceManagerDriver) -> PoolLimits:
    return PoolLimits(
        slots_per_worker=settings.get_option(NUMBER_OF_TASK_SLOTS),
        fixed_count=settings.get_option(FIXED_POOL_SIZE) or None,
        max_count=driver.max_worker_count,
        registration_timeout_ms=settings.duration_ms(TASK_MANAGER_REGISTRATION_TIMEOUT),
        idle_timeout_ms=settings.duration_ms(TASK_MANAGER_TIMEOUT),
        max_failures_per_minute=settings.get_option(START_WORKER_MAX_FAILURE_RATE),
        retry_interval_ms=settings.duration_ms(START_WORKER_RETRY_INTERVAL),
    )
