"""Groups of the chaos suite: they hold everything that is asked for, and their moments can be armed."""

import random
from typing import Any

import pytest

from headrace.core.config import Settings
from headrace.core.process import failpoints
from headrace.core.process.failpoints import FAILPOINTS, Failpoint
from testkit.chaos.groups import GROUPS
from testkit.chaos.runner import Outcome
from testkit.chaos.scenarios import EVENT_KILLS, KILLS, SMOKE, UPLOADS, USER_CODE, Scenario


def test_times_of_moments_are_drawn_from_the_seed_within_their_range() -> None:
    (scenario,) = (one for one in KILLS if one.name == "ack sent")
    drawn = [scenario.drawn(random.Random(seed)) for seed in range(40)]
    times = {int(text.partition("#")[2].partition("=")[0]) for (text,) in drawn}
    assert len(times) > 4
    assert times <= set(range(4, 13))
    assert scenario.drawn(random.Random(5)) == scenario.drawn(random.Random(5))


def test_everything_that_the_suite_is_asked_for_is_in_some_group() -> None:
    names = {one.name for group in GROUPS.values() for one in group.scenarios}
    names |= {name for group in GROUPS.values() for name in group.plays}
    assert names >= {one.name for one in (*KILLS, *EVENT_KILLS, *USER_CODE, *UPLOADS)}
    assert names >= {"storage is full", "storage is slow", "storage fails one write in ten"}
    assert names >= {"frozen TaskManager", "all TaskManagers at once", "state is missing"}
    assert GROUPS["kills"].count(5) == 5 * len(KILLS)


def test_every_moment_is_one_that_can_be_armed() -> None:
    try:
        for scenario in (*KILLS, *EVENT_KILLS, *USER_CODE, *UPLOADS):
            for text in scenario.drawn(random.Random(3)):
                if text.startswith("driver:"):
                    Failpoint(text.removeprefix("driver:").partition("#")[0])
                else:
                    failpoints.arm(Settings({FAILPOINTS.key: text}))
    finally:
        failpoints.disarm()
    assert len(KILLS) >= 16
    assert {scenario.name for scenario in KILLS} >= SMOKE


class FakeRunner:
    """Gives the same outcome for every run."""

    def __init__(self, in_flight_bytes: int, mistakes: tuple[str, ...] = ()) -> None:
        self._rest = (mistakes, in_flight_bytes)

    def run(self, scenario: Scenario, repeat: int) -> Outcome:
        return Outcome(scenario.name, repeat, 11, 7.0, 1, (2.0,), "", *self._rest)


@pytest.mark.parametrize("name", ["events-unaligned", "events-unaligned-rocksdb"])
def test_hurried_runs_are_exact_only_where_checkpoints_held_what_was_in_flight(name: str) -> None:
    def run(runner: Any, group: str = name) -> set[tuple[str, ...]]:
        return {one.mistakes for one in GROUPS[group].runs(runner, 1)}

    assert run(FakeRunner(0)) == {("no checkpoint contained data in flight",)}
    assert run(FakeRunner(1)) == {()}
    assert run(FakeRunner(0, ("lost",))) == {("lost",)}
    assert run(FakeRunner(0), "kills") == {()}
