"""JobNotices: lines that the user reads at once, and one line for many where they come fast."""

import logging

import pytest

from headrace.cluster.job_master.job_notices import JobNotices
from headrace.core.clock import ManualClock
from testkit.simulation.virtual_loop import VirtualLoop


class World:
    """Notices on a virtual loop, and what of them stood on the terminal."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.loop = VirtualLoop(ManualClock(1_000))
        self.log = log
        self.notices = JobNotices(
            self.loop.clock, lambda delay_ms, action: self.loop.call_later(delay_ms / 1000, action)
        )

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.log.records]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.WARNING)
    return World(caplog)


def test_a_notice_is_a_warning_at_once_and_is_kept_with_its_time(world: World) -> None:
    world.notices.tell("restarts", "it restarts")
    assert world.lines == ["it restarts"]
    assert world.log.records[0].levelno == logging.WARNING
    assert [(one.timestamp_ms, one.text) for one in world.notices.shown] == [(1_000, "it restarts")]


def test_names_in_a_notice_make_no_line_of_their_own(world: World) -> None:
    world.notices.tell("restarts", "job 'a\nb\x1b[2J' restarts")
    assert world.lines == ["job 'a\\nb\\x1b[2J' restarts"]


def test_of_a_topic_that_comes_fast_the_newest_line_stands_for_all_and_another_one_is_not_held(
    world: World,
) -> None:
    for number in range(50):
        world.notices.tell("restarts", f"restart {number}")
    world.notices.tell("checkpoints", "a checkpoint failed")
    assert world.lines == ["restart 0", "restart 1", "restart 2", "a checkpoint failed"]
    world.loop.run_for(10_000)
    assert world.lines[4:] == ["restart 49 (46 similar ones before it)"]
    world.notices.tell("restarts", "restart 50")
    assert len(world.lines) == 5
    world.loop.run_for(10_000)
    assert world.lines[5:] == ["restart 50"]


def test_after_a_quiet_time_lines_come_at_once_again(world: World) -> None:
    for number in range(4):
        world.notices.tell("restarts", f"restart {number}")
    world.loop.run_for(30_000)
    assert world.lines == ["restart 0", "restart 1", "restart 2", "restart 3"]
    world.notices.tell("restarts", "restart 4")
    assert world.lines[4:] == ["restart 4"]


def test_what_is_held_is_told_when_the_job_ends_and_no_timer_stays(world: World) -> None:
    for number in range(6):
        world.notices.tell("restarts", f"restart {number}")
    world.notices.close()
    assert world.lines[3:] == ["restart 5 (2 similar ones before it)"]
    world.loop.run_for(60_000)
    assert len(world.lines) == 4
