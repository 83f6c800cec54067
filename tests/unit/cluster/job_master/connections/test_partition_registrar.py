"""Registration at the shuffle master: nothing is deployed without it, and what is external goes back to the master."""

import asyncio
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.connections.partition_registrar import (
    PartitionRegistrar,
    PartitionRegistration,
)
from headrace.cluster.job_master.results.partition_tracker import PartitionTracker
from headrace.cluster.shuffle_master import JobShuffleContext, ShuffleMaster
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    IntermediateDataSetId,
    JobId,
    ResourceId,
    ResultPartitionId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import (
    PartitionDescriptor,
    ProducerDescriptor,
    ResultPartitionDescriptor,
    ResultPartitionType,
    ShuffleDescriptor,
    TaskManagerLocation,
)
from headrace.gateways.errors import BlobStorageError
from headrace.gateways.messages import ErrorInfo
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.loopback import LoopbackNetwork
from testkit.scripted_gateways import end_processes
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.cluster_samples import JOB, TM_1, TM_2, attempt, vertex_id
from tests.unit.cluster.job_master.scheduler_world import USER_ERROR, Fixture
from tests.unit.network.exchange import partition_id

S = ExecutionState
PLACE = TaskManagerLocation(TM_1, "host", 1, None, "id")
BLOCKING = ResultPartitionType.BLOCKING


def external_job(restarts: int = 0) -> Fixture:
    job = Fixture(restarts=restarts, result_type=BLOCKING)
    job.services.is_external = True
    return job


def test_every_produced_partition_is_registered_with_its_producer_and_its_place() -> None:
    job = Fixture()
    job.scheduler.start()
    job.give_slots()
    producers = job.attempts[:2]
    assert [each.producer.attempt_id for each in job.services.registered] == producers
    assert [each.producer.location.resource_id for each in job.services.registered] == [TM_1, TM_2]
    assert {each.partition.partition_count for each in job.services.registered} == {2}


def test_nothing_is_deployed_before_the_master_has_answered() -> None:
    job = Fixture()
    job.services.answers_registrations = False
    job.scheduler.start()
    job.give_slots()
    assert job.services.submitted == [] and job.states == [S.SCHEDULED] * 4
    descriptors = [
        job.services.place(each.partition, each.producer) for each in job.services.registered
    ]
    job.scheduler.partitions_registered(descriptors, job.services.version)
    assert len(job.services.submitted) == 4


def test_producer_and_consumers_get_the_descriptor_of_the_master() -> None:
    job = external_job()
    job.run()
    produced = job.services.submitted[0][1].result_partitions[0].descriptor.shuffle
    read = job.services.submitted[2][1].input_gates[0].channels[0].shuffle
    assert produced is not None and produced == read and produced.is_external


def test_a_failed_registration_fails_the_attempt_before_anything_is_deployed() -> None:
    job = Fixture()
    job.services.answers_registrations = False
    job.scheduler.start()
    job.give_slots()
    job.scheduler.registration_failed(job.attempts[0], USER_ERROR)
    assert job.scheduler.status is JobStatus.FAILED
    assert job.services.submitted == [] and job.services.cancelled == []


def test_an_answer_that_comes_too_late_is_given_back_and_deploys_nothing() -> None:
    job = external_job()
    job.services.answers_registrations = False
    job.scheduler.start()
    job.give_slots()
    descriptors = [
        job.services.place(each.partition, each.producer) for each in job.services.registered
    ]
    job.scheduler.cancel()
    job.scheduler.partitions_registered(descriptors, job.services.version)
    assert job.services.submitted == []
    assert job.services.released_externally == [each.partition_id for each in descriptors]


def test_an_external_partition_is_released_once_by_the_master_and_not_on_its_task_manager() -> None:
    job = external_job()
    job.run()
    for each in job.attempts:
        job.report(each, S.FINISHED)
    assert [key.producer for key in job.services.released_externally] == job.attempts[:2]
    assert job.services.released == []


def test_an_external_partition_outlives_the_task_manager_of_its_producer() -> None:
    job = external_job()
    job.run()
    producers = job.attempts[:2]
    for each in producers:
        job.report(each, S.FINISHED)
    tracked = job.scheduler.partitions.tracked
    job.scheduler.partitions.lost(TM_1)
    assert job.scheduler.partitions.tracked == tracked and len(tracked) == 2


def test_a_restart_releases_external_partitions_of_the_old_attempts_once() -> None:
    job = external_job(restarts=1)
    job.run()
    old = job.attempts
    job.report(old[2], S.FAILED, USER_ERROR)
    for each in (old[0], old[1], old[3]):
        job.report(each, S.CANCELED)
    for _, action in job.services.later:
        action()
    assert sorted(key.producer for key in job.services.released_externally) == sorted(old[:2])


@given(
    externals=st.lists(st.booleans(), min_size=1, max_size=6),
    events=st.lists(st.tuples(st.sampled_from("cclr"), st.integers(0, 5)), max_size=20),
)
def test_each_partition_is_released_at_most_once_and_externally_only_if_it_is_external(
    externals: list[bool], events: list[tuple[str, int]]
) -> None:
    tracker = PartitionTracker(releases_during_job=True)
    for number, is_external in enumerate(externals):
        shuffle = ShuffleDescriptor(partition_id(number), PLACE, is_external)
        tracker.deployed(
            TM_1, [ResultPartitionDescriptor(partition_id(number), BLOCKING, 2, shuffle)]
        )
    released: list[tuple[ResourceId | None, int]] = []
    producers = {partition_id(each).producer.execution_vertex_id for each in range(6)}
    for position, (what, number) in enumerate(events):
        match what:
            case "c" if number < len(externals):
                consumer = ExecutionVertexId(vertex_id(9), position)
                to_release = tracker.consumed(consumer, [partition_id(number)])
            case "r":
                to_release = tracker.restarted(producers)
            case _:
                tracker.lost(TM_1)
                to_release = {}
        released += [(at, key.partition_number) for at, keys in to_release.items() for key in keys]
    assert all((place is None) is externals[number] for place, number in released)
    assert len({number for _, number in released}) == len(released)
    # What is external is never lost; it is either still there or was released.
    gone = {number for _, number in released}
    left = {key.partition_number for key in tracker.tracked}
    assert {n for n, is_external in enumerate(externals) if is_external} <= gone | left


# --- what the JobMaster says to the master, and how its answers are taken --------------------------


class ScriptedMaster:
    """Answers as it is told: a descriptor, an error, or never."""

    def __init__(self) -> None:
        self.answers: dict[ExecutionAttemptId, Exception | None] = {}
        self.released: list[ShuffleDescriptor] = []
        self.jobs: list[JobShuffleContext] = []
        self.unregistered: list[JobId] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def register_job(self, context: JobShuffleContext) -> None:
        self.jobs.append(context)

    def unregister_job(self, job_id: JobId) -> None:
        self.unregistered.append(job_id)

    async def register_partition_with_producer(
        self, job_id: JobId, partition: PartitionDescriptor, producer: ProducerDescriptor
    ) -> ShuffleDescriptor:
        if producer.attempt_id in self.answers:
            error = self.answers[producer.attempt_id]
            if error is None:
                await asyncio.sleep(10**6)
            else:
                raise error
        key = ResultPartitionId(
            partition.data_set_id, partition.partition_number, producer.attempt_id
        )
        return ShuffleDescriptor(key, producer.location, is_external=True)

    def release_partitions_externally(self, descriptors: Collection[ShuffleDescriptor]) -> None:
        self.released += descriptors


class RegistrarWorld:
    """A registrar on virtual time, and what it told its scheduler."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        self.network = LoopbackNetwork(clock, SeededRandom(1), loop=self.loop)
        service = self.network.create_service("master")
        endpoint = RpcEndpoint(service, "job")
        endpoint.start()
        self.master = ScriptedMaster()
        settings = Settings({"headrace.shuffle.partition-register-timeout": "5 s"})
        master: ShuffleMaster = self.master
        self.registrar = PartitionRegistrar(endpoint, master, JOB, settings, lambda error: None)
        self.registered: list[ShuffleDescriptor] = []
        self.failed: list[tuple[ExecutionAttemptId, ErrorInfo]] = []

    def register(self) -> None:
        location = TaskManagerLocation(TM_1, "host", 1, None, "id")
        registrations = [
            PartitionRegistration(
                PartitionDescriptor(IntermediateDataSetId(b"d" * 16), index, 2, BLOCKING, 3),
                ProducerDescriptor(attempt(index), location),
            )
            for index in range(2)
        ]
        self.registrar.register(
            registrations,
            1,
            lambda descriptors, version: self.registered.extend(descriptors),
            lambda attempt_id, error: self.failed.append((attempt_id, error)),
        )

    def close(self) -> None:
        end_processes(self.network, self.loop)


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    world = RegistrarWorld()
    yield world
    world.close()


def test_all_descriptors_come_in_the_order_of_the_partitions(world: RegistrarWorld) -> None:
    world.register()
    world.loop.run_for(10)
    assert [each.partition_id.producer for each in world.registered] == [attempt(0), attempt(1)]


def test_a_master_that_is_silent_fails_the_attempt_when_the_time_is_over(
    world: RegistrarWorld,
) -> None:
    world.master.answers[attempt(1)] = None
    world.register()
    world.loop.run_for(4_900)
    assert world.failed == []
    world.loop.run_for(200)
    assert [(each, error.class_name) for each, error in world.failed] == [
        (attempt(1), "PartitionRegistrationError")
    ]
    assert world.registered == []


def test_what_was_registered_beside_a_failure_is_given_back(world: RegistrarWorld) -> None:
    world.master.answers[attempt(0)] = BlobStorageError("disk", "full")
    world.register()
    world.loop.run_for(10)
    assert [each.partition_id.producer for each in world.master.released] == [attempt(1)]
    assert [each for each, _ in world.failed] == [attempt(0)]


def test_an_error_of_a_foreign_service_fails_the_attempt_and_not_the_job_manager(
    world: RegistrarWorld,
) -> None:
    world.master.answers[attempt(0)] = KeyError("oops")
    world.register()
    world.loop.run_for(10)
    assert "KeyError" in world.failed[0][1].text


def test_the_job_is_registered_and_unregistered(world: RegistrarWorld) -> None:
    world.registrar.start()
    world.registrar.close()
    assert [context.job_id for context in world.master.jobs] == [JOB]
    assert world.master.unregistered == [JOB]
