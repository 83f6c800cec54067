"""The whole cluster in one process, with real threads: jobs, their ends, and what clients are told."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.minicluster import MiniCluster
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.gateways.errors import (
    DuplicateJobSubmissionError,
    JobAlreadyEndedError,
    NothingCollectedError,
    UnknownJobError,
)
from headrace.graph.job_graph import JobGraph
from testkit.simulation.simulated_job import (
    counting_job,
    expected_output,
    forget_output,
    output_of,
)
from testkit.waiting import wait_until

RANDOM = SeededRandom(11)


@pytest.fixture(scope="module", params=["by reference", "serialized"])
def cluster(request: pytest.FixtureRequest) -> Iterator[MiniCluster]:
    settings = {"pekko.rpc.force-invocation-serialization": str(request.param != "by reference")}
    with MiniCluster(task_manager_count=2, settings=settings) as cluster:
        yield cluster


def job(name: str, count: int = 300, fail_at: int | None = None) -> JobGraph:
    forget_output(name)
    return counting_job(
        JobId.generate(RANDOM),
        name,
        count=count,
        interval_ms=1,
        parallelism=2,
        settings={},
        fail_at=fail_at,
    )


def test_a_job_runs_to_its_end_with_exact_output(cluster: MiniCluster) -> None:
    graph = job("runs")
    cluster.submit(graph)
    result = cluster.await_result(graph.job_id)
    assert result.status is JobStatus.FINISHED
    assert output_of("runs") == expected_output(300)


def test_slots_are_used_again_by_the_next_job(cluster: MiniCluster) -> None:
    for number in range(3):
        graph = job(f"again {number}", count=50)
        cluster.submit(graph)
        assert cluster.await_result(graph.job_id).status is JobStatus.FINISHED


def test_a_setting_that_cannot_be_read_refuses_the_job_and_harms_no_list(
    cluster: MiniCluster,
) -> None:
    settings = {"execution.checkpointing.mode": "SOMETIMES"}
    graph = msgspec.structs.replace(job("odd"), settings=settings)
    with pytest.raises(ConfigurationError, match="SOMETIMES"):
        cluster.submit(graph)
    listed = cluster.handle.call(cluster.handle.dispatcher.list_jobs())
    assert graph.job_id not in {each.job_id for each in listed}


def test_details_of_an_ended_job_keep_metrics_and_times(cluster: MiniCluster) -> None:
    graph = job("details")
    handle = cluster.submit(graph)
    cluster.await_result(graph.job_id)
    details = handle.call(handle.dispatcher.request_job_details(graph.job_id))
    assert details.vertices[0].metrics["numRecordsOut"] == 300
    assert list(details.status_timestamps_ms) == ["INITIALIZING", "CREATED", "RUNNING", "FINISHED"]


def test_a_user_error_names_cause_operator_file_and_line(cluster: MiniCluster) -> None:
    graph = job("fails", fail_at=20)
    cluster.submit(graph)
    result = cluster.await_result(graph.job_id)
    assert result.status is JobStatus.FAILED and result.failure is not None
    assert result.failure.text.startswith(
        "ValueError: number 20 has to fail (in operator 'Source: Paced'"
    )


def test_a_cancelled_job_ends_as_cancelled_and_may_be_cancelled_again(cluster: MiniCluster) -> None:
    graph = job("cancelled", count=10**6)
    handle = cluster.submit(graph)
    handle.call(handle.dispatcher.cancel_job(graph.job_id))
    assert cluster.await_result(graph.job_id).status is JobStatus.CANCELED
    handle.call(handle.dispatcher.cancel_job(graph.job_id))


class HeldCommit:
    """A coordinator whose commit waits until it is let go."""

    has_begun = threading.Event()
    may_end = threading.Event()

    def __init__(self, context: CoordinatorContext, payload: bytes) -> None:
        pass

    def start(self) -> None:
        pass

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        pass

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        pass

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        pass

    async def job_finishing(self) -> None:
        self.has_begun.set()
        await asyncio.get_running_loop().run_in_executor(None, self.may_end.wait, 10)

    async def close(self) -> None:
        pass


def test_a_cancel_that_comes_while_output_is_committed_does_not_call_it_cancelled() -> None:
    plain = job("committing", count=20)
    source, *others = plain.vertices
    head, *chained = source.operators
    watched = msgspec.structs.replace(head, coordinator="held")
    graph = msgspec.structs.replace(
        plain,
        vertices=(msgspec.structs.replace(source, operators=(watched, *chained)), *others),
    )
    with MiniCluster(
        task_manager_count=2, coordinator_factories={"held": HeldCommit}
    ) as committing:
        handle = committing.submit(graph)
        assert HeldCommit.has_begun.wait(20)
        handle.call(handle.dispatcher.cancel_job(graph.job_id))
        status = handle.call(handle.dispatcher.request_job_status(graph.job_id))
        HeldCommit.may_end.set()
        assert status is JobStatus.RUNNING
        assert committing.await_result(graph.job_id).status is JobStatus.FINISHED


def test_a_finished_job_cannot_be_cancelled_nor_submitted_again(cluster: MiniCluster) -> None:
    graph = job("once", count=20)
    handle = cluster.submit(graph)
    cluster.await_result(graph.job_id)
    with pytest.raises(JobAlreadyEndedError, match="FINISHED"):
        handle.call(handle.dispatcher.cancel_job(graph.job_id))
    with pytest.raises(DuplicateJobSubmissionError):
        cluster.submit(graph)


def test_an_unknown_job_is_an_error(cluster: MiniCluster) -> None:
    handle = cluster.handle
    with pytest.raises(UnknownJobError):
        handle.call(handle.dispatcher.request_job_status(JobId.generate(RANDOM)))


def test_an_operator_that_collects_nothing_is_an_error(cluster: MiniCluster) -> None:
    graph = job("nothing", count=20)
    handle = cluster.submit(graph)
    cluster.await_result(graph.job_id)
    operator_id = OperatorId.generate(RANDOM)
    with pytest.raises(NothingCollectedError):
        handle.call(handle.dispatcher.fetch_collected_results(graph.job_id, operator_id, 0, 1))


def test_jobs_are_listed_with_their_status(cluster: MiniCluster) -> None:
    graph = job("listed", count=20)
    handle = cluster.submit(graph)
    cluster.await_result(graph.job_id)
    overview = {each.job_id: each for each in handle.call(handle.dispatcher.list_jobs())}
    assert overview[graph.job_id].status is JobStatus.FINISHED


def test_closing_cancels_what_runs() -> None:
    threads_before = set(threading.enumerate())
    graph = job("closed under it", count=10**6)
    cluster = MiniCluster(task_manager_count=2)
    cluster.start()
    handle = cluster.submit(graph)
    while handle.call(handle.dispatcher.request_job_status(graph.job_id)) is JobStatus.CREATED:
        pass
    result = asyncio.run_coroutine_threadsafe(
        handle.dispatcher.request_job_result(graph.job_id), handle.loop
    )
    cluster.close()
    cluster.close()
    assert result.result(0).status is JobStatus.CANCELED
    # A thread reports its end a moment before it is gone.
    wait_until(lambda: set(threading.enumerate()) <= threads_before)
    with pytest.raises(AssertionError, match="the cluster is not running"):
        cluster.await_result(graph.job_id)


def test_a_client_may_ask_for_the_end_of_the_cluster() -> None:
    with MiniCluster() as cluster:
        handle = cluster.handle
        handle.call(handle.dispatcher.shut_down_cluster())
        assert handle.is_shutting_down.is_set()


def test_a_data_port_that_is_taken_fails_the_job_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with MiniCluster(task_manager_count=2, settings={"taskmanager.data.port": port}) as cluster:
            graph = job("no port")
            cluster.submit(graph)
            result = cluster.await_result(graph.job_id)
    assert result.status is JobStatus.FAILED
    assert result.failure is not None
    assert f"port {port} on 127.0.0.1 is in use" in result.failure.text
    assert "taskmanager.data.port" in result.failure.text


def test_a_cluster_that_leaves_its_host_fails_its_jobs_and_still_tells_why() -> None:
    with MiniCluster(task_manager_count=2) as cluster:
        graph = job("left", count=10**6)
        handle = cluster.submit(graph)
        handle.leave_host(HostError("the session was stopped"))
        result = cluster.await_result(graph.job_id)
        assert result.status is JobStatus.FAILED and result.failure is not None
        assert result.failure.text.startswith("the session was stopped")
        overview = handle.call(handle.dispatcher.request_job_status(graph.job_id))
        assert overview is JobStatus.FAILED
    handle.leave_host(HostError("too late"))
