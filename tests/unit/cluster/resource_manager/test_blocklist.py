"""Blocklist: losses of a host within a window block it for a while."""

from headrace.cluster.resource_manager.blocklist import Blocklist
from headrace.core.config import Settings

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
