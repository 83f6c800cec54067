"""ResourceManagerDriver and WorkerHost: interface through which the ResourceManager starts and stops TaskManagers.

Source: Flink ResourceManagerDriver, ResourceEventHandler.onPreviousAttemptWorkersRecovered.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from headrace.core.errors import HostError
from headrace.core.ids import ResourceId
from headrace.core.resource_profile import JOB_ENVIRONMENT, ResourceProfile


def remedy_where_alike(profile: ResourceProfile, usual: ResourceProfile) -> str:
    """Return advice for people if all TaskManagers are like `usual`, and none serves `profile`."""
    remedies: list[str] = []
    if profile.python_executable.startswith(JOB_ENVIRONMENT):
        remedies.append("leave python.requirements and an interpreter in an archive out of the job")
    elif profile.python_executable != usual.python_executable:
        remedies.append("start the cluster with python.executable, or leave it out of the job")
    if usual.lacks_amounts_of(profile):
        remedies.append("make each of them larger")
    return "; and ".join(remedies)


class WorkerListener(Protocol):
    """Receives reports of the host. Every method may be called from any thread."""

    def worker_started(self, worker_id: ResourceId) -> None:
        """Report that the host has started the worker's process."""
        ...

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        """Report that the worker has ended, intended or not; called exactly once per requested worker."""
        ...

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        """Report that the host is about to remove the worker; called at most once per worker."""
        ...

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        """Report that an interpreter which profiles name cannot run; its workers end.

        `recoverable`: later ones may run. Empty `interpreter`: that of usual workers, whose environment keeps them from
        starting.
        """
        ...

    def host_failed(self, error: BaseException) -> None:
        """Report that the host itself has failed, which is fatal."""
        ...


class ResourceManagerDriver(Protocol):
    """Starts and stops workers. Called on the ResourceManager's main thread; never blocks it."""

    @property
    def max_worker_count(self) -> int | None:
        """Number of workers that the host can currently run at once, or None if unknown."""
        ...

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why the host can never run a worker with these resources for slots, with advice; empty if it can.

        `usual` are the resources of usual workers, which are too small.
        """
        ...

    def describe_shortage(self) -> str:
        """Return why a worker must wait for its place now, with advice for people."""
        ...

    def initialize(self, listener: WorkerListener) -> None:
        """Set the listener. Called once, before any request."""
        ...

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        """Start a TaskManager whose ResourceId is `worker_id`. It registers by itself, or terminates.

        `profile`: its resources for slots, including memory; without memory: the usual size. It runs with the
        interpreter that the profile names, and reports this with its slots.
        """
        ...

    def release_worker(self, worker_id: ResourceId) -> None:
        """Stop a worker for good, started or not. Idempotent. The graceful stop by RPC came before."""
        ...

    async def close(self) -> None:
        """Stop every worker and wait until all have ended."""
        ...


@dataclass(frozen=True)
class PreviousWorkers:
    """Workers that an earlier ResourceManager has requested and that have not ended.

    `placeless` ones wait for a place on the host. `sized`: those that were requested for their size or their
    interpreter, with both.
    """

    placeless: tuple[ResourceId, ...]
    started: tuple[ResourceId, ...]
    sized: Mapping[ResourceId, ResourceProfile] = field(
        default_factory=dict[ResourceId, ResourceProfile]
    )


class WorkerHost:
    """Driver of a cluster for its whole life, under every ResourceManager. Implements WorkerListener.

    It tracks the living workers, so that the next ResourceManager takes them over. `worker_name` makes the
    name of worker n. `ends_with_first_worker`: a worker that cannot start, before any other one has registered, counts
    as the end of the host. Used on the main thread, except for the reports of the host.
    """

    def __init__(
        self,
        driver: ResourceManagerDriver,
        worker_name: Callable[[int], str],
        *,
        ends_with_first_worker: bool = True,
    ) -> None:
        self._driver: Final = driver
        self._worker_name: Final = worker_name
        self._ends_with_first_worker: Final = ends_with_first_worker
        self._name_count = 0
        # Guards the state that the host's reports change: they come from any thread, and none may be lost between two
        # leaders.
        self._lock: Final = threading.Lock()
        self._listener: WorkerListener | None = None
        self._is_started: dict[ResourceId, bool] = {}
        self._sized: dict[ResourceId, ResourceProfile] = {}
        self._decommissioned: dict[ResourceId, str] = {}
        self._failure: BaseException | None = None
        self._has_registered = False
        self._is_closed = False

    @property
    def max_worker_count(self) -> int | None:
        """Number of workers that the host can currently run at once, or None if unknown."""
        return self._driver.max_worker_count

    def describe_shortage(self) -> str:
        """Return why a worker must wait for its place now, with advice for people."""
        return self._driver.describe_shortage()

    def refusal_of(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why the host can never run a worker of a size; see ResourceManagerDriver."""
        return self._driver.refusal_of(profile, usual)

    def open(self, listener: WorkerListener) -> PreviousWorkers:
        """Report to `listener` from now on, and return the workers whose end it will be told."""
        with self._lock:
            is_first, self._listener = self._listener is None, listener
            started = tuple(each for each, is_there in self._is_started.items() if is_there)
            placeless = tuple(each for each, is_there in self._is_started.items() if not is_there)
            sized = dict(self._sized)
            failure, decommissioned = self._failure, dict(self._decommissioned)
        if is_first:
            self._driver.initialize(self)
        if failure is not None:
            listener.host_failed(failure)
        for worker_id, cause in decommissioned.items():
            listener.worker_decommissioned(worker_id, cause)
        return PreviousWorkers(placeless, started, sized)

    def new_worker_id(self) -> ResourceId:
        """Return a name that no worker of this cluster has had."""
        self._name_count += 1
        return ResourceId(self._worker_name(self._name_count))

    def request_worker(
        self, worker_id: ResourceId, own: ResourceProfile | None, usual: ResourceProfile
    ) -> None:
        """Start a TaskManager of its `own` size and interpreter, or a usual one."""
        with self._lock:
            self._is_started[worker_id] = False
            if own is not None:
                self._sized[worker_id] = own
        self._driver.request_worker(worker_id, own or usual)

    def release_worker(self, worker_id: ResourceId) -> None:
        """Stop a worker for good; no later ResourceManager gets it."""
        with self._lock:
            self._forget(worker_id)
        self._driver.release_worker(worker_id)

    async def close(self) -> None:
        """Stop every worker and wait until all have ended. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            await self._driver.close()

    def mark_started(self, worker_id: ResourceId) -> None:
        """Record that a TaskManager has registered, so that the next ResourceManager expects slots in use."""
        with self._lock:
            self._note_start(worker_id)
            self._has_registered = True

    def _note_start(self, worker_id: ResourceId) -> None:
        if worker_id in self._is_started:
            self._is_started[worker_id] = True

    def _forget(self, worker_id: ResourceId) -> None:
        self._is_started.pop(worker_id, None)
        self._sized.pop(worker_id, None)
        self._decommissioned.pop(worker_id, None)

    def worker_started(self, worker_id: ResourceId) -> None:
        with self._lock:
            self._note_start(worker_id)
            listener = self._listener
        assert listener is not None
        listener.worker_started(worker_id)

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        with self._lock:
            self._forget(worker_id)
            listener = self._listener
        assert listener is not None
        listener.worker_terminated(worker_id, diagnostics)

    def worker_decommissioned(self, worker_id: ResourceId, cause: str) -> None:
        with self._lock:
            if worker_id in self._is_started:
                self._decommissioned[worker_id] = cause
            listener = self._listener
        assert listener is not None
        listener.worker_decommissioned(worker_id, cause)

    def interpreter_failed(self, interpreter: str, cause: str, *, recoverable: bool) -> None:
        with self._lock:
            listener, has_registered = self._listener, self._has_registered
        assert listener is not None
        if interpreter:
            listener.interpreter_failed(interpreter, cause, recoverable=recoverable)
        elif has_registered or not self._ends_with_first_worker:
            # Perhaps only this host fails, or a port that is free again later.
            listener.interpreter_failed(interpreter, cause, recoverable=True)
        else:
            # Not kept for the next ResourceManager, which is told again if it still holds.
            listener.host_failed(HostError(cause))

    def host_failed(self, error: BaseException) -> None:
        with self._lock:
            self._failure = error
            listener = self._listener
        assert listener is not None
        listener.host_failed(error)
