"""Answers of the Dispatcher about a job whose JobMaster ends while it is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from headrace.checkpoint.state_queries import StatesQuery
from headrace.cluster.dispatcher import job_leader, running_jobs
from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.dispatcher.job_archive import ArchivedJob, ArchiveLimits, JobArchive
from headrace.cluster.job_master.shared_services import JobManagerSharedServices
from headrace.cluster.leadership import EmbeddedLeaderElection
from headrace.cluster.shuffle_master import CreditBasedShuffleMaster
from headrace.core.barriers import SavepointFormatType
from headrace.core.clock import ManualClock
from headrace.core.errors import ProgramError
from headrace.core.ids import DispatcherId, JobId, JobMasterId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.blob_server import BlobServerGateway
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.errors import JobAlreadyEndedError, UnknownJobError
from headrace.gateways.job_master import JobGateway
from headrace.gateways.messages import Acknowledge, StateReadRequest
from headrace.graph.job_graph import JobGraph
from headrace.rpc.errors import RecipientUnreachableError
from headrace.rpc.loopback import LoopbackNetwork
from headrace.rpc.service import RpcService
from testkit.scripted_gateways import start_scripted
from testkit.simulation.simulated_job import counting_job
from testkit.simulation.virtual_loop import VirtualLoop
from tests.unit.cluster.dispatcher.ended_jobs import (
    OPERATOR,
    checkpoint_details,
    collected,
    ended,
)

JOB = JobId(b"j" * 16)
Ask = Callable[[DispatcherGateway], Awaitable[Any]]


async def _forever(*_: object) -> None:
    await asyncio.Future[None]()


class World:
    """A Dispatcher whose only job is led by a scripted JobMaster that answers no request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[EndedJob] = []
        clock = ManualClock()
        self.loop = VirtualLoop(clock)
        network = LoopbackNetwork(clock, SeededRandom(1), loop=self.loop)
        master, client = network.create_service("master"), network.create_service("client")
        blobs = start_scripted(master, "blobs", BlobServerGateway)
        monkeypatch.setattr(job_leader, "JobMaster", self._lead)
        blob_server = master.gateway(blobs.address, BlobServerGateway)
        jobs = running_jobs.RunningJobs(
            master,
            JobManagerSharedServices(
                leader_retrieval_address="headrace.loopback://master/rpc/leaders",
                coordinator_factories={},
                blob_server=blob_server,
                shuffle_master=CreditBasedShuffleMaster(),
            ),
            leader_election=EmbeddedLeaderElection(SeededRandom(1)),
            archive=JobArchive(ArchiveLimits.from_settings(master.settings), clock),
            on_job_ended=self.listen,
        )
        dispatcher_id = DispatcherId(b"d" * 16)
        dispatcher = Dispatcher(master, dispatcher_id, jobs, on_shut_down=lambda: None)
        dispatcher.start()
        self.gateway = client.gateway(
            dispatcher.address, DispatcherGateway, dispatcher.fencing_token
        )
        graph = counting_job(
            JOB, "job", count=1, interval_ms=1, parallelism=1, settings={}, fail_at=None
        )
        self.loop.run_until(self.gateway.submit_job(graph))

    def _lead(
        self,
        rpc_service: RpcService,
        job_master_id: JobMasterId,
        graph: JobGraph,
        _: JobManagerSharedServices,
        *,
        on_ended: Callable[[ArchivedJob], None],
        **_options: Any,
    ) -> Any:
        methods = ("cancel", "trigger_checkpoint", "trigger_savepoint", "stop_with_savepoint")
        reads = (
            "request_job_details",
            "request_job_plan",
            "request_job_configuration",
            "request_accumulators",
            "request_checkpoint_statistics",
            "request_checkpoint_details",
            "request_checkpoint_configuration",
            "fetch_collected_results",
            "request_operators",
            "request_operator",
            "request_latest_checkpoint",
            "read_state",
        )
        answers = dict.fromkeys((*methods, *reads), _forever)
        self.job_master: Any = start_scripted(
            rpc_service, "jm", JobGateway, job_master_id, **answers
        )
        self.job_master.status = JobStatus.RUNNING
        self.job_master.deletion_left = None
        self.on_ended = on_ended
        return self.job_master

    def listen(self, job: EndedJob) -> None:
        self.told.append(job)
        raise OSError("the listener fails")

    def end(self, status: JobStatus) -> None:
        self.on_ended(self.archived(status))

    @staticmethod
    def archived(status: JobStatus) -> ArchivedJob:
        return ended(JOB, collected(JOB), status, checkpoints=(checkpoint_details(7),))

    def ask(self, ask: Ask, then: Callable[[], object]) -> Any:
        """What a client is told who asked, and whose question the JobMaster had, when `then` happened."""

        async def asked() -> Any:
            answer = asyncio.ensure_future(ask(self.gateway))
            while not self.job_master.script.calls:
                await asyncio.sleep(0)
            then()
            return await answer

        return self.loop.run_until(asked())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.loop.close()


def test_the_host_is_told_all_that_is_answered_of_an_ended_job_and_may_fail(world: World) -> None:
    world.end(JobStatus.FAILED)
    (told,) = world.told

    async def asked() -> EndedJob:
        gateway = world.gateway
        return EndedJob(
            await gateway.request_job_details(JOB),
            await gateway.request_job_result(JOB),
            (await gateway.list_jobs())[0],
            await gateway.request_job_plan(JOB),
            await gateway.request_job_configuration(JOB),
            await gateway.request_checkpoint_statistics(JOB),
            await gateway.request_checkpoint_configuration(JOB),
            (checkpoint_details(7),),
        )

    answered = world.loop.run_until(asked())
    # Percentiles of nothing are NaN, which equals nothing.
    assert msgspec.json.encode(told) == msgspec.json.encode(answered)


def test_details_that_were_asked_for_at_the_end_come_from_the_archive(world: World) -> None:
    details = world.ask(
        lambda gateway: gateway.request_job_details(JOB), lambda: world.end(JobStatus.FAILED)
    )
    assert details.status is JobStatus.FAILED


@pytest.mark.parametrize(
    ("ask", "answer_of"),
    [
        (lambda gateway: gateway.request_job_plan(JOB), lambda job: job.plan),
        (lambda gateway: gateway.request_job_configuration(JOB), lambda job: job.configuration),
        (lambda gateway: gateway.request_accumulators(JOB), lambda job: job.result.accumulators),
        (
            lambda gateway: gateway.request_checkpoint_details(JOB, 7),
            lambda job: job.checkpoints[0],
        ),
        (lambda gateway: gateway.request_checkpoint_details(JOB, 8), lambda job: None),
        (
            lambda gateway: gateway.request_checkpoint_configuration(JOB),
            lambda job: job.checkpoint_configuration,
        ),
    ],
    ids=["plan", "configuration", "accumulators", "checkpoint", "no checkpoint", "checkpointing"],
)
def test_what_was_asked_for_at_the_end_comes_from_the_archive(
    world: World, ask: Ask, answer_of: Callable[[EndedJob], object]
) -> None:
    answer = world.ask(ask, lambda: world.end(JobStatus.FINISHED))
    assert answer == answer_of(world.archived(JobStatus.FINISHED).job)


def test_checkpoint_statistics_that_were_asked_for_at_the_end_come_from_the_archive(
    world: World,
) -> None:
    statistics = world.ask(
        lambda gateway: gateway.request_checkpoint_statistics(JOB),
        lambda: world.end(JobStatus.FINISHED),
    )
    assert [each.checkpoint_id for each in statistics.history] == [7]


def test_an_ended_job_is_listed_as_it_was_at_its_end(world: World) -> None:
    world.end(JobStatus.FINISHED)
    (listed,) = world.loop.run_until(world.gateway.list_jobs())
    assert listed == world.archived(JobStatus.FINISHED).job.overview


def test_what_a_job_collected_is_fetched_from_the_archive_if_it_ends_meanwhile(
    world: World,
) -> None:
    results = world.ask(
        lambda gateway: gateway.fetch_collected_results(JOB, OPERATOR, 0, 1),
        lambda: world.end(JobStatus.FINISHED),
    )
    assert results.offset == 0 and results.pieces == ()


def test_a_cancel_that_meets_the_end_of_a_cancelled_job_is_acknowledged(world: World) -> None:
    answer = world.ask(
        lambda gateway: gateway.cancel_job(JOB), lambda: world.end(JobStatus.CANCELED)
    )
    assert answer == Acknowledge()


@pytest.mark.parametrize(
    "ask",
    [
        lambda gateway: gateway.cancel_job(JOB),
        lambda gateway: gateway.trigger_checkpoint(JOB),
        lambda gateway: gateway.request_operators(JOB),
        lambda gateway: gateway.request_operator(JOB, "counter"),
        lambda gateway: gateway.request_latest_checkpoint(JOB),
        lambda gateway: gateway.read_state(JOB, StateReadRequest("counter", 0, StatesQuery())),
        lambda gateway: gateway.trigger_savepoint(JOB, "somewhere", SavepointFormatType.CANONICAL),
        lambda gateway: gateway.stop_with_savepoint(
            JOB, "somewhere", False, SavepointFormatType.CANONICAL
        ),
    ],
    ids=["cancel", "checkpoint", "operators", "operator", "latest", "state", "savepoint", "stop"],
)
def test_what_cannot_be_done_with_a_job_that_ends_meanwhile_says_how_it_ended(
    world: World, ask: Ask
) -> None:
    with pytest.raises(JobAlreadyEndedError, match="FINISHED"):
        world.ask(ask, lambda: world.end(JobStatus.FINISHED))


def test_details_of_a_job_whose_job_master_dies_tell_that_it_failed(world: World) -> None:
    details = world.ask(
        lambda gateway: gateway.request_job_details(JOB), lambda: world.job_master.close_async()
    )
    assert details.status is JobStatus.FAILED
    assert "the JobMaster was closed" in details.failure.text


def test_a_job_whose_job_master_died_is_listed_with_its_times(world: World) -> None:
    world.loop.run_for(50)
    world.ask(lambda gateway: gateway.request_job_plan(JOB), world.job_master.close_async)
    (listed,) = world.loop.run_until(world.gateway.list_jobs())
    assert listed.status is JobStatus.FAILED
    assert (listed.start_ms, listed.end_ms, listed.last_modification_ms) == (0, 50, 50)


def test_of_a_job_whose_job_master_dies_the_plan_is_still_known(world: World) -> None:
    plan = world.ask(lambda gateway: gateway.request_job_plan(JOB), world.job_master.close_async)
    assert (plan.job_id, len(plan.nodes)) == (JOB, 2)


def test_whom_the_job_master_itself_does_not_reach_is_not_taken_for_its_end(world: World) -> None:
    reason = "the endpoint has terminated"
    other = RecipientUnreachableError("somebody else", "explain", reason)
    world.job_master.script.answers["request_job_details"] = other
    with pytest.raises(RecipientUnreachableError, match="somebody else"):
        world.loop.run_until(world.gateway.request_job_details(JOB))


def test_a_cluster_without_spark_refuses_jobs_in_batch_mode(world: World) -> None:
    graph = counting_job(
        JobId(b"b" * 16),
        "bounded",
        count=1,
        interval_ms=1,
        parallelism=1,
        settings={"execution.runtime-mode": "BATCH"},
        fail_at=None,
    )
    with pytest.raises(ProgramError, match=r"job 'bounded' is in BATCH mode.* this cluster has no"):
        world.loop.run_until(world.gateway.submit_job(graph))
    with pytest.raises(UnknownJobError):
        world.loop.run_until(world.gateway.request_job_status(graph.job_id))
