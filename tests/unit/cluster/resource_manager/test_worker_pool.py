"""WorkerPool: how many workers are asked for, given up and counted as failures."""

import itertools
from dataclasses import replace

from headrace.cluster.resource_manager.worker_events import (
    AskWhetherReleasable,
    IdleReleaseAgreed,
    RecoveryEnded,
    ReleaseWorker,
    RequestWorker,
    SlotsMissing,
    TellShortage,
    TimePassed,
    WorkerDecommissioned,
    WorkerLost,
    WorkerRegistered,
    WorkersRecovered,
    WorkerStarted,
    WorkerTerminated,
)
from headrace.cluster.resource_manager.worker_pool import (
    PoolLimits,
    WorkerPool,
)
from headrace.core.ids import JobId, ResourceId
from headrace.core.resource_profile import ResourceProfile

ON_DEMAND = PoolLimits(
    slots_per_worker=1,
    fixed_count=None,
    max_count=None,
    registration_timeout_ms=300_000,
    idle_timeout_ms=30_000,
    max_failures_per_minute=2,
    retry_interval_ms=3_000,
)
W1, W2, W3 = (ResourceId(f"w-{number}") for number in (1, 2, 3))
JOB, OTHER_JOB = JobId(b"j" * 16), JobId(b"o" * 16)


def new_pool(limits: PoolLimits = ON_DEMAND) -> WorkerPool:
    numbers = itertools.count(1)
    return WorkerPool(limits, lambda: ResourceId(f"w-{next(numbers)}"))


def missing(slot_count: int, *idle: ResourceId) -> SlotsMissing:
    return SlotsMissing(slot_count, idle)


def test_missing_slots_become_workers_once() -> None:
    pool = new_pool()
    assert pool.handle(missing(2), 0) == [RequestWorker(W1), RequestWorker(W2)]
    assert pool.handle(missing(2), 1) == []


def test_slots_of_one_worker_serve_several_needs() -> None:
    pool = new_pool(replace(ON_DEMAND, slots_per_worker=4))
    assert pool.handle(missing(5), 0) == [RequestWorker(W1), RequestWorker(W2)]


def test_no_more_workers_are_asked_for_than_the_host_can_run() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=1))
    assert pool.handle(missing(3), 0) == [RequestWorker(W1)]
    assert "at most 1 worker" in pool.describe_pending(1000, {JOB: 0})


def test_another_worker_may_come_while_one_is_on_its_way_or_there_is_room() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=2))
    pool.handle(missing(2), 0)
    pool.handle(WorkerRegistered(W1), 1)
    assert pool.may_another_come(W1, 1), "the second one is on its way"
    pool.handle(WorkerRegistered(W2), 2)
    assert not pool.may_another_come(W1, 2), "the host is full"
    pool.handle(WorkerLost(W2, "killed"), 3)
    assert pool.may_another_come(W1, 3), "the host has room"


def test_no_other_worker_comes_in_a_fixed_pool_or_one_of_another_size() -> None:
    fixed = new_pool(replace(ON_DEMAND, fixed_count=2))
    fixed.handle(missing(1), 0)
    assert not fixed.may_another_come(W1, 0)
    large = ResourceProfile(2.0)
    pool = new_pool(replace(ON_DEMAND, max_count=3))
    pool.handle(SlotsMissing(0, (), (), (large,)), 0)
    pool.handle(WorkerRegistered(W1), 1)
    pool.handle(SlotsMissing(1, ()), 2)
    assert not pool.may_another_come(W1, 2), "a usual one is on its way, and there is no room"


def test_no_more_workers_are_asked_for_than_slots_are_allowed() -> None:
    pool = new_pool(replace(ON_DEMAND, slots_per_worker=2, max_count=9, slots_max=5))
    assert pool.handle(missing(20), 0) == [RequestWorker(W1), RequestWorker(W2)]
    explained = pool.describe_pending(1000, {JOB: 0})
    assert "slotmanager.number-of-slots.max allows at most 5 slot(s)" in explained


def test_a_redundant_worker_comes_once_another_is_used_and_goes_with_it() -> None:
    pool = new_pool(replace(ON_DEMAND, redundant_count=1))
    assert pool.handle(missing(0), 0) == [], "none is used"
    assert pool.handle(missing(1), 0) == [RequestWorker(W1)]
    pool.handle(WorkerStarted(W1), 0)
    assert pool.handle(WorkerRegistered(W1), 0) == []
    assert pool.handle(missing(0), 0) == [RequestWorker(W2)]
    pool.handle(WorkerStarted(W2), 0)
    assert pool.handle(WorkerRegistered(W2), 0) == []
    assert pool.handle(missing(0, W2), 1_000) == []
    assert pool.next_check_ms() is None, "the idle one stays"
    assert pool.handle(TimePassed(), 100_000) == []
    pool.handle(missing(0, W1, W2), 100_000)
    assert pool.handle(TimePassed(), 130_000) == [
        AskWhetherReleasable(W1),
        AskWhetherReleasable(W2),
    ]


def test_a_redundant_worker_that_is_used_gets_a_successor() -> None:
    pool = new_pool(replace(ON_DEMAND, redundant_count=1))
    pool.handle(missing(1), 0)
    pool.handle(WorkerStarted(W1), 0)
    pool.handle(WorkerRegistered(W1), 0)
    pool.handle(missing(0), 0)
    pool.handle(WorkerStarted(W2), 0)
    pool.handle(WorkerRegistered(W2), 0)
    assert pool.handle(missing(0, W2), 0) == []
    assert pool.handle(missing(0), 0) == [RequestWorker(W3)]


def test_a_redundant_worker_makes_room_for_those_of_another_interpreter() -> None:
    other = ResourceProfile(python_executable="/opt/other/python")
    pool = new_pool(replace(ON_DEMAND, redundant_count=1, max_count=3))
    for worker_id, number in ((W1, 1), (W2, 0)):
        assert pool.handle(missing(number), 0) == [RequestWorker(worker_id)]
        pool.handle(WorkerStarted(worker_id), 0)
        pool.handle(WorkerRegistered(worker_id), 0)
    wanted = SlotsMissing(0, (W2,), (), (other, other))
    assert pool.handle(wanted, 0) == [RequestWorker(W3, other)]
    pool.handle(WorkerStarted(W3), 0)
    assert "at most 3 worker(s)" in pool.describe_pending(1000, {JOB: 0})
    assert pool.handle(TimePassed(), 30_000) == [
        AskWhetherReleasable(W2),
        TellShortage(1),
    ]
    assert pool.handle(IdleReleaseAgreed(W2), 30_001) == [
        ReleaseWorker(W2, "idle: no job has a slot here"),
        RequestWorker(ResourceId("w-4"), other),
    ]
    pool.handle(SlotsMissing(0, (), (), (other, other)), 30_002)
    assert pool.pending_count == 2, "nobody takes a place for redundancy"


def test_a_host_without_room_is_looked_at_again_until_it_has_some() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=0))
    assert pool.handle(missing(2), 0) == []
    assert pool.next_check_ms() == 1_000
    assert pool.handle(TimePassed(), 1_000) == []
    assert pool.next_check_ms() == 2_000
    pool.limits = replace(ON_DEMAND, max_count=1)
    assert pool.handle(TimePassed(), 2_000) == [RequestWorker(W1)]
    pool.handle(WorkerStarted(W1), 2_100)
    assert pool.next_check_ms() == 3_100, "one more is needed"
    pool.limits = replace(ON_DEMAND, max_count=2)
    assert pool.handle(TimePassed(), 3_100) == [RequestWorker(W2)]
    pool.handle(WorkerStarted(W2), 3_200)
    pool.handle(WorkerRegistered(W1), 4_000)
    pool.handle(WorkerRegistered(W2), 4_000)
    assert pool.next_check_ms() is None, "nothing is waited for"


def test_a_shortage_is_told_once_and_again_only_after_its_end() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=1))
    assert pool.handle(missing(2), 0) == [RequestWorker(W1)]
    assert pool.handle(TimePassed(), 9_999) == []
    assert pool.handle(TimePassed(), 10_000) == [TellShortage(2)]
    assert pool.handle(TimePassed(), 60_000) == []
    pool.limits = replace(ON_DEMAND, max_count=2)
    assert pool.handle(WorkerStarted(W1), 60_001) == [RequestWorker(W2)]
    assert pool.handle(WorkerStarted(W2), 60_002) == []
    pool.handle(WorkerRegistered(W1), 60_003)
    pool.handle(WorkerRegistered(W2), 60_003)
    pool.limits = replace(ON_DEMAND, max_count=0)
    pool.handle(WorkerLost(W1, "killed"), 60_004)
    assert pool.handle(missing(1), 60_004) == []
    assert pool.handle(TimePassed(), 70_004) == [TellShortage(1)]


def test_a_worker_that_finds_no_place_is_a_shortage_too() -> None:
    pool = new_pool()
    assert pool.handle(missing(1), 0) == [RequestWorker(W1)]
    assert pool.next_check_ms() == 10_000
    assert pool.handle(TimePassed(), 10_000) == [TellShortage(1)]
    assert pool.next_check_ms() is None


def test_workers_without_a_place_are_given_up_first_when_the_need_shrinks() -> None:
    pool = new_pool()
    pool.handle(missing(2), 0)
    pool.handle(WorkerStarted(W1), 1)
    assert pool.handle(missing(1), 2) == [ReleaseWorker(W2, "no longer needed")]
    assert (
        pool.refusal_of(W2) == "TaskManager w-2 has ended or was released before (no longer needed)"
    )


def test_a_worker_that_dies_before_it_registers_is_replaced() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    assert pool.handle(WorkerTerminated(W1, "no memory"), 1) == [RequestWorker(W2)]
    assert pool.refusal_of(W1) is not None
    assert "w-1: no memory" in pool.describe_pending(1, {JOB: 0})


def test_too_many_failures_hold_new_requests_back_for_a_while() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    for time_ms, worker in ((1, W1), (2, W2), (3, W3)):
        last = pool.handle(WorkerTerminated(worker, "gone"), time_ms)
    assert last == []
    assert pool.next_check_ms() == 3_003
    assert pool.handle(TimePassed(), 3_002) == []
    assert pool.handle(TimePassed(), 3_003) == [RequestWorker(ResourceId("w-4"))]


def test_the_rate_of_failures_is_that_of_the_last_minute() -> None:
    pool = new_pool()
    pool.handle(missing(2), 0)
    assert pool.failures.starts_per_second(0) == 0
    pool.handle(WorkerTerminated(W1, "gone"), 1_000)
    pool.handle(WorkerTerminated(W2, "gone"), 2_000)
    assert pool.failures.starts_per_second(2_000) == 2 / 60
    assert pool.failures.starts_per_second(61_000) == 1 / 60
    assert pool.failures.starts_per_second(62_000) == 0


def test_one_that_had_registered_is_no_failure_to_start() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 1)
    pool.handle(WorkerTerminated(W1, "gone"), 2)
    assert pool.failures.starts_per_second(2) == 0


def test_a_started_worker_that_does_not_register_in_time_is_replaced() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerStarted(W1), 10)
    assert pool.next_check_ms() == 300_010
    released, requested = pool.handle(TimePassed(), 300_010)
    assert isinstance(released, ReleaseWorker) and released.worker_id == W1
    assert requested == RequestWorker(W2)


def test_an_idle_worker_is_released_after_the_timeout_and_its_consent() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 0)
    pool.handle(missing(0, W1), 100)
    assert pool.handle(TimePassed(), 30_099) == []
    assert pool.handle(TimePassed(), 30_100) == [AskWhetherReleasable(W1)]
    assert pool.handle(IdleReleaseAgreed(W1), 30_101) == [
        ReleaseWorker(W1, "idle: no job has a slot here")
    ]


def test_a_worker_that_got_a_job_meanwhile_is_not_released() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 0)
    pool.handle(missing(0, W1), 0)
    pool.handle(TimePassed(), 30_000)
    pool.handle(missing(0), 30_001)
    assert pool.handle(IdleReleaseAgreed(W1), 30_002) == []


def test_a_fixed_pool_asks_for_all_at_once_replaces_the_dead_and_releases_nobody() -> None:
    pool = new_pool(replace(ON_DEMAND, fixed_count=2))
    assert pool.handle(TimePassed(), 0) == [RequestWorker(W1), RequestWorker(W2)]
    pool.handle(WorkerRegistered(W1), 1)
    pool.handle(WorkerRegistered(W2), 1)
    pool.handle(missing(0, W1), 2)
    assert pool.handle(TimePassed(), 90_000) == []
    assert pool.handle(WorkerTerminated(W1, "killed"), 90_001) == [RequestWorker(W3)]


def test_a_lost_task_manager_is_released_at_the_host_and_refused_afterwards() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 0)
    lost = pool.handle(WorkerLost(W1, "heartbeat timeout"), 1)
    assert lost == [ReleaseWorker(W1, "heartbeat timeout")]
    assert pool.handle(missing(1), 1) == [RequestWorker(W2)]
    assert "heartbeat timeout" in str(pool.refusal_of(W1))


def test_a_registering_worker_is_not_asked_for_again_before_its_slots_are_matched() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    assert pool.handle(WorkerRegistered(W1), 1) == []
    assert pool.handle(missing(0), 2) == []


def test_one_that_registers_again_serves_no_slot_of_another_that_is_still_to_come() -> None:
    pool = new_pool()
    pool.handle(missing(3), 0)
    assert pool.handle(WorkerRegistered(W1), 1) == []
    assert pool.handle(WorkerRegistered(W1), 2) == []
    assert pool.pending_count == 2
    assert pool.handle(missing(2), 3) == []


def test_strangers_may_not_register() -> None:
    assert "not requested by" in str(new_pool().refusal_of(W1))


def test_what_is_remembered_of_workers_that_were_given_up_is_bounded() -> None:
    numbers = itertools.count(1)
    pool = WorkerPool(ON_DEMAND, lambda: ResourceId(f"w-{next(numbers)}"))
    for _ in range(1_001):
        pool.handle(SlotsMissing(1, ()), 0)
        pool.handle(SlotsMissing(0, ()), 0)
    first, last = pool.refusal_of(ResourceId("w-1")), pool.refusal_of(ResourceId("w-1001"))
    assert first is not None and "not requested by" in first
    assert last is not None and "was released before" in last


LARGE = ResourceProfile(4.0, 1 << 30)


def test_slots_that_no_usual_worker_has_get_workers_of_their_size() -> None:
    pool = new_pool()
    both = SlotsMissing(1, (), (), (LARGE,))
    assert pool.handle(both, 0) == [RequestWorker(W1, LARGE), RequestWorker(W2)]
    assert pool.handle(both, 1) == []
    assert pool.profile_of(W1) == LARGE and pool.profile_of(W2) is None
    # Registered, it is not asked for again before its slot is matched; lost, it is.
    pool.handle(WorkerStarted(W1), 2)
    assert pool.handle(WorkerRegistered(W1), 3) == []
    assert pool.handle(SlotsMissing(1, (), (), ()), 4) == []
    pool.handle(WorkerTerminated(W1, "gone"), 5)
    assert pool.handle(both, 6) == [RequestWorker(W3, LARGE)]
    # Nobody needs it any more: it alone is given up.
    [given_up] = pool.handle(missing(1), 7)
    assert isinstance(given_up, ReleaseWorker) and given_up.worker_id == W3


def test_a_large_worker_takes_the_places_of_several() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=5, cores_per_worker=2))
    assert pool.handle(SlotsMissing(4, (), (), (LARGE,)), 0) == [
        RequestWorker(ResourceId(f"w-{number}")) for number in (1, 2, 3, 4)
    ], "four cores are two places, and one is left"
    pool = new_pool(replace(ON_DEMAND, max_count=2, cores_per_worker=2))
    assert pool.handle(SlotsMissing(0, (), (), (LARGE,)), 0) == [RequestWorker(W1, LARGE)]
    assert pool.handle(SlotsMissing(1, (), (), (LARGE,)), 0) == []


def test_workers_of_an_earlier_resource_manager_are_not_asked_for_again() -> None:
    pool = new_pool()
    assert pool.handle(WorkersRecovered((W2,), (W1,)), 0) == []
    assert pool.refusal_of(W1) is None and pool.pending_count == 2
    assert pool.handle(WorkerRegistered(W1), 10) == []
    assert pool.handle(RecoveryEnded(), 20) == [ReleaseWorker(W2, "no longer needed")]
    assert pool.handle(missing(0, W1), 30) == []


def test_a_worker_of_an_earlier_resource_manager_keeps_its_interpreter() -> None:
    other = ResourceProfile(python_executable="/opt/other/python")
    pool = new_pool()
    pool.handle(WorkersRecovered((), (W1,), {W1: other}), 0)
    pool.handle(RecoveryEnded(), 5_000)
    assert pool.profile_of(W1) == other
    pool.new_worker_id = lambda: W3
    wanted = SlotsMissing(1, (), (), (other,))
    assert pool.handle(wanted, 5_000) == [RequestWorker(W3)], "W1 will serve the other one alone"


def test_one_that_was_started_stays_awaited_although_no_job_has_asked_yet() -> None:
    pool = new_pool(replace(ON_DEMAND, previous_timeout_ms=50_000))
    pool.handle(WorkersRecovered((), (W1,)), 0)
    assert pool.handle(RecoveryEnded(), 5_000) == []
    assert pool.handle(missing(1), 5_000) == []
    assert pool.next_check_ms() == 50_000
    cause = "it did not register at the next ResourceManager within heartbeat.timeout"
    pool.new_worker_id = lambda: W3
    assert pool.handle(TimePassed(), 50_000) == [ReleaseWorker(W1, cause), RequestWorker(W3)]


def decommissioned(pool: WorkerPool) -> None:
    """Register the one worker that is needed and used, and have the host take it away."""
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 0)
    pool.handle(missing(0), 0)
    pool.handle(WorkerDecommissioned(W1, "the host is sold"), 0)


def test_a_decommissioned_worker_is_replaced_where_the_host_counts_it_no_more() -> None:
    pool = new_pool(replace(ON_DEMAND, max_count=1, decommission_grace_ms=20_000))
    decommissioned(pool)
    assert pool.handle(missing(1), 1) == [RequestWorker(W2)]
    assert pool.decommissioned(W1) == "the host is sold"


def test_a_decommissioned_worker_is_released_once_no_job_has_a_slot_there() -> None:
    pool = new_pool(replace(ON_DEMAND, decommission_grace_ms=20_000))
    decommissioned(pool)
    assert pool.handle(missing(0), 10) == []
    assert pool.handle(missing(0, W1), 20) == [ReleaseWorker(W1, "the host is sold")]
    assert "was released before (the host is sold)" in str(pool.refusal_of(W1))


def test_a_decommissioned_worker_is_released_when_its_grace_is_over() -> None:
    pool = new_pool(replace(ON_DEMAND, decommission_grace_ms=20_000))
    decommissioned(pool)
    assert pool.next_check_ms() == 20_000
    assert pool.handle(TimePassed(), 19_999) == []
    assert pool.handle(TimePassed(), 20_000) == [ReleaseWorker(W1, "the host is sold")]


def test_a_fixed_pool_replaces_a_decommissioned_worker_at_once() -> None:
    pool = new_pool(replace(ON_DEMAND, fixed_count=1, decommission_grace_ms=20_000))
    assert pool.handle(missing(0), 0) == [RequestWorker(W1)]
    pool.handle(WorkerRegistered(W1), 0)
    assert pool.handle(WorkerDecommissioned(W1, "sold"), 0) == [RequestWorker(W2)]


def test_the_last_failure_is_named_only_to_a_job_that_waited_then_or_used_the_worker() -> None:
    pool = new_pool()
    pool.handle(missing(1), 0)
    pool.handle(WorkerRegistered(W1), 1)
    pool.handle(WorkerLost(W1, "killed", frozenset({JOB})), 100)
    told = "last failure of a worker: w-1: killed"
    assert told in pool.describe_pending(700, {OTHER_JOB: 100})
    assert told in pool.describe_pending(700, {JOB: 600})
    assert told in pool.describe_pending(700, {OTHER_JOB: 600, JOB: 650})
    assert "killed" not in pool.describe_pending(700, {OTHER_JOB: 101})
    assert "killed" not in pool.describe_pending(700, {})


def test_a_worker_has_time_for_the_environment_of_its_job_and_its_absence_names_that() -> None:
    limits = replace(ON_DEMAND, environment_timeout_ms=600_000)
    pool = WorkerPool(limits, iter((W1, W2, W3)).__next__)
    own = ResourceProfile(python_executable="environment:requirements@1")
    pool.handle(SlotsMissing(0, (), sized=(own,)), 0)
    pool.handle(WorkerStarted(W1), 0)
    assert pool.next_check_ms() == 900_000
    assert pool.handle(TimePassed(), 899_999) == []
    release, request = pool.handle(TimePassed(), 900_000)
    assert isinstance(release, ReleaseWorker) and isinstance(request, RequestWorker)
    assert "headrace.python.requirements.timeout" in release.cause
    assert release.cause.endswith("the job's Python environment 'requirements@1'")
