"""Application: what a driver finds when it leads, which jobs it goes on with, and which it refuses. Real stores."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from headrace.api.transformations import batch_type_of
from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.cluster.high_availability.application_store import ApplicationEnd
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.cluster.high_availability.job_result_store import JobResultEntry
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.options import DELETE_ON_COMMIT
from headrace.common import Types
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.datastream import StreamExecutionEnvironment
from headrace.functions.sink import DiscardingSink
from headrace.functions.specs.operator_specs import CollectSinkSpec
from headrace.gateways.dispatcher import DispatcherGateway, JobResult
from headrace.gateways.errors import NotLeadingError
from headrace.gateways.job_master import CollectedResults
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.spark.application import (
    EXIT_LEFT,
    Application,
    CollectingDispatcher,
    UnrecoverableJobError,
    refuse_unrecoverable,
)
from headrace.spark.executor import SparkExecutor
from testkit.waiting import wait_until

Lead = Callable[..., tuple[Application, HighAvailabilityServices]]


@pytest.fixture
def lead(tmp_path: Path) -> Iterator[Lead]:
    """Start a driver that leads once those before it have closed their services."""
    made: list[HighAvailabilityServices] = []
    settings = Settings(
        {
            "high-availability.type": "file",
            "high-availability.storageDir": str(tmp_path / "ha"),
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
        }
    )

    def start(*stood_by: int) -> tuple[Application, HighAvailabilityServices]:
        for services in made:
            services.close()
        kept = settings.with_values({DELETE_ON_COMMIT.key: "false"})
        services = HighAvailabilityServices(kept, SystemClock(), system_random())
        made.append(services)
        application = Application(settings, lambda _: None)
        for epoch in stood_by:
            application.stands_by(LeaderRecord(epoch, "another driver"))
        services.election.await_leadership()
        application.granted(services, lambda _: None)
        return application, services

    yield start
    for services in made:
        services.close()


def put(services: HighAvailabilityServices, job_id: JobId) -> None:
    graph = JobGraph(job_id, "numbers", (), (), {})
    services.job_graph_store.put(StoredJobGraph(graph, 0, services.election.epoch))


def end(services: HighAvailabilityServices, job_id: JobId) -> None:
    """Let a job have ended, of which nothing but its result is left."""
    entry = JobResultEntry(JobResult(job_id, "numbers", JobStatus.FINISHED, 5, {}))
    services.job_result_store.create_dirty(entry, services.election.epoch)
    services.job_result_store.mark_clean(entry)


def test_the_next_driver_goes_on_with_the_run_and_its_jobs_have_the_same_ids(lead: Lead) -> None:
    first, services = lead()
    put(services, first.run.job_id(1))
    second, services = lead()
    assert second.run == first.run
    assert second.run.job_id(2).hex() == first.run.run_id + "0000000200000000"
    # The Dispatcher that starts next goes on with it.
    assert services.job_result_store.recover().dirty == {}


def test_what_a_main_of_before_collected_is_given_up(lead: Lead) -> None:
    first, services = lead()
    collecting = first.run.job_id(1, services.election.epoch)
    put(services, collecting)
    put(services, first.run.job_id(2))
    _, services = lead()
    dirty = services.job_result_store.recover().dirty
    assert {job_id: one.result.status for job_id, one in dirty.items()} == {
        collecting: JobStatus.CANCELED
    }


def test_a_standby_of_the_leader_under_which_main_ended_only_cleans_up(lead: Lead) -> None:
    first, services = lead()
    running, ended = first.run.job_id(1), first.run.job_id(2)
    put(services, running)
    end(services, ended)
    services.application_store.end(first.run, ApplicationEnd(3, services.election.epoch))
    second, services = lead(services.election.epoch)
    assert second.run.end == ApplicationEnd(3, 1)
    found = services.job_result_store.recover()
    assert (set(found.dirty), set(found.clean)) == ({running}, {ended})
    services.close()
    _, services = lead(1)
    assert services.job_result_store.recover().clean == {}


def test_a_driver_that_is_started_after_the_end_begins_another_run(lead: Lead) -> None:
    first, services = lead()
    end(services, first.run.job_id(1))
    services.application_store.end(first.run, ApplicationEnd(0, services.election.epoch))
    second, services = lead()
    assert (second.run.number, second.run.end) == (2, None)
    assert second.run.run_id != first.run.run_id
    assert services.job_result_store.recover().clean == {}
    third, _ = lead()
    assert third.run == second.run


def test_the_first_end_of_a_run_counts(lead: Lead) -> None:
    first, services = lead()
    store = services.application_store
    assert store.end(first.run, ApplicationEnd(0, 1)) == ApplicationEnd(0, 1)
    assert store.end(first.run, ApplicationEnd(1, 2)) == ApplicationEnd(0, 1)
    assert store.begin(1) == first.run


def test_a_record_that_somebody_else_wrote_is_not_trusted(lead: Lead, tmp_path: Path) -> None:
    lead()
    (tmp_path / "ha" / "default" / "application" / "run-1").write_text("{}")
    with pytest.raises(RecordNotTrustedError, match="run-1"):
        lead()


def test_a_program_does_not_take_the_jobs_of_a_session_for_its_own(lead: Lead) -> None:
    first, services = lead()
    services.application_store.end(first.run, ApplicationEnd(0, 1))
    put(services, JobId.generate(system_random()))
    with pytest.raises(
        ConfigurationError, match=r"cluster-id.*does not belong to this application"
    ):
        lead()


def test_a_main_that_nobody_answered_has_not_ended(lead: Lead) -> None:
    application, services = lead()
    application.main_failed(NotLeadingError("its leadership is lost"))
    assert application.main_ended(1) == EXIT_LEFT
    newest = services.application_store.newest()
    assert newest is not None and newest.end is None
    assert "its leadership is lost; the application continues" in str(application.loss)


def test_a_main_collects_nothing_of_a_later_term_of_its_process(lead: Lead) -> None:
    first, services = lead()
    election = services.election
    answer = CollectedResults(0, (), False)

    class Answering:
        async def fetch_collected_results(self, *_: object) -> CollectedResults:
            return answer

    dispatcher = cast(DispatcherGateway, Answering())
    job = CollectingDispatcher(dispatcher, election, election.epoch)
    asked = first.run.job_id(1), OperatorId(b"o" * 16), 0, 1
    assert asyncio.run(job.fetch_collected_results(*asked)) is answer
    assert election.leadership is not None
    election.leadership.lose("its lease was not renewed")
    election.contend_again()
    wait_until(lambda: election.epoch == 2, 20, "its next term")
    with pytest.raises(NotLeadingError, match="while main collected"):
        asyncio.run(job.fetch_collected_results(*asked))


def test_a_program_without_a_command_line_does_not_get_high_availability() -> None:
    executor = SparkExecutor(Settings({"high-availability.type": "file"}))
    with pytest.raises(ConfigurationError, match="headrace run -D"):
        executor.submit(graph_of(collects=False, writes=True))
    executor.close()


def graph_of(*, collects: bool, writes: bool) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
    if writes:
        numbers.map(lambda n: n, output_type=Types.LONG()).sink_to(DiscardingSink())
    if collects:
        env.add_operator(
            CollectSinkSpec(), (numbers.transformation,), batch_type_of(numbers.transformation)
        )
    return generate_job_graph(env.get_stream_graph(), JobId.generate(system_random()), Settings({}))


def test_a_job_that_could_not_go_on_under_the_next_leader_is_refused() -> None:
    refuse_unrecoverable(graph_of(collects=True, writes=False))
    refuse_unrecoverable(graph_of(collects=False, writes=True))
    with pytest.raises(UnrecoverableJobError, match="would write a second time"):
        refuse_unrecoverable(graph_of(collects=True, writes=True))
    batch = graph_of(collects=False, writes=True)
    batch.settings["execution.runtime-mode"] = "BATCH"
    with pytest.raises(UnrecoverableJobError, match="BATCH mode has no checkpoints"):
        refuse_unrecoverable(batch)
