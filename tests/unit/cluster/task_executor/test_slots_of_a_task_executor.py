"""Slots of a TaskExecutor: offered, refused, timed out, freed, and compared with what their JobMaster has."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import SlotId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.messages import (
    AllocatedSlotReport,
    SlotOffer,
)
from tests.unit.cluster.cluster_samples import (
    JOB,
    SLOT_PROFILE,
    TM_1,
    allocation,
)
from tests.unit.cluster.task_executor.task_executor_world import (
    INSTANCE,
    JM_ID,
    World,
    never,
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_requested_slot_is_offered_to_the_job_master(world: World) -> None:
    world.request_slot()
    assert world.job_master.script.called("offer_slots") == [
        (TM_1, (SlotOffer(allocation(1), 0, SLOT_PROFILE),))
    ]
    assert world.slot_owner == allocation(1)


def test_a_slot_that_the_job_master_does_not_take_is_free_again(world: World) -> None:
    world.job_master.script.answers["offer_slots"] = ()
    world.request_slot()
    assert world.slot_owner is None
    freed = world.resource_manager.script.called("notify_slot_available")
    assert freed == [(INSTANCE, SlotId(TM_1, 0), allocation(1))]


def test_an_offer_without_an_answer_is_made_again(world: World) -> None:
    answers = iter([never, lambda: (allocation(1),)])
    world.job_master.script.answers["offer_slots"] = lambda *_: next(answers)()
    world.request_slot()
    world.run_for(1_500)
    assert len(world.job_master.script.called("offer_slots")) == 2
    world.run_for(10_000)
    assert world.slot_owner == allocation(1)


def test_a_slot_without_a_job_master_is_free_after_its_timeout(world: World) -> None:
    world.job_master.script.answers["register_task_manager"] = lambda *_: never()
    world.request_slot()
    world.run_for(4_900)
    assert world.slot_owner == allocation(1)
    world.run_for(200)
    assert world.slot_owner is None


def test_freeing_a_slot_stops_its_tasks_first(world: World) -> None:
    world.request_slot()
    task = world.submit()
    world.ask(world.gateway.free_slot(allocation(1), JM_ID, "not needed"))
    world.run_for(10)
    assert task.state is ExecutionState.FAILED
    assert world.slot_owner is None


def test_losing_the_job_master_stops_its_tasks_and_its_slot_waits_for_another(world: World) -> None:
    world.request_slot()
    task = world.submit()
    world.job_master.script.answers["register_task_manager"] = lambda *_: never()
    world.run_for(21_000)
    assert task.state is ExecutionState.FAILED
    assert world.slot_owner == allocation(1)
    world.run_for(5_000)
    assert world.slot_owner is None


def test_the_end_of_the_job_frees_its_slots_without_a_goodbye(world: World) -> None:
    world.request_slot()
    world.gateway.disconnect_job_master(JOB, JM_ID, None)
    world.run_for(10)
    assert world.slot_owner is None
    assert world.job_master.script.called("disconnect_task_manager") == []


def test_a_slot_that_two_reports_do_not_list_is_freed(world: World) -> None:
    world.request_slot()
    report = AllocatedSlotReport(JOB, ())
    world.ask(world.gateway.heartbeat_from_job_master(JM_ID, report))
    assert world.slot_owner == allocation(1), (
        "the report may have left before the slot was accepted"
    )
    world.ask(world.gateway.heartbeat_from_job_master(JM_ID, report))
    assert world.slot_owner is None


def test_a_slot_that_only_the_job_master_has_is_reported_lost(world: World) -> None:
    world.request_slot()
    report = AllocatedSlotReport(JOB, (allocation(1), allocation(2)))
    answer = world.ask(world.gateway.heartbeat_from_job_master(JM_ID, report))
    world.run_for(10)
    assert answer.attempt_ids == ()
    ((_, lost, _),) = world.job_master.script.called("fail_slot")
    assert lost == allocation(2)
