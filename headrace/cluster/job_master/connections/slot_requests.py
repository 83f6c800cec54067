"""SlotRequests: requests slots for a job, gives up waiting for them, and gives idle ones back.

Runs on the JobMaster's main thread. Source: Flink DeclarativeSlotPoolBridge.
"""

from typing import Final

from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.connections.resource_manager_connection import (
    ResourceManagerConnection,
)
from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.failover.failure_history import Failure
from headrace.cluster.job_master.options import SLOT_IDLE_TIMEOUT, SLOT_REQUEST_TIMEOUT
from headrace.cluster.job_master.scheduler.scheduler import Scheduler
from headrace.core.config import Settings
from headrace.core.errors import NoResourceAvailableError
from headrace.gateways.messages import ErrorInfo
from headrace.graph.job_graph import JobGraph, JobVertex
from headrace.rpc.endpoint import RpcEndpoint

_NAMED_MAX: Final = 3


class SlotRequests:
    """One per JobMaster. `settings` are the job's over the cluster's."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        scheduler: Scheduler,
        task_managers: TaskManagers,
        resource_manager: ResourceManagerConnection,
        settings: Settings,
    ) -> None:
        self._endpoint: Final = endpoint
        self._scheduler: Final = scheduler
        self._task_managers: Final = task_managers
        self._resource_manager: Final = resource_manager
        self._request_timeout_ms: Final = settings.duration_ms(SLOT_REQUEST_TIMEOUT)
        self._idle_timeout_ms: Final = settings.duration_ms(SLOT_IDLE_TIMEOUT)
        # Only the newest request may time out.
        self._request_number = 0

    def request(self) -> None:
        """Declare the pool's requirements, and begin to wait for them, anew."""
        self._resource_manager.declare()
        self._request_number += 1
        number = self._request_number

        def timed_out() -> None:
            if number == self._request_number and self._scheduler.is_waiting_for_slots:
                self._endpoint.spawn(self._did_not_come(), "slot request timeout")

        self._endpoint.schedule_run_async(self._request_timeout_ms, timed_out)

    def cannot_come(self, explanation: str) -> None:
        """The ResourceManager knows that there will not be enough."""
        error = ErrorInfo("NoResourceAvailableError", explanation, "EXTERNAL", recoverable=False)
        self._scheduler.slots_cannot_come(Failure(error))

    def return_idle(self) -> None:
        """Give back what the job has not needed for a while; now, and from now on."""
        now_ms = self._endpoint.clock.monotonic_ms()
        for slot in self._scheduler.pool.take_idle(now_ms, self._idle_timeout_ms):
            self._task_managers.free_slot(slot, "the job does not need it")
        self._endpoint.schedule_run_async(self._idle_timeout_ms, self.return_idle)

    async def _did_not_come(self) -> None:
        explanation = await self._resource_manager.explain()
        missing_count = self._scheduler.pool.missing_count
        error = NoResourceAvailableError(
            missing_count,
            round(self._request_timeout_ms),
            explanation,
            _operators_of(self._scheduler.graph),
        )
        self._scheduler.slots_cannot_come(Failure(error_info_of(error)))


def _operators_of(graph: JobGraph) -> str:
    """The tasks of a job as people know them: by name, with the file and line of a function of the user's in each."""
    named = [f"'{vertex.name}'{_place_of(vertex)}" for vertex in graph.vertices[:_NAMED_MAX]]
    rest = len(graph.vertices) - _NAMED_MAX
    return ", ".join(named) + (f" and {rest} more" if rest > 0 else "")


def _place_of(vertex: JobVertex) -> str:
    places = [operator.location for operator in vertex.operators if operator.location]
    return f" ({places[0]})" if places else ""
