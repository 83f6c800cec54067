"""Jobs that name an interpreter get TaskManagers that run by it, and no job gets those of another interpreter."""

import itertools

import pytest

from headrace.cluster.job_master.slots.slot_pool import SlotPool
from headrace.cluster.resource_manager.slot_matching import (
    AllocateSlot,
    RequirementsDeclared,
    SlotMatching,
    TaskManagerAdded,
)
from headrace.core.ids import JobId, ResourceId, SlotId
from headrace.core.resource_profile import ResourceProfile, unserved
from headrace.gateways.messages import SlotOffer, SlotStatus
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
from tests.unit.cluster.resource_manager.resource_manager_world import VERSIONS, World

OTHER = ANY_PROFILE.with_interpreter("/opt/other/python")
OTHER_SLOT = SLOT_PROFILE.with_interpreter("/opt/other/python")

ONE_CORE, MANY_CORES = ResourceProfile(1.0), ResourceProfile(8.0)
INTERPRETER_REMEDY = "start the cluster with python.executable, or leave it out of the job"


def need(job: JobId, profile: ResourceProfile, count: int = 1) -> RequirementsDeclared:
    return RequirementsDeclared(job, (ResourceRequirement(profile, count),))


def slots_of_other(resource_id: ResourceId) -> tuple[SlotStatus, ...]:
    return (SlotStatus(SlotId(resource_id, 0), OTHER_SLOT),)


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_each_job_gets_slots_of_its_own_interpreter_alone(is_exclusive: bool) -> None:
    numbers = itertools.count(1)
    matching = SlotMatching(lambda: allocation(next(numbers)), is_exclusive=is_exclusive)
    matching.handle(need(JOB, OTHER))
    assert matching.handle(TaskManagerAdded(TM_1, empty_slots(TM_1, 1))) == []
    assert matching.handle(TaskManagerAdded(TM_2, slots_of_other(TM_2))) == [
        AllocateSlot(TM_2, 0, JOB, allocation(1), OTHER)
    ]
    assert matching.handle(need(OTHER_JOB, ANY_PROFILE, 2)) == [
        AllocateSlot(TM_1, 0, OTHER_JOB, allocation(2), ANY_PROFILE)
    ]
    assert matching.missing()[0].missing_count == 1


def test_task_managers_of_another_interpreter_are_not_kept_for_a_job_that_waits_for_all_slots() -> (
    None
):
    matching = SlotMatching(lambda: allocation(1), capacity=lambda: 2)
    matching.handle(TaskManagerAdded(TM_2, slots_of_other(TM_2)))
    matching.handle(need(JOB, ANY_PROFILE, 3))
    assert JOB in matching.admission.held_back
    assert not matching.awaited_slots()


def test_slots_of_a_job_with_its_own_interpreter_have_a_task_manager_each_and_none_is_held_back() -> (
    None
):
    numbers = itertools.count(1)
    matching = SlotMatching(
        lambda: allocation(next(numbers)),
        is_exclusive=True,
        capacity=lambda: 8,
        slots_per_worker=2,
    )
    for number in range(4):
        name = ResourceId(f"w-{number}")
        matching.handle(TaskManagerAdded(name, slots_of_other(name)))
    assert len(matching.handle(need(JOB, OTHER, 5))) == 4
    assert JOB not in matching.admission.held_back


def test_needs_are_counted_by_interpreter() -> None:
    wanted = {ANY_PROFILE: 1, OTHER: 2}
    assert unserved(wanted, {}) == wanted
    assert unserved(wanted, {OTHER_SLOT: 3}) == {ANY_PROFILE: 1}
    assert unserved(wanted, {SLOT_PROFILE: 3}) == {OTHER: 2}


def test_a_job_takes_a_slot_that_is_offered_by_its_interpreter_alone() -> None:
    pool = SlotPool()
    pool.require([OTHER])
    assert pool.offer(TM_1, [SlotOffer(allocation(1), 0, SLOT_PROFILE)], 0) == ()
    assert pool.offer(TM_2, [SlotOffer(allocation(2), 0, OTHER_SLOT)], 0) == (allocation(2),)
    assert pool.missing_count == 0
    reserved = pool.reserve([OTHER])
    assert reserved is not None and reserved[0].resource_id == TM_2


def test_a_worker_is_asked_for_with_the_interpreter_of_each_missing_slot() -> None:
    world = World()
    world.declare(2, profile=OTHER)
    assert world.driver.profiles == [OTHER, OTHER]
    assert "lacks 2 of 2 slot(s) of the interpreter /opt/other/python" in world.explanation
    world.close()


def test_the_next_resource_manager_knows_by_which_interpreter_a_worker_runs_that_is_not_back() -> (
    None
):
    world = World()
    world.declare(1, profile=OTHER)
    [worker_id] = world.driver.requested
    world.driver.listener.worker_started(worker_id)
    world.register_with_slots(worker_id, slots=slots_of_other(worker_id))
    world.follow()
    world.declare(1, profile=OTHER)
    assert world.driver.requested == [worker_id], "it is waited for"
    world.declare(1)
    assert world.driver.profiles[1:] == [ANY_PROFILE], "a usual job is not to wait for it"
    world.close()


def test_a_worker_that_comes_back_serves_the_job_of_its_interpreter_alone() -> None:
    # Any job may have it, as far as its interpreter is what the job names.
    world = World({"headrace.resourcemanager.exclusive-task-managers": "false"})
    world.declare(1, profile=OTHER)
    [worker_id] = world.driver.requested
    world.driver.listener.worker_started(worker_id)
    world.register_with_slots(worker_id, slots=slots_of_other(worker_id))
    world.follow()
    world.task_manager.script.calls.clear()
    world.register_with_slots(worker_id, slots=slots_of_other(worker_id))
    world.declare(1)
    assert world.task_manager.script.called("request_slot") == []
    assert world.driver.profiles[1:] == [ANY_PROFILE]
    world.declare(1, profile=OTHER)
    [(request,)] = world.task_manager.script.called("request_slot")
    assert request.slot_id.resource_id == worker_id
    world.close()


def test_a_taken_over_worker_of_another_interpreter_that_cannot_run_is_no_news_for_usual_jobs() -> (
    None
):
    world = World()
    world.declare(1, profile=OTHER)
    [worker_id] = world.driver.requested
    world.driver.listener.worker_started(worker_id)
    world.follow()
    mismatch = {**VERSIONS, "pyarrow": "25.0"}
    world.loop.run_for(60_000)
    world.declare(1)
    world.register(name=worker_id, versions=mismatch)
    world.run_for(10)
    assert world.job_master.script.called("notify_not_enough_resources") == []
    world.close()


def test_a_host_that_has_no_other_interpreter_fails_the_job_with_its_reason() -> None:
    world = World()
    world.driver.refusal = "all TaskManagers are alike"
    world.declare(1, profile=OTHER)
    [(profile, explanation)] = world.job_master.script.called("notify_impossible_profile")
    assert profile == OTHER and "all TaskManagers are alike" in explanation
    assert world.driver.requested == []
    world.close()


def test_a_fixed_pool_says_how_a_job_gets_its_interpreter() -> None:
    world = World({"headrace.taskmanager.fixed-pool.size": "1"})
    world.declare(1, profile=OTHER)
    [worker_id] = world.driver.requested
    world.register(name=worker_id)
    world.run_for(10)
    [(_, explanation), *_] = world.job_master.script.called("notify_impossible_profile")
    assert "start the cluster with python.executable, or leave it out of the job" in explanation
    assert "larger" not in explanation
    world.close()


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        (ONE_CORE.with_interpreter("/opt/other/python"), INTERPRETER_REMEDY),
        (
            MANY_CORES.with_interpreter("/opt/other/python"),
            f"{INTERPRETER_REMEDY}; and make each of them larger, or request less",
        ),
        (MANY_CORES, "make each of them larger, or request less"),
        (
            ONE_CORE.with_interpreter("environment:requirements@1"),
            "leave python.requirements and an interpreter in an archive out of the job",
        ),
    ],
    ids=["interpreter", "interpreter and cores", "cores", "environment"],
)
def test_a_fixed_pool_says_to_ask_for_less_only_where_that_helps(
    wanted: ResourceProfile, remedy: str
) -> None:
    world = World({"headrace.taskmanager.fixed-pool.size": "1"})
    world.declare(1, profile=wanted)
    [(_, explanation)] = world.job_master.script.called("notify_impossible_profile")
    alike = (
        "headrace.taskmanager.fixed-pool.size gives all TaskManagers the same size: unset it, or "
    )
    assert explanation.partition("; ")[2] == f"{alike}{remedy}"
    world.close()


@pytest.mark.parametrize("is_passing", [False, True])
def test_an_interpreter_that_cannot_run_is_told_to_the_jobs_that_wait_for_it_alone(
    is_passing: bool,
) -> None:
    world = World()
    world.declare(1, profile=OTHER)
    cause = "it has no package 'pyarrow'"
    world.driver.listener.interpreter_failed(OTHER.python_executable, cause, recoverable=is_passing)
    world.run_for(10)
    assert world.job_master.script.called("notify_not_enough_resources") == [(cause, is_passing)]
    world.close()


def test_the_failure_of_an_interpreter_whose_worker_was_given_up_is_no_news_for_usual_jobs() -> (
    None
):
    world = World()
    world.declare(1, profile=OTHER)
    world.declare(0)
    world.declare(1)
    world.driver.listener.interpreter_failed(
        OTHER.python_executable, "no such file", recoverable=False
    )
    world.run_for(10)
    assert world.job_master.script.called("notify_not_enough_resources") == []
    world.close()


def test_a_usual_worker_of_other_versions_is_no_news_for_a_job_with_its_own_interpreter() -> None:
    world = World({"headrace.taskmanager.fixed-pool.size": "1"})
    [worker_id] = world.driver.requested
    world.declare(1, profile=OTHER)
    world.register(name=worker_id, versions={**VERSIONS, "python": "3.12.1"})
    world.run_for(10)
    assert world.job_master.script.called("notify_not_enough_resources") == []
    world.close()


def test_an_interpreter_with_other_packages_fails_its_job_by_path_and_host() -> None:
    world = World()
    world.declare(1, profile=OTHER)
    [worker_id] = world.driver.requested
    world.register(name=worker_id, versions={**VERSIONS, "pyarrow": "25.0"})
    world.run_for(10)
    [(told, recoverable)] = world.job_master.script.called("notify_not_enough_resources")
    assert not recoverable
    assert told.startswith("version of pyarrow differs: 26.0 on the driver, 25.0 on worker")
    assert "(host worker), which runs by the job's python.executable, '/opt/other/python'" in told
    world.close()
