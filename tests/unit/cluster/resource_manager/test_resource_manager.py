"""ResourceManager between a scripted TaskManager, a scripted JobMaster and a driver that notes what it is asked."""

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from headrace.cluster.resource_manager.blocklist import BLOCKED_HOST_PATIENCE_MS
from headrace.core.errors import ConfigurationError
from headrace.core.ids import AllocationId, JobMasterId, ResourceId, ResourceManagerId, SlotId
from headrace.core.resource_profile import ResourceProfile
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import StaleLeaderError
from headrace.gateways.messages import (
    RegistrationRejected,
    SlotReport,
    SlotStatus,
)
from headrace.gateways.resource_manager import (
    ResourceManagerGateway,
    TaskExecutorRegistration,
)
from headrace.rpc.errors import FencingTokenError
from tests.unit.cluster.cluster_samples import JOB, SLOT_PROFILE, empty_slots
from tests.unit.cluster.resource_manager.resource_manager_world import (
    JM_ID,
    MEMORY,
    RM_ID,
    VERSIONS,
    WORKER,
    World,
)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_declared_need_asks_the_host_for_workers(world: World) -> None:
    world.declare(2)
    assert world.driver.requested == [WORKER, ResourceId("test-tm-2")]


def test_a_registered_slot_is_requested_for_the_job_that_needs_it(world: World) -> None:
    world.declare(1)
    world.register_with_slots()
    ((request,),) = world.task_manager.script.called("request_slot")
    assert (request.job_id, request.job_master_id, request.resource_manager_id) == (
        JOB,
        JM_ID,
        RM_ID,
    )
    assert world.explanation == ""


def test_the_memory_that_a_task_manager_tells_of_stands_in_the_overview(world: World) -> None:
    world.declare(1)
    world.register_with_slots()
    (info,) = world.ask(world.gateway.request_resource_overview()).task_managers
    assert info.memory == MEMORY


def test_a_refused_slot_request_is_made_again_after_a_pause(world: World) -> None:
    world.declare(1)
    world.task_manager.script.answers["request_slot"] = StaleLeaderError("no")
    world.register_with_slots()
    assert len(world.task_manager.script.called("request_slot")) == 1
    world.run_for(150)
    assert len(world.task_manager.script.called("request_slot")) == 2


def test_a_worker_with_other_versions_is_rejected_and_the_waiting_job_hears_why(
    world: World,
) -> None:
    world.declare(1)
    answer = world.register(versions={**VERSIONS, "python": "3.12.1"})
    assert isinstance(answer, RegistrationRejected)
    assert answer.reason.startswith("version of python differs: 3.11.7 on the driver, 3.12.1")
    world.run_for(10)
    assert world.job_master.script.called("notify_not_enough_resources") == [(answer.reason, False)]
    assert world.driver.released == [WORKER]


def test_a_worker_that_nobody_asked_for_is_rejected(world: World) -> None:
    answer = world.register(name=ResourceId("stranger"))
    assert isinstance(answer, RegistrationRejected) and "not requested by" in answer.reason


def test_a_rerun_by_the_host_is_rejected(world: World) -> None:
    world.declare(1)
    answer = world.register(attempt=1)
    assert isinstance(answer, RegistrationRejected) and "reruns are refused" in answer.reason


def test_a_worker_that_was_given_up_is_rejected_when_it_comes_late(world: World) -> None:
    world.declare(1)
    world.declare(0)
    answer = world.register()
    assert isinstance(answer, RegistrationRejected) and "was released before" in answer.reason


def test_a_task_manager_that_does_not_answer_is_refused_with_both_addresses(world: World) -> None:
    world.declare(1)
    gateway = world.job.gateway(world.manager.address, ResourceManagerGateway, RM_ID)
    location = TaskManagerLocation(WORKER, "worker", 1, None, "host")
    address = "headrace.loopback://nowhere/rpc/taskmanager"
    answer = world.ask(
        gateway.register_task_executor(
            TaskExecutorRegistration(address, location, 1, SLOT_PROFILE, VERSIONS, 7)
        )
    )
    assert world.manager.address in answer.reason and address in answer.reason


def test_when_the_host_loses_a_worker_its_jobs_hear_it_and_another_is_asked_for(
    world: World,
) -> None:
    world.declare(1)
    world.register_with_slots()
    world.driver.listener.worker_terminated(WORKER, "killed with signal 9")
    world.run_for(10)
    assert world.job_master.script.called("disconnect_task_manager") == [
        (WORKER, "killed with signal 9")
    ]
    assert world.driver.requested == [WORKER, ResourceId("test-tm-2")]
    assert "killed with signal 9" in world.explanation


def test_a_failure_from_before_a_job_waited_is_not_named_as_its_cause(world: World) -> None:
    world.declare(1)
    world.driver.listener.worker_terminated(WORKER, "no memory")
    world.run_for(10)
    assert "no memory" in world.explanation
    world.declare(0)
    world.run_for(600_000)
    world.declare(1)
    assert "lacks 1 of 1 slot(s)" in world.explanation
    assert "no memory" not in world.explanation


def test_a_host_that_is_blocked_is_told_with_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    world = World({"headrace.blocklist.lost-task-managers": "1"})
    world.declare(1)
    world.register_with_slots()
    with caplog.at_level(logging.WARNING):
        world.driver.listener.worker_terminated(WORKER, "killed with signal 9")
        world.run_for(10)
    world.close()
    (told,) = [one for one in caplog.messages if "host worker has lost 1 TaskManagers" in one]
    assert "headrace.blocklist.lost-task-managers" in told


def test_slots_of_a_blocked_host_are_taken_only_where_no_other_host_has_any() -> None:
    world = World(
        {"headrace.blocklist.lost-task-managers": "1", "headrace.taskmanager.fixed-pool.size": "2"}
    )
    world.register_with_slots(host="bad")
    world.driver.listener.worker_terminated(WORKER, "killed with signal 9")
    world.run_for(10)
    _, good, bad = world.driver.requested
    world.register_with_slots(bad, "bad")
    world.register_with_slots(good, "good")
    asked: list[ResourceId] = []
    for count in (1, 2):
        world.declare(count)
        requests = world.task_manager.script.called("request_slot")
        asked = [request.slot_id.resource_id for (request,) in requests]
        assert len(asked) == count
    assert asked == [good, bad]
    world.close()


class BlockedHost:
    """A cluster with TaskManagers on demand whose host 'bad' is blocked; its job lacks `slot_count` slots."""

    def __init__(
        self,
        slot_count: int = 1,
        worker_count_max: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.world = World({"headrace.blocklist.lost-task-managers": "1", **settings})
        self.world.driver.max_worker_count = worker_count_max
        self.world.declare(slot_count)
        self._started = 0
        lost = self.start_next("bad")
        self.world.driver.listener.worker_terminated(lost, "killed with signal 9")
        self.world.run_for(10)

    def start_next(self, host: str) -> ResourceId:
        """Start the worker that was asked for next."""
        worker_id = self.world.driver.requested[self._started]
        self._started += 1
        self.world.register_with_slots(worker_id, host)
        return worker_id

    @property
    def used(self) -> list[ResourceId]:
        """Those that were asked for slots after the loss."""
        requests = self.world.task_manager.script.called("request_slot")
        return [request.slot_id.resource_id for (request,) in requests][1:]


def test_a_new_task_manager_on_a_blocked_host_is_passed_over_for_another_one_and_released(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = BlockedHost()
    bad = one.start_next("bad")
    assert one.used == []
    good = one.start_next("good")
    assert one.used == [good]
    one.world.run_for(45_000)
    assert one.world.driver.released == [WORKER, bad]
    told = [text for text in caplog.messages if "blocked host" in text]
    [text] = told
    assert text.startswith(f"TaskManager {bad} is on a blocked host (headrace.blocklist.lost-")
    one.world.close()


def test_a_blocked_host_serves_at_once_where_there_is_no_room_for_another_task_manager() -> None:
    one = BlockedHost(worker_count_max=1)
    bad = one.start_next("bad")
    assert one.used == [bad]
    one.world.close()


def test_a_blocked_host_serves_where_no_other_task_manager_comes_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Slots are matched at each heartbeat too.
    one = BlockedHost(settings={"heartbeat.interval": "2 min", "heartbeat.timeout": "5 min"})
    bad = one.start_next("bad")
    one.world.run_for(BLOCKED_HOST_PATIENCE_MS - 100)
    assert one.used == []
    one.world.run_for(200)
    assert one.used == [bad]
    [text] = [text for text in caplog.messages if text.startswith("job ")]
    assert text.startswith(
        f"job {JOB.hex()[:8]} uses slots of a blocked host, because no TaskManager"
    )
    one.world.close()


@pytest.mark.parametrize(("slot_count", "passed_over_max"), [(1, 3), (4, 4)])
def test_no_more_task_managers_are_passed_over_than_a_job_needs(
    slot_count: int, passed_over_max: int
) -> None:
    one = BlockedHost(slot_count)
    for _ in range(passed_over_max):
        one.start_next("bad")
        assert one.used == []
    one.start_next("bad")
    assert len(one.used) == slot_count
    one.world.close()


def test_a_silent_task_manager_is_lost_after_the_heartbeat_timeout(world: World) -> None:
    world.declare(1)
    world.register_with_slots()
    world.network.kill("worker")
    gateway = world.job.gateway(world.manager.address, ResourceManagerGateway, RM_ID)
    world.run_for(60_000)
    assert world.ask(gateway.request_resource_overview()).task_managers == ()
    assert world.driver.released == [WORKER]


def test_an_idle_task_manager_is_stopped_by_rpc_and_then_released(world: World) -> None:
    world.declare(1)
    world.register_with_slots()
    ((request,),) = world.task_manager.script.called("request_slot")
    world.declare(0)
    answer = world.task_manager.script.called("heartbeat_from_resource_manager")
    assert answer, "heartbeats tell of free slots as well"
    world.run_for(45_000)
    assert len(world.task_manager.script.called("shut_down")) == 1
    assert world.driver.released == [WORKER]
    assert request.allocation_id is not None


def test_declarations_of_an_older_leader_are_refused(world: World) -> None:
    with pytest.raises(StaleLeaderError):
        world.declare(1, job_master_id=JobMasterId(b"x" * 16))


def test_the_goodbye_of_an_older_leader_leaves_what_the_job_needs(world: World) -> None:
    world.declare(1)
    world.gateway.disconnect_job_master(JOB, JobMasterId(b"x" * 16), "suspended")
    world.run_for(10)
    assert world.driver.released == []
    world.gateway.disconnect_job_master(JOB, JM_ID, "the job is over")
    world.run_for(10)
    assert world.driver.released == [WORKER]


def test_calls_with_another_fencing_token_reach_no_handler(world: World) -> None:
    gateway = world.worker.gateway(
        world.manager.address, ResourceManagerGateway, ResourceManagerId(b"x" * 16)
    )
    with pytest.raises(FencingTokenError):
        world.ask(gateway.request_resource_overview())


def test_a_fixed_pool_is_asked_for_at_the_start() -> None:
    world = World({"headrace.taskmanager.fixed-pool.size": "2"})
    world.run_for(10)
    assert len(world.driver.requested) == 2
    world.close()


def test_a_fixed_pool_with_more_slots_than_are_allowed_is_refused() -> None:
    settings = {"headrace.taskmanager.fixed-pool.size": "3", "slotmanager.number-of-slots.max": "2"}
    with pytest.raises(ConfigurationError, match=r"slotmanager\.number-of-slots\.max"):
        World(settings)


def test_task_managers_are_asked_for_with_the_cores_of_the_settings() -> None:
    one = {"headrace.taskmanager.fixed-pool.size": "1"}
    for settings, profile in (
        (one, ResourceProfile()),
        (one | {"taskmanager.cpu.cores": "2.5"}, ResourceProfile(cpu_cores=2.5)),
    ):
        world = World(settings)
        world.run_for(10)
        assert world.driver.profiles == [profile]
        world.close()


def test_closing_stops_task_managers_then_the_host_and_asks_for_nobody(world: World) -> None:
    world.declare(1)
    world.register_with_slots()
    world.ask(world.manager.shut_down())
    assert world.task_manager.script.called("shut_down") == [("the cluster is shutting down",)]
    assert world.driver.is_closed
    assert world.driver.requested == [WORKER]


def test_slots_that_are_freed_by_a_task_manager_that_was_let_go_are_no_failed_call(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare(1)
    registered = world.register_with_slots()
    world.driver.listener.worker_terminated(WORKER, "released")
    world.run_for(10)
    slot = SlotId(WORKER, 0)
    world.gateway.notify_slot_available(registered.instance_id, slot, AllocationId(bytes(16)))
    world.run_for(10)
    assert [one.message for one in caplog.records if "notify_slot_available" in one.message] == []
    with pytest.raises(StaleLeaderError, match="is not registered"):
        report = SlotReport(empty_slots(WORKER, 1))
        world.ask(world.gateway.send_slot_report(WORKER, registered.instance_id, report))


def test_the_end_of_the_host_is_told(world: World) -> None:
    error = OSError("the JVM is gone")
    world.driver.listener.host_failed(error)
    world.run_for(10)
    assert world.failures == [error]


@pytest.mark.parametrize("needed_count", [1, 2])
def test_a_worker_that_cannot_start_is_told_to_jobs_that_lack_slots_and_others_keep_theirs(
    world: World, needed_count: int
) -> None:
    world.declare(1)
    world.register_with_slots()
    world.declare(needed_count)
    world.driver.listener.interpreter_failed("", "port 50100 is in use", recoverable=False)
    world.run_for(10)
    told = world.job_master.script.called("notify_not_enough_resources")
    assert told == [("port 50100 is in use", True)] * (needed_count - 1)
    assert world.failures == []
    assert world.job_master.script.called("disconnect_task_manager") == []


def test_workers_are_asked_for_as_soon_as_a_host_that_was_lost_has_room_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.declare(2)
    lost = list(world.driver.requested)
    assert len(lost) == 2
    world.driver.max_worker_count = 0
    for worker_id in lost:
        world.driver.listener.worker_terminated(worker_id, "its executor was killed")
    world.run_for(60_000)
    assert world.driver.requested == lost
    told = [record.message for record in caplog.records if "are missing" in record.message]
    assert told == [
        "2 TaskManager(s) are missing: the host is full: make room "
        f"(last failure: {lost[-1]}: its executor was killed)"
    ]
    world.driver.max_worker_count = 1
    world.run_for(1_100)
    assert len(world.driver.requested) == 3
    world.driver.max_worker_count = 3
    world.run_for(1_100)
    assert len(world.driver.requested) == 4


HUGE = ResourceProfile(8.0, 1 << 20)


def test_a_job_is_told_once_that_no_task_manager_can_have_what_it_asks_for(world: World) -> None:
    world.driver.refusal = "buy a larger host"
    world.declare(1, profile=HUGE)
    world.run_for(1_000)
    told = (
        HUGE,
        "a TaskManager has 1 core(s); buy a larger host, or request less",
    )
    assert world.job_master.script.called("notify_impossible_profile") == [told]
    assert world.driver.requested == []
    world.declare(1, profile=HUGE)
    assert len(world.job_master.script.called("notify_impossible_profile")) == 2, "asked again"


def test_a_host_that_can_is_asked_for_a_task_manager_of_that_size(world: World) -> None:
    world.declare(1, profile=HUGE)
    assert (world.driver.requested, world.driver.profiles) == ([WORKER], [HUGE])
    # What it registers with is less: nobody asks for another one, which would be the same.
    world.register_with_slots()
    assert world.driver.requested == [WORKER]
    ((profile, explanation),) = world.job_master.script.called("notify_impossible_profile")
    assert profile == HUGE
    assert "the host gave 1 core(s) to one that was made for it" in explanation


def test_what_a_task_manager_has_is_known_once_one_has_told(world: World) -> None:
    world.driver.refusal = "set its size"
    large = ResourceProfile(1.0, 2 << 30)
    world.declare(1, profile=large)
    assert world.driver.profiles != [large], "no settings say how much memory there is"
    assert world.job_master.script.called("notify_impossible_profile") == []
    world.register_with_slots()
    ((profile, explanation),) = world.job_master.script.called("notify_impossible_profile")
    assert (profile, explanation) == (
        large,
        "a TaskManager has 1024 mb of task heap memory; set its size, or request less",
    )


@pytest.mark.parametrize("by", ["host", "itself"])
def test_a_decommissioned_task_manager_is_told_to_its_jobs_replaced_and_stopped_once_they_left(
    world: World, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    caplog.set_level(logging.INFO, logger="headrace")
    world.declare(1)
    registered = world.register_with_slots()
    ((request,),) = world.task_manager.script.called("request_slot")
    for _ in range(2):
        if by == "host":
            world.driver.listener.worker_decommissioned(WORKER, "sold")
        else:
            world.gateway.decommission_task_manager(WORKER, "sold")
        world.run_for(10)
    assert world.job_master.script.called("notify_task_manager_decommissioned") == [
        (WORKER, "sold", 20_000)
    ]
    assert world.driver.requested == [WORKER, ResourceId("test-tm-2")]
    (info,) = world.ask(world.gateway.request_resource_overview()).task_managers
    assert (info.decommissioned, info.free_slot_count) == ("decommissioned: sold", 0)
    assert world.task_manager.script.called("shut_down") == []
    world.gateway.notify_slot_available(
        registered.instance_id, SlotId(WORKER, 0), request.allocation_id
    )
    world.run_for(10)
    assert world.task_manager.script.called("shut_down") == [("decommissioned: sold",)]
    assert world.driver.released == [WORKER]
    assert world.ask(world.gateway.request_resource_overview()).task_managers == ()
    assert sum("is decommissioned" in record.message for record in caplog.records) == 1


def test_a_job_master_that_registers_later_is_told_of_its_task_managers_that_leave(
    world: World,
) -> None:
    world.declare(1)
    world.register_with_slots()
    ((request,),) = world.task_manager.script.called("request_slot")
    world.follow()
    held = SlotStatus(SlotId(WORKER, 0), SLOT_PROFILE, JOB, request.allocation_id)
    world.register_with_slots(slots=(held,))
    world.driver.listener.worker_decommissioned(WORKER, "sold")
    world.run_for(10)
    assert world.job_master.script.called("notify_task_manager_decommissioned") == []
    world.declare(1)
    assert world.job_master.script.called("notify_task_manager_decommissioned") == [
        (WORKER, "sold", 20_000)
    ]
