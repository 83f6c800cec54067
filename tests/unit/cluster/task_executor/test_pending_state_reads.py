"""Reads of a task's state at a TaskExecutor: passed on to the task, answered once, and never left without an end."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.checkpoint.errors import StateNotShowableError, SubtaskNotReadableError
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.state_queries import RowsQuery, StateQuery, StateReadResult, StatesQuery
from headrace.core.ids import JobMasterId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.errors import StaleLeaderError, StateReadTimeoutError
from headrace.rpc.proxies import with_timeout
from testkit.scripted_gateways import ScriptedTask
from tests.unit.cluster.cluster_samples import attempt
from tests.unit.cluster.task_executor.task_executor_world import JM_ID, OPERATOR, World

QUERY = RowsQuery(StateTable.KEYED, "count", duration_ms_max=200)
OLD_LEADER = JobMasterId(b"x" * 16)
RESULT = StateReadResult(5, 7, (), is_found=True, pieces=(b"rows",), row_count=1)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.request_slot()
    yield world
    world.close()


def ask(world: World, query: StateQuery = QUERY) -> asyncio.Task[Any]:
    """A read that is under way."""
    patient = with_timeout(world.gateway, 60_000)
    asked = world.loop.create_task(patient.read_state(attempt(0), JM_ID, OPERATOR, query))
    world.run_for(10)
    return asked


def end_of(world: World, asked: asyncio.Task[Any]) -> StateReadResult:
    """Its answer, which has come or is on its way."""
    world.run_for(10)
    assert asked.done()
    return asked.result()


def is_nobody_waiting(world: World) -> bool:
    return not world.executor._reads._waiting  # pyright: ignore[reportPrivateUsage]


def test_the_task_is_asked_and_its_first_answer_is_passed_on(world: World) -> None:
    task = world.submit()
    asked = ask(world)
    (read,) = task.state_reads
    assert (read.operator_id, read.query) == (OPERATOR, QUERY)
    assert not read.is_given_up
    read.answer(RESULT)
    read.answer(StateNotShowableError("count", "late"))
    assert end_of(world, asked) == RESULT
    assert read.is_given_up
    assert is_nobody_waiting(world)


def test_an_error_of_the_task_arrives_as_what_it_is(world: World) -> None:
    task = world.submit()
    asked = ask(world)
    task.state_reads[0].answer(StateNotShowableError("count", "no pickle"))
    with pytest.raises(StateNotShowableError, match=r"'count'.*no pickle"):
        end_of(world, asked)


def test_a_task_that_does_not_come_to_it_is_given_up(world: World) -> None:
    task: ScriptedTask = world.submit()
    asked = ask(world, StatesQuery(duration_ms_max=0))
    world.run_for(970)
    assert not asked.done()
    world.run_for(30)
    with pytest.raises(StateReadTimeoutError, match=r"has not answered within 1000 ms"):
        end_of(world, asked)
    assert task.state_reads[0].is_given_up
    assert is_nobody_waiting(world)


def test_whoever_waits_hears_when_the_task_ends(world: World) -> None:
    task = world.submit()
    asked = ask(world)
    task.reach(ExecutionState.FINISHED)
    with pytest.raises(SubtaskNotReadableError, match="has ended meanwhile") as raised:
        end_of(world, asked)
    assert "(1/" in raised.value.subtask
    assert is_nobody_waiting(world)


def test_an_attempt_that_is_not_there_has_no_state(world: World) -> None:
    with pytest.raises(SubtaskNotReadableError, match="it is no longer on its TaskManager"):
        world.ask(world.gateway.read_state(attempt(9), JM_ID, OPERATOR, QUERY))


def test_a_leader_of_the_past_reads_nothing(world: World) -> None:
    task = world.submit()
    with pytest.raises(StaleLeaderError):
        world.ask(world.gateway.read_state(attempt(0), OLD_LEADER, OPERATOR, QUERY))
    assert task.state_reads == []
