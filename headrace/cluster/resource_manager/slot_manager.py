"""SlotManager: has TaskManagers give jobs the slots that are matched with them, and says how many are missing and why.

Main thread of the ResourceManager. Source: Flink FineGrainedSlotManager.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headrace.cluster.resource_manager.job_masters import JobMasters
from headrace.cluster.resource_manager.options import EXCLUSIVE_TASK_MANAGERS
from headrace.cluster.resource_manager.registered_task_managers import RegisteredTaskManagers
from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    AllocationAnswered,
    MissingSlots,
    SlotEvent,
    SlotMatching,
)
from headrace.cluster.resource_manager.worker_pool import SlotsMissing
from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS
from headrace.core.errors import HeadraceError
from headrace.core.ids import AllocationId, JobId, ResourceManagerId, SlotId
from headrace.gateways.messages import ResourceProfile
from headrace.gateways.task_executor import SlotRequest
from headrace.rpc.endpoint import RpcEndpoint

_LOG = logging.getLogger(__name__)

_REFUSED_SLOT_PAUSE_MS: Final = 100.0
"""A refused slot is matched again only after this, so that a refusing TaskManager is not asked in a loop."""


class SlotManager:
    """One per ResourceManager. `on_missing` hears after every event how many slots no TaskManager will serve."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_manager_id: ResourceManagerId,
        task_managers: RegisteredTaskManagers,
        job_masters: JobMasters,
        on_missing: Callable[[SlotsMissing], None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_manager_id: Final = resource_manager_id
        self._task_managers: Final = task_managers
        self._job_masters: Final = job_masters
        self._on_missing: Final = on_missing
        random = endpoint.rpc_service.random
        settings = endpoint.settings
        self._slots_per_worker: Final = settings.get_option(NUMBER_OF_TASK_SLOTS)
        self.matching: Final = SlotMatching(
            lambda: AllocationId.generate(random),
            is_exclusive=settings.get_option(EXCLUSIVE_TASK_MANAGERS),
        )
        """Slots and needs as they stand, to be read only; `handle` changes them."""

    def handle(self, event: SlotEvent) -> None:
        """Something about slots or needs has changed."""
        self._endpoint.validate_main_thread()
        for action in self.matching.handle(event):
            self._endpoint.spawn(self._allocate(action), f"slot request {action.allocation_id}")
        missing_count = self._missing_count()
        # TaskManagers that registered and have not reported yet will serve some of that.
        coming_count = sum(
            task_manager.registration.slot_count
            for task_manager in self._task_managers
            if self.matching.slot_counts(task_manager.worker_id)[0] == 0
        )
        idle = tuple(self.matching.idle_task_managers())
        spent = tuple(self.matching.spent_task_managers())
        self._on_missing(SlotsMissing(max(0, missing_count - coming_count), idle, spent))

    def _missing_count(self) -> int:
        """Return the number of missing slots; those of TaskManagers that one job does not fill are missing too."""
        missing: Counter[JobId] = Counter()
        for entry in self.matching.missing():
            missing[entry.job_id] += entry.missing_count
        if not self.matching.is_exclusive:
            return missing.total()
        each = self._slots_per_worker
        return sum(-(-count // each) * each for count in missing.values())

    async def _allocate(self, action: AllocateSlot) -> None:
        is_accepted = await self._request(action)
        answer = AllocationAnswered(action.resource_id, action.allocation_id, is_accepted)
        if is_accepted:
            self.handle(answer)
        else:
            self._endpoint.schedule_run_async(_REFUSED_SLOT_PAUSE_MS, lambda: self.handle(answer))

    async def _request(self, action: AllocateSlot) -> bool:
        """Ask a TaskManager to keep a slot for a job; return whether it does."""
        gateway = self._task_managers.gateway_of(action.resource_id)
        job_master = self._job_masters.find(action.job_id)
        if gateway is None or job_master is None:
            return False
        request = SlotRequest(
            SlotId(action.resource_id, action.slot_index),
            action.job_id,
            action.allocation_id,
            action.profile,
            job_master.address,
            job_master.job_master_id,
            self._resource_manager_id,
        )
        try:
            await gateway.request_slot(request)
        except HeadraceError as error:
            _LOG.info("slot request to %s failed: %s", action.resource_id, error)
            return False
        return True


def explain_missing(
    missing: Sequence[MissingSlots],
    registered_count: int,
    slot_count: int,
    free_slot_count: int,
    pending: str,
) -> str:
    """Say which job lacks how many slots, what there is, and what is being waited for; empty where nothing lacks."""
    if not missing:
        return ""
    needs = ", ".join(
        f"job {entry.job_id.hex()[:8]} lacks {entry.missing_count} of {entry.required_count} slot(s)"
        f"{_profile_text(entry.profile)}"
        for entry in missing
    )
    has = (
        f"{registered_count} TaskManager(s) with {slot_count} slot(s) are registered, "
        f"{free_slot_count} of them free"
    )
    return f"{needs}; {has}" + (f"; {pending}" if pending else "")


def _profile_text(profile: ResourceProfile) -> str:
    parts: list[str] = []
    if profile.cpu_cores:
        parts.append(f"{profile.cpu_cores:g} core(s)")
    if profile.memory_bytes:
        parts.append(f"{profile.memory_bytes / (1 << 20):.0f} MiB")
    return f" of {' and '.join(parts)}" if parts else ""
