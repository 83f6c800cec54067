"""Decommissioning: a job leaves TaskManagers that the host is about to take away.

It runs on while slots elsewhere are looked for, takes a checkpoint, and then restarts there from it. Whatever does not
come within the grace is gone without. Runs on the JobMaster's main thread.
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
"""Share of the grace in which slots elsewhere are waited for; a checkpoint has the rest."""


class Decommissioning:
    """One per JobMaster. `take_checkpoint()` returns once the job may restart from it, and raises where it may not."""

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
        """The host takes a TaskManager away in `grace_ms`; those of one executor are left together."""
        self._pool.leave(resource_id)
        self.slots_changed()
        if not self._task_managers.is_registered(resource_id):
            return
        is_first = not self._causes
        self._causes[resource_id] = cause
        if is_first:
            self._endpoint.spawn(self._leave_all(grace_ms), "leave decommissioned TaskManagers")

    def slots_changed(self) -> None:
        """The job has got slots, or needs others."""
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
            _LOG.info("no other TaskManager has slots yet for a job whose TaskManagers end")
        left_s = grace_s - (self._endpoint.clock.monotonic_ms() - started_ms) / 1000
        try:
            async with asyncio.timeout(left_s):
                await self._take_checkpoint()
        except (TimeoutError, HeadraceError) as error:
            _LOG.info(
                "the job leaves a TaskManager without a checkpoint: %s", error or "it took too long"
            )
        causes, self._causes = self._causes, {}
        for resource_id, cause in causes.items():
            self._task_managers.leave(resource_id, cause)
