"""Asking TaskManagers for their tasks' metrics: seldom, and once for all who want to know."""

from collections.abc import Iterator

import pytest

from tests.unit.cluster.job_master.task_manager_worlds import INTERVAL_MS, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_metrics_are_asked_for_when_somebody_wants_to_know(world: World) -> None:
    world.refresh()
    assert world.asked_count == 1 and world.execution.metrics == {"asked": 1}


def test_all_who_ask_at_once_share_one_answer(world: World) -> None:
    world.refresh(caller_count=3)
    assert world.asked_count == 1 and world.execution.metrics == {"asked": 1}


def test_within_the_interval_the_old_answer_is_good_enough(world: World) -> None:
    world.refresh()
    world.loop.run_for(INTERVAL_MS / 2)
    world.refresh()
    assert world.asked_count == 1
    world.loop.run_for(INTERVAL_MS)
    world.refresh()
    assert world.asked_count == 2 and world.execution.metrics == {"asked": 2}


def test_whoever_takes_older_metrics_asks_nobody_for_new_ones(world: World) -> None:
    world.refresh()
    world.loop.run_for(4 * INTERVAL_MS)
    world.refresh(age_max_ms=5 * INTERVAL_MS)
    assert world.asked_count == 1
    world.loop.run_for(INTERVAL_MS)
    world.refresh(age_max_ms=5 * INTERVAL_MS)
    assert world.asked_count == 2


def test_the_interval_holds_for_whoever_wants_newer_metrics(world: World) -> None:
    world.refresh()
    world.loop.run_for(INTERVAL_MS / 2)
    world.refresh(age_max_ms=INTERVAL_MS / 4)
    assert world.asked_count == 1
