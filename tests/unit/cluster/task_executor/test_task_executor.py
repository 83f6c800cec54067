"""TaskExecutor between a scripted ResourceManager and a scripted JobMaster, on virtual time."""

import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from headrace.api.settings.execution_config import ExecutionConfig
from headrace.api.settings.program_settings import ProgramSettings
from headrace.cluster.task_executor.task_executor import TaskExecutor
from headrace.core.errors import UserCodeError
from headrace.core.ids import (
    JobMasterId,
    ResourceManagerId,
)
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.errors import (
    CoordinatorBusyError,
    StaleLeaderError,
    TaskSubmissionError,
    UnknownAttemptError,
)
from headrace.gateways.messages import (
    Acknowledge,
    AllocatedSlotReport,
    ErrorInfo,
    RegistrationRejected,
)
from headrace.gateways.task_executor import TaskExecutorGateway
from tests.unit.cluster.cluster_samples import (
    JOB,
    TM_1,
    allocation,
    attempt,
)
from tests.unit.cluster.task_executor.task_executor_world import (
    INSTANCE,
    JM_ID,
    MEMORY,
    OPERATOR,
    RM_ID,
    RM_RESOURCE,
    World,
    never,
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_it_registers_and_reports_its_slots(world: World) -> None:
    ((registration,),) = world.resource_manager.script.called("register_task_executor")
    assert (registration.slot_count, registration.pid) == (1, 7)
    ((resource_id, instance_id, report),) = world.resource_manager.script.called("send_slot_report")
    assert (resource_id, instance_id) == (TM_1, INSTANCE)
    assert [slot.allocation_id for slot in report.slots] == [None]


def test_every_heartbeat_tells_of_slots_and_memory(world: World) -> None:
    payload = world.ask(world.gateway.heartbeat_from_resource_manager(RM_RESOURCE))
    assert payload.slot_report == world.executor.slot_report()
    assert payload.memory == MEMORY


def test_a_slot_request_of_another_leader_is_refused(world: World) -> None:
    with pytest.raises(StaleLeaderError):
        world.request_slot(resource_manager_id=ResourceManagerId(b"x" * 16))


def test_a_submitted_task_runs_and_its_states_are_reported(world: World) -> None:
    world.request_slot()
    task = world.submit()
    task.reach(ExecutionState.FINISHED)
    world.run_for(10)
    assert world.reported() == [ExecutionState.RUNNING, ExecutionState.FINISHED]
    assert world.executor.attempt_ids == ()


def test_that_a_task_is_being_deployed_is_no_news_to_its_job_master(world: World) -> None:
    world.request_slot()
    task = world.submit()
    for state in (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.FINISHED):
        task.reach(state)
    world.run_for(10)
    assert world.reported()[1:] == [ExecutionState.INITIALIZING, ExecutionState.FINISHED]


def test_a_task_of_another_job_master_is_refused(world: World) -> None:
    world.request_slot()
    with pytest.raises(TaskSubmissionError):
        world.submit(job_master_id=JobMasterId(b"x" * 16))


def test_a_task_without_a_slot_is_refused(world: World) -> None:
    with pytest.raises(TaskSubmissionError):
        world.submit()


def test_submitting_twice_is_one_task(world: World) -> None:
    world.request_slot()
    assert world.submit() is world.submit()


def test_what_goes_wrong_while_a_task_is_built_reaches_the_job_master_as_it_is(
    world: World,
) -> None:
    world.request_slot()
    world.factory.error = UserCodeError(
        "ModuleNotFoundError", "No module named 'x'", "Map", "f.py", ""
    )
    with pytest.raises(UserCodeError, match="No module named 'x'"):
        world.submit()
    assert world.executor.attempt_ids == ()
    world.factory.error = None
    world.submit()


def test_a_report_whose_answer_was_lost_is_repeated_before_the_next_one(world: World) -> None:
    world.request_slot()
    answers = iter([never()])
    world.job_master.script.answers["update_task_execution_state"] = lambda *_: next(
        answers, Acknowledge()
    )
    task = world.submit()
    task.reach(ExecutionState.FINISHED)
    world.run_for(5_000)
    assert world.reported() == [
        ExecutionState.RUNNING,
        ExecutionState.RUNNING,
        ExecutionState.FINISHED,
    ]


def test_why_a_task_failed_is_in_the_log_with_its_traceback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.request_slot()
    task = world.submit()
    trace = 'Traceback\n  File "job.py", line 7, in f\nValueError: no such city'
    error = UserCodeError("ValueError", "no such city", "Map", "job.py, line 7", trace)
    task.reach(ExecutionState.FAILED, error)
    world.run_for(1_000)
    (record,) = (one for one in caplog.records if "has failed" in one.message)
    assert record.levelno == logging.INFO, "the terminal hears of it from the JobMaster"
    assert record.message.startswith("task '")
    assert "in attempt 0: ValueError: no such city (in operator 'Map', job.py" in record.message
    assert record.message.endswith(trace)


def test_an_attempt_that_the_job_master_does_not_know_is_stopped(world: World) -> None:
    world.request_slot()
    unknown = UnknownAttemptError("a")
    world.job_master.script.answers["update_task_execution_state"] = unknown
    task = world.submit()
    assert task.state is ExecutionState.FAILED
    assert world.executor.attempt_ids == ()


def test_events_are_numbered_and_a_busy_coordinator_gets_the_same_one_again(world: World) -> None:
    world.request_slot()
    answers = iter([CoordinatorBusyError("full"), Acknowledge(), Acknowledge()])
    world.job_master.script.answers["send_operator_event_to_coordinator"] = lambda *_: next(answers)
    task = world.submit()
    task.send_event(OPERATOR, b"one")
    task.send_event(OPERATOR, b"two")
    world.run_for(100)
    calls = world.job_master.script.called("send_operator_event_to_coordinator")
    assert [(number, payload) for _, _, number, payload in calls] == [
        (0, b"one"),
        (0, b"one"),
        (1, b"two"),
    ]


def test_the_end_of_a_task_is_told_after_its_last_event(world: World) -> None:
    world.request_slot()
    task = world.submit()
    task.send_event(OPERATOR, b"last")
    task.reach(ExecutionState.FINISHED)
    world.run_for(100)
    methods = [call.method for call in world.job_master.script.calls]
    assert methods[-2:] == ["send_operator_event_to_coordinator", "update_task_execution_state"]


def test_a_cancelled_task_does_not_wait_for_a_busy_coordinator(world: World) -> None:
    world.request_slot()
    busy = CoordinatorBusyError("full")
    world.job_master.script.answers["send_operator_event_to_coordinator"] = busy
    task = world.submit()
    task.send_event(OPERATOR, b"never taken")
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(100)
    assert world.reported()[-1] is ExecutionState.CANCELED


def test_cancelling_an_unknown_attempt_is_fine(world: World) -> None:
    assert world.ask(world.gateway.cancel_task(attempt(9), JM_ID)) == Acknowledge()


def test_a_task_that_does_not_end_ends_its_process(world: World) -> None:
    world.request_slot()
    task = world.submit()
    task.is_stuck = True
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(29_000)
    assert world.exits == []
    world.run_for(2_000)
    (reason,) = world.exits
    assert "task.cancellation.timeout" in reason and "vertex 1 (1/2)" in reason


def test_a_task_that_does_not_return_ends_its_process_at_once_where_that_is_wanted(
    world: World,
) -> None:
    world.request_slot()
    task = world.submit()
    task.is_stuck = True
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID, is_forced=True))
    (reason,) = world.exits
    assert "vertex 1 (1/2)" in reason and "did not return" in reason


def test_a_task_that_has_ended_costs_no_process(world: World) -> None:
    world.request_slot()
    world.submit()
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(100)
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID, is_forced=True))
    assert world.exits == []


def test_a_jobs_own_patience_with_its_tasks_goes_before_the_clusters(world: World) -> None:
    program = ProgramSettings()
    ExecutionConfig(program).set_task_cancellation_timeout(5_000)
    world.request_slot()
    task = world.submit(settings=program.to_settings().to_dict())
    task.is_stuck = True
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(4_000)
    assert world.exits == []
    world.run_for(2_000)
    (reason,) = world.exits
    assert "within 5 s" in reason


def test_a_job_master_that_ends_the_connection_is_registered_at_again(world: World) -> None:
    world.request_slot()
    world.gateway.disconnect_job_master(JOB, JM_ID, ErrorInfo("X", "lost", "INTERNAL", True))
    world.run_for(10)
    assert len(world.job_master.script.called("register_task_manager")) == 2
    assert len(world.job_master.script.called("offer_slots")) == 2


def test_a_job_master_that_ends_gets_no_reports_and_keeps_no_slot(world: World) -> None:
    world.request_slot()
    task = world.submit()
    world.gateway.disconnect_job_master(JOB, JM_ID, None)
    world.run_for(1)
    world.job_master.close_async()
    world.run_for(1_000)
    assert task.state is ExecutionState.FAILED
    assert world.slot_owner is None
    reports = world.job_master.script.called("update_task_execution_state")
    assert [report.state for (report,) in reports] == [ExecutionState.RUNNING]


def test_losing_the_resource_manager_leaves_tasks_alone(world: World) -> None:
    world.request_slot()
    task = world.submit()
    world.gateway.disconnect_resource_manager(RM_ID, "restart")
    world.run_for(10)
    assert task.state is ExecutionState.RUNNING
    assert len(world.resource_manager.script.called("register_task_executor")) == 2


OLD_LEADER = JobMasterId(b"x" * 16)


@pytest.mark.parametrize(
    "message",
    [
        lambda gateway: gateway.heartbeat_from_job_master(OLD_LEADER, AllocatedSlotReport(JOB, ())),
        lambda gateway: gateway.cancel_task(attempt(0), OLD_LEADER),
        lambda gateway: gateway.free_slot(allocation(1), OLD_LEADER, "the job is over"),
    ],
    ids=["heartbeat", "cancellation", "release of a slot"],
)
def test_a_request_of_an_old_leader_is_refused_and_changes_nothing(
    world: World, message: Callable[[TaskExecutorGateway], Awaitable[object]]
) -> None:
    world.request_slot()
    task = world.submit()
    for _ in range(3):
        with pytest.raises(StaleLeaderError):
            world.ask(message(world.gateway))
    assert task.state is ExecutionState.RUNNING
    assert world.slot_owner == allocation(1)


@pytest.mark.parametrize("cause", [None, ErrorInfo("X", "lost", "INTERNAL", True)])
def test_a_goodbye_or_an_event_of_an_old_leader_changes_nothing(
    world: World, cause: ErrorInfo | None
) -> None:
    world.request_slot()
    task = world.submit()
    world.gateway.disconnect_job_master(JOB, OLD_LEADER, cause)
    with pytest.raises(StaleLeaderError):
        world.ask(world.gateway.send_operator_event(attempt(0), OLD_LEADER, OPERATOR, 0, b"late"))
    world.run_for(10)
    assert (task.state, task.events) == (ExecutionState.RUNNING, [])
    assert len(world.job_master.script.called("register_task_manager")) == 1
    assert world.slot_owner == allocation(1)


def test_heartbeats_of_an_old_leader_do_not_keep_the_new_one_alive(world: World) -> None:
    world.request_slot()
    task = world.submit()
    for _ in range(5):
        world.run_for(5_000)
        with pytest.raises(StaleLeaderError):
            report = AllocatedSlotReport(JOB, (allocation(1),))
            world.ask(world.gateway.heartbeat_from_job_master(OLD_LEADER, report))
    assert task.state is ExecutionState.FAILED


def test_a_goodbye_of_an_old_resource_manager_changes_nothing(world: World) -> None:
    world.gateway.disconnect_resource_manager(ResourceManagerId(b"x" * 16), "restart")
    world.run_for(10)
    assert len(world.resource_manager.script.called("register_task_executor")) == 1


def test_the_last_metrics_of_a_task_are_counts_and_no_rates(world: World) -> None:
    world.request_slot()
    world.submit().metrics = {
        "numRecordsIn": 5.0,
        "busyTimeMsPerSecond": 1000.0,
        "numRecordsInPerSecond": 9.0,
        "isBackPressured": 1.0,
    }
    world.ask(world.gateway.cancel_task(attempt(0), JM_ID))
    world.run_for(100)
    reports = [
        call.arguments[0]
        for call in world.job_master.script.calls
        if call.method == "update_task_execution_state"
    ]
    assert reports[-1].metrics.values == {"numRecordsIn": 5.0}


def test_the_deployment_report_lists_tasks_with_their_metrics(world: World) -> None:
    world.request_slot()
    world.submit().metrics = {"numRecordsIn": 5.0}
    report = AllocatedSlotReport(JOB, (allocation(1),))
    answer = world.ask(world.gateway.heartbeat_from_job_master(JM_ID, report))
    assert answer.attempt_ids == (attempt(0),)
    assert answer.metrics[0].values == {"numRecordsIn": 5.0}


def test_a_rejected_task_manager_ends_and_says_why() -> None:
    world = World(register_task_executor=RegistrationRejected("version of python differs"))
    world.run_for(100)
    assert world.ends == ["the ResourceManager rejected it: version of python differs"]
    world.close()


def test_a_task_manager_that_nobody_registers_ends() -> None:
    world = World(register_task_executor=lambda *_: never())
    world.run_for(61_000)
    (reason,) = world.ends
    assert "taskmanager.registration.timeout" in reason
    world.close()


def test_a_task_manager_whose_slots_nobody_takes_ends_although_it_is_registered_again_and_again() -> (
    None
):
    world = World(send_slot_report=lambda *_: never())
    world.run_for(61_000)
    assert len(world.resource_manager.script.called("register_task_executor")) > 1
    (reason,) = world.ends
    assert "taskmanager.registration.timeout" in reason
    world.close()


def test_shutting_down_fails_tasks_and_says_goodbye(world: World) -> None:
    world.request_slot()
    task = world.submit()
    world.ask(world.gateway.shut_down("no longer needed"))
    world.run_for(4_000)
    assert task.state is ExecutionState.FAILED
    assert world.ends == ["no longer needed"]
    assert len(world.resource_manager.script.called("disconnect_task_manager")) == 1
    assert len(world.job_master.script.called("disconnect_task_manager")) == 1


DECOMMISSIONED = [(TM_1, "sold")]


def test_a_task_manager_that_is_to_end_tells_so_and_its_tasks_go_on_until_it_is_stopped(
    world: World,
) -> None:
    world.request_slot()
    task = world.submit()
    world.executor.decommission("sold")
    world.run_for(15_000)
    assert world.resource_manager.script.called("decommission_task_manager") == DECOMMISSIONED
    assert task.state is ExecutionState.RUNNING
    world.ask(world.gateway.shut_down("its jobs have left it"))
    world.run_for(4_000)
    assert (task.state, world.ends) == (ExecutionState.FAILED, ["its jobs have left it"])


def test_a_task_manager_that_nobody_stops_or_that_is_told_again_ends(world: World) -> None:
    world.executor.decommission("sold")
    world.run_for(19_900)
    assert world.ends == []
    world.run_for(200)
    assert world.ends == ["sold"]
    again = World()
    for _ in range(2):
        again.executor.decommission("sold")
    again.run_for(10)
    assert again.ends == ["sold"]
    again.close()


def test_a_task_manager_without_a_resource_manager_ends_at_once() -> None:
    world = World(register_task_executor=lambda *_: never())
    world.executor.decommission("sold")
    world.run_for(10)
    assert world.ends == ["sold"]
    world.close()


def test_the_next_resource_manager_is_told_that_a_task_manager_is_about_to_end(
    world: World,
) -> None:
    world.executor.decommission("sold")
    world.run_for(10)
    world.gateway.disconnect_resource_manager(RM_ID, "restart")
    world.run_for(5_000)
    assert len(world.resource_manager.script.called("send_slot_report")) == 2
    assert world.resource_manager.script.called("decommission_task_manager") == 2 * DECOMMISSIONED


def test_a_task_manager_that_cannot_start_or_stop_in_order_ends_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no way")

    with monkeypatch.context() as patch:
        patch.setattr(TaskExecutor, "on_start", broken)
        world = World()
        assert [end.rpartition(": ")[2] for end in world.ends] == ["no way"]
        world.close()
    world = World()
    monkeypatch.setattr(TaskExecutor, "on_stop", broken)
    world.executor.end("enough")
    world.run_for(10)
    assert world.ends == ["enough: OSError: no way"]
    world.close()
