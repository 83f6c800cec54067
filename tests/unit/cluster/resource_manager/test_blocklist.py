"""Blocklist: losses of a host within a window block it for a while."""

from headrace.cluster.resource_manager.blocklist import (
    BLOCKED_HOST_PATIENCE_MS,
    BlockedHostPatience,
    Blocklist,
)
from headrace.core.config import Settings
from headrace.core.ids import JobId
from tests.unit.cluster.cluster_samples import JOB, OTHER_JOB, TM_1, TM_2

SETTINGS = {
    "headrace.blocklist.lost-task-managers": "2",
    "headrace.blocklist.window": "10 s",
    "headrace.blocklist.duration": "60 s",
}


def new_blocklist() -> Blocklist:
    return Blocklist(Settings(SETTINGS))


def test_a_host_that_loses_too_many_within_the_window_is_blocked_for_a_while() -> None:
    blocklist = new_blocklist()
    assert blocklist.task_manager_lost("bad", 1_000) == ""
    assert not blocklist.is_blocked("bad", 1_000)
    told = blocklist.task_manager_lost("bad", 9_000)
    assert told.startswith("host bad has lost 2 TaskManagers within 10 s")
    assert blocklist.is_blocked("bad", 68_999)
    assert not blocklist.is_blocked("good", 68_999)
    assert not blocklist.is_blocked("bad", 69_000)


def test_losses_that_lie_further_apart_than_the_window_do_not_count_together() -> None:
    blocklist = new_blocklist()
    for now_ms in range(0, 100_000, 10_000):
        assert blocklist.task_manager_lost("slow", now_ms) == ""
        assert not blocklist.is_blocked("slow", now_ms)


def test_a_host_is_told_once_and_counted_anew_when_its_time_is_over() -> None:
    blocklist = new_blocklist()
    blocklist.task_manager_lost("bad", 0)
    assert blocklist.task_manager_lost("bad", 1) != ""
    assert blocklist.task_manager_lost("bad", 2) == ""
    assert blocklist.task_manager_lost("bad", 60_001) == ""
    assert not blocklist.is_blocked("bad", 60_001)
    assert blocklist.task_manager_lost("bad", 60_002) != ""


def test_no_host_is_blocked_unless_a_number_is_set() -> None:
    blocklist = Blocklist(Settings({}))
    assert not any(blocklist.task_manager_lost("bad", now_ms) for now_ms in range(100))
    assert not blocklist.is_blocked("bad", 100)


def test_each_job_waits_by_itself_and_again_once_it_has_had_all_its_slots() -> None:
    patience = BlockedHostPatience()

    def passes_over(job: JobId, now_ms: float) -> bool:
        return patience.passes_over(job, TM_1, 1, now_ms, may_another_come=True)

    assert passes_over(JOB, 0)
    assert not passes_over(JOB, BLOCKED_HOST_PATIENCE_MS)
    assert passes_over(OTHER_JOB, BLOCKED_HOST_PATIENCE_MS)
    assert not passes_over(JOB, BLOCKED_HOST_PATIENCE_MS + 1)
    patience.forget_others({OTHER_JOB})
    assert passes_over(JOB, BLOCKED_HOST_PATIENCE_MS + 2)


def test_a_wait_ends_for_good_when_no_other_task_manager_may_come() -> None:
    patience = BlockedHostPatience()
    assert not patience.passes_over(JOB, TM_1, 1, 0, may_another_come=False)
    assert not patience.is_waiting(JOB)
    assert patience.passes_over(JOB, TM_1, 1, 1, may_another_come=True)
    assert patience.is_waiting(JOB)
    assert not patience.passes_over(JOB, TM_2, 1, 2, may_another_come=False)
    assert not patience.passes_over(JOB, TM_2, 1, 3, may_another_come=True)
    assert not patience.is_waiting(JOB)
