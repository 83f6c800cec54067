"""SlotRequests: declares the slots that a job needs, times out waiting for them, and returns idle ones.

Runs on the JobMaster's main thread. Source: Flink DeclarativeSlotPoolBridge.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headrace.cluster.blob.virtual_environment import INSTALL_TIMEOUT
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.options import SLOT_IDLE_TIMEOUT, SLOT_REQUEST_TIMEOUT
from headrace.cluster.job_master.connections.resource_manager_connection import (
    ResourceManagerConnection,
)
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.core.config import Settings
from headrace.core.errors import NoResourceAvailableError
from headrace.core.resource_profile import JOB_ENVIRONMENT, ResourceProfile
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.rpc.endpoint import RpcEndpoint

_NAMED_MAX: Final = 3


class SlotRequests:
    """Slot requests of one JobMaster. `settings` are the job's over the cluster's.

    `is_waiting` returns whether the job still waits for slots; `on_unavailable(failure)` is called if they will not
    come.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        graph: JobGraph,
        pool: SlotPool,
        task_managers: TaskManagers,
        resource_manager: ResourceManagerConnection,
        settings: Settings,
        *,
        is_waiting: Callable[[], bool],
        on_unavailable: Callable[[Failure], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._graph: Final = graph
        self._pool: Final = pool
        self._is_waiting: Final = is_waiting
        self._on_unavailable: Final = on_unavailable
        self._task_managers: Final = task_managers
        self._resource_manager: Final = resource_manager
        has_environment = graph.python_executable.startswith(JOB_ENVIRONMENT)
        self._environment_ms: Final = (
            settings.duration_ms(INSTALL_TIMEOUT) if has_environment else 0.0
        )
        request_ms = settings.duration_ms(SLOT_REQUEST_TIMEOUT)
        self._request_timeout_ms: Final = request_ms + self._environment_ms
        self._idle_timeout_ms: Final = settings.duration_ms(SLOT_IDLE_TIMEOUT)
        # Only the newest request may time out.
        self._request_number = 0

    def declare(self, profiles: Sequence[ResourceProfile]) -> None:
        """Declare to the ResourceManager that the job needs one slot for each of `profiles`, and no others."""
        self._pool.require(profiles)
        self._resource_manager.declare()

    def request(self, profiles: Sequence[ResourceProfile]) -> None:
        """Declare `profiles`, and wait for their slots for `slot.request.timeout` from now on.

        If hosts must first make the job's Python environment, the time for that is added.
        """
        self.declare(profiles)
        self._request_number += 1
        number = self._request_number

        def timed_out() -> None:
            if number == self._request_number and self._is_waiting():
                self._endpoint.spawn(self._did_not_come(), "slot request timeout")

        self._endpoint.schedule_run_async(self._request_timeout_ms, timed_out)

    def cannot_be(self, profile: ResourceProfile, explanation: str) -> None:
        """Fail the slot request, because no TaskManager can offer a slot with the resources of `profile`."""
        groups = [n for n in self._graph.slot_resources if self._graph.profile_of(n) == profile]
        names = ", ".join(f"'{name}'" for name in groups)
        who = f"slot sharing group {names}" if groups else "the job"
        self.cannot_come(
            f"{who} requests {profile} for each slot, which no TaskManager has: {explanation}"
        )

    def cannot_come(self, explanation: str, *, recoverable: bool = False) -> None:
        """Fail the slot request, because there will be too few slots, or too few this time if `recoverable`."""
        error = ErrorInfo("NoResourceAvailableError", explanation, "EXTERNAL", recoverable)
        self._on_unavailable(Failure(error))

    def return_idle(self) -> None:
        """Return slots that the job has not used for a while, now and periodically."""
        now_ms = self._endpoint.clock.monotonic_ms()
        for slot in self._pool.take_idle(now_ms, self._idle_timeout_ms):
            self._task_managers.free_slot(slot, "the job does not need it")
        self._endpoint.schedule_run_async(self._idle_timeout_ms, self.return_idle)

    def give_back(self, reason: str) -> None:
        """Return every slot while none is in use; the job keeps waiting for all that it needs."""
        for slot in self._pool.take_all():
            self._task_managers.free_slot(slot, reason)

    async def _did_not_come(self) -> None:
        explanation = await self._resource_manager.explain()
        if self._environment_ms:
            explanation += (
                f"; {self._environment_ms:g} ms of that are for hosts to make the job's Python "
                f"environment ({INSTALL_TIMEOUT.key})"
            )
        error = NoResourceAvailableError(
            self._pool.missing_count,
            round(self._request_timeout_ms),
            explanation,
            _operators_of(self._graph),
        )
        self._on_unavailable(Failure(error_info_of(error)))


def _operators_of(graph: JobGraph) -> str:
    """Return the names of a job's first tasks, each with file and line of one of its user functions."""
    named = [f"'{vertex.name}'{_place_of(vertex)}" for vertex in graph.vertices[:_NAMED_MAX]]
    rest = len(graph.vertices) - _NAMED_MAX
    return ", ".join(named) + (f" and {rest} more" if rest > 0 else "")


def _place_of(vertex: JobVertex) -> str:
    places = [operator.location for operator in vertex.operators if operator.location]
    return f" ({places[0]})" if places else ""
