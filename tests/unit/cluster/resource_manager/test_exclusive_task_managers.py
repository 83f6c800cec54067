"""Exclusive TaskManagers: one job each, from its first slot to its end, and no other job after it."""

import itertools
from dataclasses import replace

from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    AllocationAnswered,
    RequirementsDeclared,
    SlotFreed,
    SlotMatching,
    SlotsReported,
    TaskManagerAdded,
    TaskManagerRemoved,
)
from headrace.cluster.resource_manager.worker_events import (
    AskWhetherReleasable,
    IdleReleaseAgreed,
    ReleaseWorker,
    RequestWorker,
    SlotsMissing,
    TimePassed,
    WorkerRegistered,
    WorkerStarted,
)
from headrace.cluster.resource_manager.worker_pool import (
    PoolLimits,
    WorkerPool,
)
from headrace.core.ids import JobId, ResourceId, SlotId
from headrace.gateways.messages import SlotStatus
from headrace.gateways.resource_manager import ResourceRequirement
from tests.unit.cluster.cluster_samples import (
    ANY_PROFILE,
    JOB,
    OTHER_JOB,
    SLOT_PROFILE,
    TM_1,
    TM_2,
    allocation,
    empty_slots,
)

ON_DEMAND = PoolLimits(
    slots_per_worker=1,
    fixed_count=None,
    max_count=None,
    registration_timeout_ms=300_000,
    idle_timeout_ms=30_000,
    max_failures_per_minute=2,
    retry_interval_ms=3_000,
)
W1, W2 = ResourceId("w-1"), ResourceId("w-2")


def exclusive_matching() -> SlotMatching:
    numbers = itertools.count(1)
    return SlotMatching(lambda: allocation(next(numbers)), is_exclusive=True)


def need(count: int, job: JobId = JOB) -> RequirementsDeclared:
    requirements = (ResourceRequirement(ANY_PROFILE, count),) if count else ()
    return RequirementsDeclared(job, requirements)


def test_a_free_slot_beside_another_job_s_is_not_given_away() -> None:
    matching = exclusive_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(need(1))
    assert matching.handle(need(1, OTHER_JOB)) == []
    assert matching.handle(TaskManagerAdded(TM_2, empty_slots(TM_2, 2))) == [
        AllocateSlot(TM_2, 0, OTHER_JOB, allocation(2), ANY_PROFILE)
    ]


def test_a_job_is_given_more_slots_of_its_task_manager() -> None:
    matching = exclusive_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(need(1))
    assert matching.handle(need(2)) == [AllocateSlot(TM_1, 1, JOB, allocation(2), ANY_PROFILE)]


def test_a_task_manager_is_spent_once_its_job_needs_nothing_more() -> None:
    matching = exclusive_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1)))
    matching.handle(need(1))
    matching.handle(AllocationAnswered(TM_1, allocation(1), is_accepted=True))
    matching.handle(SlotFreed(TM_1, allocation(1)))
    # The job restarts: it still needs a slot, and takes its own again.
    assert matching.spent_task_managers() == []
    matching.handle(need(0))
    assert matching.spent_task_managers() == [], "a slot is given away still"
    matching.handle(SlotFreed(TM_1, allocation(2)))
    assert matching.spent_task_managers() == [TM_1]
    assert matching.handle(need(1, OTHER_JOB)) == []
    matching.handle(TaskManagerRemoved(TM_1))
    assert matching.spent_task_managers() == []


def test_a_report_of_a_job_s_slot_says_to_whom_the_task_manager_belongs() -> None:
    matching = exclusive_matching()
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    taken = SlotStatus(SlotId(TM_1, 0), SLOT_PROFILE, JOB, allocation(9))
    matching.handle(SlotsReported(TM_1, (taken,)))
    assert matching.handle(need(1, OTHER_JOB)) == []


def test_shared_task_managers_are_never_spent() -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(lambda: allocation(next(numbers)))
    matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 2)))
    matching.handle(need(1))
    assert len(matching.handle(need(1, OTHER_JOB))) == 1
    for number in (1, 2):
        matching.handle(AllocationAnswered(TM_1, allocation(number), is_accepted=True))
        matching.handle(SlotFreed(TM_1, allocation(number)))
    assert matching.spent_task_managers() == []


def pool_with_one(fixed_count: int | None = None) -> WorkerPool:
    numbers = itertools.count(1)
    pool = WorkerPool(
        replace(ON_DEMAND, fixed_count=fixed_count), lambda: ResourceId(f"w-{next(numbers)}")
    )
    pool.handle(SlotsMissing(1, ()), 0)
    pool.handle(WorkerStarted(W1), 1)
    pool.handle(WorkerRegistered(W1), 2)
    return pool


def test_a_spent_worker_is_released_at_once_and_asked_once() -> None:
    pool = pool_with_one()
    assert pool.handle(SlotsMissing(0, (W1,), (W1,)), 10) == [AskWhetherReleasable(W1)]
    assert pool.handle(SlotsMissing(0, (W1,), (W1,)), 11) == []
    released = pool.handle(IdleReleaseAgreed(W1), 12)
    assert [type(one) for one in released] == [ReleaseWorker]


def test_a_spent_worker_that_is_read_from_is_asked_again_each_second() -> None:
    pool = pool_with_one()
    pool.handle(SlotsMissing(0, (W1,), (W1,)), 10)
    assert pool.next_check_ms() == 1_010
    assert pool.handle(TimePassed(), 1_010) == [AskWhetherReleasable(W1)]


def test_a_spent_worker_of_a_fixed_pool_is_replaced() -> None:
    pool = pool_with_one(fixed_count=1)
    assert pool.handle(SlotsMissing(1, (W1,), (W1,)), 10) == [AskWhetherReleasable(W1)]
    assert pool.handle(IdleReleaseAgreed(W1), 11)[1:] == [RequestWorker(W2)]


def test_one_that_is_idle_when_it_comes_back_serves_nobody_any_more() -> None:
    matching = exclusive_matching()
    matching.handle(RequirementsDeclared(JOB, (ResourceRequirement(ANY_PROFILE, 1),)))
    assert matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1), is_previous=True)) == []
    assert matching.spent_task_managers() == [TM_1]
