"""SlotManager: allocates matched slots at TaskManagers for jobs, and reports missing slots with the reason.

Main thread of the ResourceManager. Source: Flink FineGrainedSlotManager.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headrace.checkpoint.options import member_of
from headrace.cluster.resource_manager.blocklist import (
    BLOCKED_HOST_PATIENCE_MS,
    BlockedHostPatience,
)
from headrace.cluster.resource_manager.job_masters import JobMasters
from headrace.cluster.resource_manager.options import (
    BLOCKLIST_LOSSES,
    EXCLUSIVE_TASK_MANAGERS,
    FINE_GRAINED,
    LOAD_BALANCE_MODE,
    WIDE_JOB_PATIENCE,
    TaskManagerLoadBalanceMode,
)
from headrace.cluster.resource_manager.registered_task_managers import RegisteredTaskManagers
from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    AllocationAnswered,
    BlockedHostPatienceEnded,
    MissingSlots,
    RequirementsDeclared,
    SlotEvent,
    SlotMatching,
)
from headrace.cluster.resource_manager.worker_events import SlotsMissing
from headrace.cluster.task_executor.external_resources import (
    external_resource_amounts,
    task_manager_resources,
)
from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS
from headrace.core.config import Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import AllocationId, JobId, ResourceId, ResourceManagerId, SlotId
from headrace.core.process.memory_parts import MemoryParts, is_memory_total_set, memory_parts
from headrace.core.resource_profile import UNSPECIFIED, ResourceProfile, workers_needed
from headrace.gateways.task_executor import SlotRequest
from headrace.rpc.endpoint import RpcEndpoint

_PREFERRED_FOR: Final = 10
"""Number of patience times after which other jobs go first again, because a wide job may never get its slots."""
_LOG = logging.getLogger(__name__)

_HELD_BACK: Final = " and takes none before it can have all of them"
_FIRST: Final = ", which it gets before later jobs because it has waited for long"
_ANY_JOB: Final = JobId(bytes(16))
_NO_BOUND: Final = 1 << 60
_ASK_BACK_PAUSE_MS: Final = 1_000.0
"""Interval in ms at which jobs are asked to return slots; a job keeps them until its tasks have ended."""
_REFUSED_SLOT_PAUSE_MS: Final = 100.0
"""Time in ms before a refused slot is matched again, so that a refusing TaskManager is not asked in a loop."""


class SlotManager:
    """Slots of one ResourceManager. `on_missing` is called after every event with the slots that no TaskManager serves.

    Blocked TaskManagers (`is_blocked`) are used only if no other one has slots; while another worker may start
    (`may_another_come`), jobs wait for that for a while. `size_of` returns the profile for which a worker was
    requested, or None. `refusal_of_size(profile, usual)` returns why no worker can have these resources, or nothing:
    jobs that need them are told at once. `capacity()`: largest number of slots of the cluster, None if unknown.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_manager_id: ResourceManagerId,
        task_managers: RegisteredTaskManagers,
        job_masters: JobMasters,
        on_missing: Callable[[SlotsMissing], None],
        is_blocked: Callable[[ResourceId], bool],
        may_another_come: Callable[[ResourceId], bool],
        size_of: Callable[[ResourceId], ResourceProfile | None],
        refusal_of_size: Callable[[ResourceProfile, ResourceProfile], str],
        capacity: Callable[[], int | None],
    ) -> None:
        self._endpoint: Final = endpoint
        self._resource_manager_id: Final = resource_manager_id
        self._task_managers: Final = task_managers
        self._job_masters: Final = job_masters
        self._on_missing: Final = on_missing
        random = endpoint.rpc_service.random
        settings = endpoint.settings
        self._slots_per_worker: Final = settings.get_option(NUMBER_OF_TASK_SLOTS)
        self._may_another_come: Final = may_another_come
        self._blocked_host_patience: Final = BlockedHostPatience()
        self._size_of: Final = size_of
        self._refusal_of_size: Final = refusal_of_size
        self._expected: Final = expected_resources(settings)
        self._refused: set[tuple[JobId, ResourceProfile]] = set()
        self._is_asking_back = False
        self._patience_ms: Final = settings.duration_ms(WIDE_JOB_PATIENCE)
        self._preferred: JobId | None = None
        mode = member_of(TaskManagerLoadBalanceMode, settings, LOAD_BALANCE_MODE)
        self.matching: Final = SlotMatching(
            lambda: AllocationId.generate(random),
            is_exclusive=settings.get_option(EXCLUSIVE_TASK_MANAGERS),
            are_spread_out=mode is TaskManagerLoadBalanceMode.SLOTS,
            is_blocked=is_blocked,
            passes_over=self._passes_over,
            is_sized=lambda worker_id: not (size_of(worker_id) or UNSPECIFIED).is_unspecified,
            are_cut=settings.get_option(FINE_GRAINED),
            capacity=capacity,
            slots_per_worker=self._slots_per_worker,
            is_impatient=self._is_impatient,
        )
        """Current slots and requirements, read-only; `handle` changes them."""
        self.waiting_since_ms: dict[JobId, float] = {}
        """Jobs that lack slots, with the monotonic time in ms since which they do; read-only."""

    def handle(self, event: SlotEvent) -> None:
        """Process an event about slots or requirements."""
        self._endpoint.validate_main_thread()
        for action in self.matching.handle(event):
            self._endpoint.spawn(self._allocate(action), f"slot request {action.allocation_id}")
        if isinstance(event, RequirementsDeclared):
            # A job that declares its needs again is told again.
            self._refused = {one for one in self._refused if one[0] != event.job_id}
        missing = self.matching.missing()
        now_ms = self._endpoint.clock.monotonic_ms()
        self.waiting_since_ms = {
            entry.job_id: self.waiting_since_ms.get(entry.job_id, now_ms) for entry in missing
        }
        self._blocked_host_patience.forget_others(self.waiting_since_ms)
        self._tell_of_preferred()
        missing_count, sized = self._missing(missing)
        # Free slots that no job may take yet will serve some of these, as will TaskManagers that registered and have
        # not reported yet.
        awaited = self.matching.awaited_slots()
        held_back_count = sum(
            entry.missing_count
            for entry in missing
            if entry.is_held_back and not entry.profile.python_executable
        )
        usual_count = 0
        for worker_id, slot_count in awaited.items():
            size = self._size_of(worker_id)
            if size is None:
                usual_count += slot_count
            else:
                sized[size] -= slot_count
        coming_count = min(held_back_count, usual_count)
        for task_manager in self._task_managers:
            if not self.matching.has_reported(task_manager.worker_id):
                size = self._size_of(task_manager.worker_id)
                if size is None:
                    coming_count += task_manager.registration.slot_count
                else:
                    sized[size] -= 1
        idle = tuple(self.matching.idle_task_managers())
        self._on_missing(
            SlotsMissing(
                max(0, missing_count - coming_count),
                idle,
                tuple(self.matching.spent_task_managers()),
                tuple(sized.elements()),
                tuple(worker_id for worker_id in idle if worker_id in awaited),
            )
        )
        self._ask_back()

    def _passes_over(self, job_id: JobId, worker_id: ResourceId, slot_count: int) -> bool:
        """Return whether a job passes over a TaskManager on a blocked host; log the begin and end of the wait."""
        patience = self._blocked_host_patience
        was_waiting = patience.is_waiting(job_id)
        is_waiting = patience.passes_over(
            job_id,
            worker_id,
            slot_count,
            self._endpoint.clock.monotonic_ms(),
            may_another_come=self._may_another_come(worker_id),
        )
        if is_waiting and not was_waiting:
            _LOG.warning(
                "TaskManager %s is on a blocked host (%s): job %s waits for another one for up to %g s, and then uses "
                "its slots",
                worker_id,
                BLOCKLIST_LOSSES.key,
                job_id.hex()[:8],
                BLOCKED_HOST_PATIENCE_MS / 1000,
            )
            # A timer may fire a fraction of a millisecond early.
            self._endpoint.schedule_run_async(
                BLOCKED_HOST_PATIENCE_MS + 1, lambda: self.handle(BlockedHostPatienceEnded())
            )
        elif was_waiting and not is_waiting:
            _LOG.warning(
                "job %s uses slots of a blocked host, because no TaskManager started on another one: give the cluster "
                "more hosts, or find out why TaskManagers are lost there",
                job_id.hex()[:8],
            )
        return is_waiting

    def _is_impatient(self, job_id: JobId) -> bool:
        since_ms = self.waiting_since_ms.get(job_id)
        if since_ms is None or not self._patience_ms:
            return False
        waited_ms = self._endpoint.clock.monotonic_ms() - since_ms
        return self._patience_ms <= waited_ms < _PREFERRED_FOR * self._patience_ms

    def _tell_of_preferred(self) -> None:
        """Log once per job that narrower jobs behind it now wait."""
        preferred = self.matching.admission.first
        if preferred is not None and preferred != self._preferred:
            _LOG.warning(
                "job %s has waited for its slots for more than %g s (%s): it gets the slots that others free, and "
                "later jobs that have none yet wait",
                preferred.hex()[:8],
                self._patience_ms / 1000,
                WIDE_JOB_PATIENCE.key,
            )
        self._preferred = preferred

    def _ask_back(self) -> None:
        """Ask waiting jobs to return slots with which another one could run; busy jobs are asked again later."""
        if not self._is_asking_back and self.matching.admission.to_give_back():
            self._is_asking_back = True
            self._endpoint.spawn(self._ask_in_turn(), "slots asked back")

    async def _ask_in_turn(self) -> None:
        """Ask one job after the other, so that if one cannot return slots, others are chosen as if it had none."""
        giving: set[JobId] = set()
        keeping: set[JobId] = set()
        while chosen := [
            job_id
            for job_id in self.matching.admission.to_give_back(keeping)
            if job_id not in giving
        ]:
            (giving if await self._gives_back(chosen[0]) else keeping).add(chosen[0])
        self._endpoint.schedule_run_async(_ASK_BACK_PAUSE_MS, self._ask_again)

    def _ask_again(self) -> None:
        self._is_asking_back = False
        self._ask_back()

    async def _gives_back(self, job_id: JobId) -> bool:
        job_master = self._job_masters.find(job_id)
        if job_master is None:
            return False
        try:
            return await job_master.gateway.request_slots_back("another job can run with them")
        except HeadraceError as error:
            _LOG.info(
                "job %s did not return slots that another job could use: %s",
                job_id.hex()[:8],
                error,
            )
            return False

    def _missing(self, missing: Sequence[MissingSlots]) -> tuple[int, Counter[ResourceProfile]]:
        """Return the number of missing slots of usual TaskManagers, and the sizes of slots that need one of their own.

        JobMasters are told of slots that can never come.
        """
        usual: list[MissingSlots] = []
        sized: Counter[ResourceProfile] = Counter()
        if not missing:
            return 0, sized
        total = self._usual_resources()
        served = total if self.matching.are_cut else total.times(1 / self._slots_per_worker)
        for entry in missing:
            if served.matches(entry.profile):
                usual.append(entry)
            elif refusal := self._why_never(entry.profile, served):
                self._refuse(entry, served, refusal)
            else:
                sized[entry.profile] += entry.missing_count
        return self._missing_count(usual, total), sized

    def _why_never(self, profile: ResourceProfile, usual: ResourceProfile) -> str:
        """Return why no TaskManager of its own size can serve a profile, or nothing."""
        for task_manager in self._task_managers:
            worker_id = task_manager.worker_id
            total = self.matching.total_of(worker_id)
            if self._size_of(worker_id) == profile and not (
                total.is_unspecified or total.matches(profile)
            ):
                return f"the host gave {total.shown_for(profile)} to one that was made for it"
        return self._refusal_of_size(profile, usual)

    def _usual_resources(self) -> ResourceProfile:
        """Return the resources for slots of a usual TaskManager, as one has reported or else from the settings."""
        for task_manager in self._task_managers:
            worker_id = task_manager.worker_id
            total = self.matching.total_of(worker_id)
            if (
                self._size_of(worker_id) is None
                and self.matching.has_reported(worker_id)
                and not total.python_executable
            ):
                return total
        return self._expected

    def _refuse(self, entry: MissingSlots, served: ResourceProfile, refusal: str) -> None:
        """Tell a JobMaster once that a slot which it needs cannot come."""
        job_master = self._job_masters.find(entry.job_id)
        if job_master is None or (entry.job_id, entry.profile) in self._refused:
            return
        self._refused.add((entry.job_id, entry.profile))
        what = "TaskManager" if self.matching.are_cut else "slot"
        # If only the interpreter is missing, requesting less would not help.
        less = ", or request less" if served.lacks_amounts_of(entry.profile) else ""
        job_master.gateway.notify_impossible_profile(
            entry.profile, f"a {what} has {served.shown_for(entry.profile)}; {refusal}{less}"
        )

    def _missing_count(self, missing: Sequence[MissingSlots], total: ResourceProfile) -> int:
        """Return the number of missing slots, including those of TaskManagers that one job does not fill."""
        by_job: dict[JobId, Counter[ResourceProfile]] = {}
        for entry in missing:
            job_id = entry.job_id if self.matching.is_exclusive else _ANY_JOB
            by_job.setdefault(job_id, Counter())[entry.profile] += entry.missing_count
        return sum(self._slot_count(wanted, total) for wanted in by_job.values())

    def _slot_count(self, wanted: Counter[ResourceProfile], total: ResourceProfile) -> int:
        each = self._slots_per_worker
        if self.matching.are_cut and any(not profile.is_unspecified for profile in wanted):
            return workers_needed(wanted, total, total.times(1 / each)) * each
        count = wanted.total()
        return -(-count // each) * each if self.matching.is_exclusive else count

    async def _allocate(self, action: AllocateSlot) -> None:
        is_accepted = await self._request(action)
        answer = AllocationAnswered(action.resource_id, action.allocation_id, is_accepted)
        if is_accepted:
            self.handle(answer)
        else:
            self._endpoint.schedule_run_async(_REFUSED_SLOT_PAUSE_MS, lambda: self.handle(answer))

    async def _request(self, action: AllocateSlot) -> bool:
        """Request a slot for a job at a TaskManager; return whether it was accepted."""
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
    """Return a text on the missing slots of each job, the existing slots and pending workers.

    Empty if none is missing.
    """
    if not missing:
        return ""
    needs = ", ".join(
        f"job {entry.job_id.hex()[:8]} lacks {entry.missing_count} of {entry.required_count} slot(s)"
        f"{_profile_text(entry.profile)}{_wait_text(entry)}"
        for entry in missing
    )
    has = (
        f"{registered_count} TaskManager(s) with {slot_count} slot(s) are registered, "
        f"{free_slot_count} of them free"
    )
    return f"{needs}; {has}" + (f"; {pending}" if pending else "")


def expected_resources(settings: Settings) -> ResourceProfile:
    """Return the resources for slots that a TaskManager will have by the settings.

    Memory that they omit is unbounded.
    """
    if is_memory_total_set(settings):
        parts = memory_parts(settings, 0)
    else:
        parts = MemoryParts(0, _NO_BOUND, 0, _NO_BOUND, _NO_BOUND, _NO_BOUND, 0)
    return task_manager_resources(settings, parts, external_resource_amounts(settings))


def _wait_text(entry: MissingSlots) -> str:
    if not entry.is_held_back:
        return ""
    if entry.waits_for is None:
        return _HELD_BACK
    if entry.waits_for == entry.job_id:
        return _HELD_BACK + _FIRST
    return f" and takes none before job {entry.waits_for.hex()[:8]}, which has waited for longer"


def _profile_text(profile: ResourceProfile) -> str:
    return "" if profile == UNSPECIFIED else f" of {profile}"
