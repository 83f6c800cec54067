"""Jobs that are held back: TaskManagers stay for them, and they are asked for what they hold in vain."""

from collections.abc import Iterator

import pytest

from headrace.core.ids import JobId, ResourceId
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.resource_manager import ResourceRequirement, ResourceRequirements
from testkit.scripted_gateways import ScriptedEndpoint, start_scripted
from tests.unit.cluster.cluster_samples import ANY_PROFILE
from tests.unit.cluster.resource_manager.resource_manager_world import JM_ID, World

A, B, C = (JobId(name * 16) for name in (b"a", b"b", b"c"))


class JobsWorld(World):
    """Several jobs, each with a scripted JobMaster; each TaskManager that is asked for comes, with one slot."""

    def __init__(self, worker_count_max: int) -> None:
        super().__init__({"heartbeat.interval": "1 h", "heartbeat.timeout": "2 h"})
        self.driver.max_worker_count = worker_count_max
        self._job_masters: dict[JobId, ScriptedEndpoint] = {}
        self._come_count = 0

    def start_job(self, job_id: JobId, slot_count: int, *, gives_back: bool) -> None:
        name = job_id.hex()
        job_master = start_scripted(
            self.job, name, JobMasterGateway, JM_ID, request_slots_back=gives_back
        )
        self._job_masters[job_id] = job_master
        registered = self.gateway.register_job_master(
            JM_ID, ResourceId(name), job_master.address, job_id
        )
        self.ask(registered)
        self.need(job_id, slot_count)

    def need(self, job_id: JobId, slot_count: int) -> None:
        requirements = ResourceRequirements(
            job_id,
            self._job_masters[job_id].address,
            (ResourceRequirement(ANY_PROFILE, slot_count),),
        )
        self.ask(self.gateway.declare_required_resources(JM_ID, requirements))
        self.let_workers_come()

    def let_workers_come(self) -> None:
        self.run_for(10)
        while self._come_count < len(self.driver.requested):
            self._come_count += 1
            self.register_with_slots(self.driver.requested[self._come_count - 1])

    def slot_count_of(self, job_id: JobId) -> int:
        requests = self.task_manager.script.called("request_slot")
        return sum(request.job_id == job_id for (request,) in requests)

    def asked_count(self, job_id: JobId) -> int:
        return len(self._job_masters[job_id].script.called("request_slots_back"))


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[JobsWorld]:
    world = JobsWorld(request.param)
    yield world
    world.close()


@pytest.mark.parametrize("world", [4], indirect=True)
def test_task_managers_whose_slots_a_job_waits_for_stay(
    world: JobsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.start_job(A, 2, gives_back=False)
    world.start_job(B, 3, gives_back=False)
    for _ in range(300):
        world.run_for(1_000)
        world.let_workers_come()
    assert (len(world.driver.requested), world.driver.released) == (4, [])
    told = [record.message for record in caplog.records if "are missing" in record.message]
    assert told == ["1 TaskManager(s) are missing: the host is full: make room"]
    assert "lacks 3 of 3 slot(s) and takes none" in world.explanation
    assert "can run at most 4 worker(s)" in world.explanation
    # The host grows, which nobody tells.
    world.driver.max_worker_count = 9
    world.run_for(1_100)
    world.let_workers_come()
    assert len(world.driver.requested) == 5, "no more than it lacks"
    assert world.slot_count_of(B) == 3


@pytest.mark.parametrize("world", [4], indirect=True)
def test_once_nobody_waits_for_their_slots_they_are_given_up_after_a_while(
    world: JobsWorld,
) -> None:
    world.start_job(A, 2, gives_back=False)
    world.start_job(B, 3, gives_back=False)
    world.run_for(60_000)
    world.need(B, 0)
    world.run_for(20_000)
    assert world.driver.released == [], "another job may come"
    world.run_for(40_000)
    assert len(world.driver.released) == 2


@pytest.mark.parametrize("world", [5], indirect=True)
def test_where_one_job_keeps_its_slots_another_one_is_asked_for_them(world: JobsWorld) -> None:
    world.start_job(B, 1, gives_back=False)
    world.start_job(C, 1, gives_back=True)
    world.start_job(A, 3, gives_back=False)
    for job_id, slot_count in ((A, 4), (B, 2), (C, 2)):
        world.need(job_id, slot_count)
    assert world.asked_count(A) == 1, "the last to come, for B"
    world.run_for(2_500)
    assert world.asked_count(C) > 0
    asked_count = world.asked_count(A)
    world.run_for(1_100)
    assert world.asked_count(A) > asked_count, "what runs may have ended meanwhile"
