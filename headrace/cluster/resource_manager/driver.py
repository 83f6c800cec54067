"""Interface to a host with which the ResourceManager starts and stops TaskManagers one at a time.

Source: Flink ResourceManagerDriver, ResourceEventHandler.
"""

from typing import Protocol

from headrace.core.ids import ResourceId
from headrace.gateways.messages import ResourceProfile


class WorkerListener(Protocol):
    """Reports of the host; every method may be called from any thread."""

    def worker_started(self, worker_id: ResourceId) -> None:
        """The host has given the worker a place and its process says hello."""
        ...

    def worker_terminated(self, worker_id: ResourceId, diagnostics: str) -> None:
        """The worker is gone, wanted or not; called exactly once per requested worker."""
        ...

    def host_failed(self, error: BaseException) -> None:
        """The host itself is gone: fatal."""
        ...


class ResourceManagerDriver(Protocol):
    """Starts and stops workers. Called on the ResourceManager's main thread; never blocks it."""

    @property
    def max_worker_count(self) -> int | None:
        """Return the number of workers the host can run at once as it is now, or None if it cannot tell."""
        ...

    def describe_shortage(self) -> str:
        """Say why a worker has to wait for its place now, and what people can do about it."""
        ...

    def initialize(self, listener: WorkerListener) -> None:
        """Called once, before any request."""
        ...

    def request_worker(self, worker_id: ResourceId, profile: ResourceProfile) -> None:
        """Ask for a TaskManager whose ResourceId is `worker_id`. It registers by itself, or terminates."""
        ...

    def release_worker(self, worker_id: ResourceId) -> None:
        """Stop a worker for good, started or not; idempotent. The graceful stop by RPC came before."""
        ...

    async def close(self) -> None:
        """Stop every worker and wait until none is left."""
        ...
