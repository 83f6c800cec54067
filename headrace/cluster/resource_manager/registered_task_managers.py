"""RegisteredTaskManagers: the TaskManagers registered at the ResourceManager, each with its newest registration.

Main thread of the ResourceManager. Source: Flink ResourceManager, its taskExecutors.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from headrace.cluster.resource_manager.slot_matching import SlotMatching
from headrace.core.errors import HeadraceError
from headrace.core.ids import InstanceId, ResourceId
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.lock_watcher import HeldLock
from headrace.gateways.messages import MemoryUsage, RegistrationRefused
from headrace.gateways.resource_manager import (
    TaskExecutorRegistration,
    TaskManagerInfo,
)
from headrace.gateways.task_executor import TaskExecutorGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import RpcError
from headrace.rpc.proxies import with_timeout

_LOG = logging.getLogger(__name__)

_STOP_TIMEOUT_MS: Final = 5_000.0


@dataclass(frozen=True)
class RegisteredTaskManager:
    """One registration; `memory` as reported last, at `last_heartbeat_ms`."""

    registration: TaskExecutorRegistration
    instance_id: InstanceId
    gateway: TaskExecutorGateway
    last_heartbeat_ms: int
    memory: MemoryUsage | None = None

    @property
    def worker_id(self) -> ResourceId:
        """Id of its worker."""
        return self.registration.location.resource_id

    def describe(
        self,
        matching: SlotMatching,
        held_lock: HeldLock | None = None,
        decommissioned: str = "",
    ) -> TaskManagerInfo:
        """Return its details for people; a decommissioned TaskManager has no free slots."""
        registration, memory = self.registration, self.memory
        slots = matching.slots_of(self.worker_id)
        return TaskManagerInfo(
            self.worker_id,
            registration.address,
            registration.location,
            registration.slot_count,
            0 if decommissioned else sum(slot.allocation_id is None for slot in slots),
            registration.pid,
            memory,
            last_heartbeat_ms=self.last_heartbeat_ms,
            data_port=registration.location.data_port,
            host=registration.location.host,
            cpu_cores=registration.hardware.cpu_cores,
            physical_memory_bytes=registration.hardware.physical_memory_bytes,
            free_memory_bytes=0
            if memory is None
            else max(0, memory.limit_bytes - memory.resident_bytes),
            managed_memory_bytes=registration.hardware.managed_memory_bytes,
            slots=slots,
            total=matching.total_of(self.worker_id),
            free=matching.free_of(self.worker_id),
            memory_parts=registration.hardware.memory_parts,
            held_lock=held_lock,
            log_folder=registration.log_folder,
            decommissioned=decommissioned,
        )

    async def ask_to_stop(self, cause: str) -> None:
        """Request its stop; if it does not answer, the host ends it."""
        try:
            await with_timeout(self.gateway, _STOP_TIMEOUT_MS).shut_down(cause)
        except HeadraceError as error:
            _LOG.debug("%s did not confirm its stop: %s", self.registration.address, error)


class RegisteredTaskManagers:
    """TaskManagers by worker id, in the order of registration."""

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint: Final = endpoint
        self._registered: dict[ResourceId, RegisteredTaskManager] = {}
        self._registration_numbers: dict[ResourceId, int] = {}

    def __iter__(self) -> Iterator[RegisteredTaskManager]:
        return iter(tuple(self._registered.values()))

    def find(self, worker_id: ResourceId) -> RegisteredTaskManager | None:
        """Return the TaskManager, or None."""
        return self._registered.get(worker_id)

    def gateway_of(self, worker_id: ResourceId) -> TaskExecutorGateway | None:
        """Return its gateway, or None."""
        task_manager = self._registered.get(worker_id)
        return None if task_manager is None else task_manager.gateway

    def is_registered(self, worker_id: ResourceId, instance_id: InstanceId) -> bool:
        """Return whether messages of this registration still count."""
        task_manager = self._registered.get(worker_id)
        return task_manager is not None and task_manager.instance_id == instance_id

    def refuse_stale(self, worker_id: ResourceId, instance_id: InstanceId) -> None:
        """Raise StaleLeaderError if a registration has ended, or was replaced by another one."""
        if not self.is_registered(worker_id, instance_id):
            raise StaleLeaderError(f"TaskManager {worker_id} is not registered as {instance_id}")

    async def connect(
        self, registration: TaskExecutorRegistration
    ) -> TaskExecutorGateway | RegistrationRefused:
        """Connect back to a TaskManager that registers; refused if that fails, or it has registered again meanwhile."""
        worker_id = registration.location.resource_id
        number = self._registration_numbers.get(worker_id, 0) + 1
        self._registration_numbers[worker_id] = number
        address = registration.address
        try:
            gateway = await self._endpoint.rpc_service.connect(address, TaskExecutorGateway)
        except RpcError as error:
            return RegistrationRefused(
                f"the ResourceManager at {self._endpoint.address} cannot connect back to {address}: {error}"
            )
        if self._registration_numbers[worker_id] != number:
            return RegistrationRefused("a newer registration of this TaskManager is in progress")
        return gateway

    def add(
        self, registration: TaskExecutorRegistration, gateway: TaskExecutorGateway
    ) -> InstanceId:
        """Add a TaskManager, in place of an earlier registration; return the id of this registration."""
        instance_id = InstanceId.generate(self._endpoint.rpc_service.random)
        now_ms = self._endpoint.clock.now_ms()
        task_manager = RegisteredTaskManager(registration, instance_id, gateway, now_ms)
        self._registered[task_manager.worker_id] = task_manager
        return instance_id

    def remove(self, worker_id: ResourceId) -> RegisteredTaskManager | None:
        """Remove a TaskManager; no effect if it is unknown."""
        return self._registered.pop(worker_id, None)

    def heartbeat_received(self, worker_id: ResourceId, memory: MemoryUsage | None) -> None:
        """Record a heartbeat of a registered TaskManager with its memory usage, None if unknown."""
        now_ms = self._endpoint.clock.now_ms()
        self._registered[worker_id] = replace(
            self._registered[worker_id], memory=memory, last_heartbeat_ms=now_ms
        )

    async def stop_all(self, cause: str) -> None:
        """Forget all TaskManagers, and request their stop."""
        stopped = tuple(self)
        self._registered.clear()
        await asyncio.gather(*(each.ask_to_stop(cause) for each in stopped))
