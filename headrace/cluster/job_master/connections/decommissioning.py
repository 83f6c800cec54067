"""Decommissioning: moves a job away from TaskManagers that the host is about to remove.

The job keeps running while it waits for slots elsewhere, then takes a checkpoint and restarts there from it. At the end
of the grace period it leaves the TaskManagers even without new slots or a new checkpoint. Runs on the JobMaster's main
thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.cluster.job_master.connections.task_managers import TaskManagers
from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.core.errors import HeadraceError
from headrace.core.ids import ResourceId
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)

_SLOTS_SHARE: Final = 0.5
"""Share of the grace period in which the job waits for slots elsewhere; the rest is for a checkpoint."""


class Decommissioning:
    """Decommissioning for one JobMaster.

    `take_checkpoint()` returns once the job may restart from the checkpoint, and raises if it may not.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        pool: SlotPool,
        task_managers: TaskManagers,
        take_checkpoint: Callable[[], Awaitable[object]],
    ) -> None:
        self._endpoint: Final = endpoint
        self._pool: Final = pool
        self._task_managers: Final = task_managers
        self._take_checkpoint: Final = take_checkpoint
        self._causes: dict[ResourceId, str] = {}
        self._has_slots: Final = asyncio.Event()

    def announced(self, resource_id: ResourceId, cause: str, grace_ms: int) -> None:
        """Leave a TaskManager that the host removes in `grace_ms`; TaskManagers of one executor are left together."""
        self._pool.leave(resource_id)
        self.slots_changed()
        if not self._task_managers.is_registered(resource_id):
            return
        is_first = not self._causes
        self._causes[resource_id] = cause
        if is_first:
            self._endpoint.spawn(self._leave_all(grace_ms), "leave decommissioned TaskManagers")

    def slots_changed(self) -> None:
        """Record that the job has got slots, or needs others."""
        if self._pool.missing_count:
            self._has_slots.clear()
        else:
            self._has_slots.set()

    async def _leave_all(self, grace_ms: int) -> None:
        grace_s = grace_ms / 1000
        started_ms = self._endpoint.clock.monotonic_ms()
        try:
            async with asyncio.timeout(grace_s * _SLOTS_SHARE):
                await self._has_slots.wait()
        except TimeoutError:
            _LOG.info(
                "no other TaskManager has free slots yet for a job whose TaskManagers are decommissioned"
            )
        left_s = grace_s - (self._endpoint.clock.monotonic_ms() - started_ms) / 1000
        try:
            async with asyncio.timeout(left_s):
                await self._take_checkpoint()
        except (TimeoutError, HeadraceError) as error:
            _LOG.info(
                "the job leaves a TaskManager without a checkpoint: %s",
                error or "the checkpoint took too long",
            )
        causes, self._causes = self._causes, {}
        for resource_id, cause in causes.items():
            self._task_managers.leave(resource_id, cause)
