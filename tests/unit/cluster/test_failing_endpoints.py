"""A cluster with real threads, a part of which fails from within.

It ends with the cause, and so do its jobs; but a ResourceManager or a Dispatcher is followed by another one, and no
task notices.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

import pytest

from headrace.cluster.cluster import Cluster, ClusterFailedError
from headrace.cluster.dispatcher.dispatcher_runner import DISPATCHER_REPLACEMENTS_MAX
from headrace.cluster.minicluster import MiniCluster
from headrace.cluster.resource_manager.options import REPLACEMENTS_MAX
from headrace.core.config import ConfigOption
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId, ResourceId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import DuplicateJobSubmissionError, NotLeadingError
from headrace.gateways.job_master import JobDetails
from headrace.gateways.resource_manager import ResourceManagerGateway, ResourceOverview
from headrace.graph.job_graph import JobGraph
from headrace.rpc.endpoint import RpcEndpoint
from testkit.simulation.simulated_job import counting_job
from testkit.waiting import wait_until

RANDOM: Final = SeededRandom(12)
ENDPOINTS: Final[dict[str, Callable[[Cluster], RpcEndpoint]]] = {
    "resourcemanager": lambda cluster: cluster.resource_manager,
    "blobserver": lambda cluster: cluster.blob_server,
    "dispatcher": lambda cluster: cluster.dispatcher,
    "leaders": lambda cluster: cluster.leaders,
}
"""All endpoints of the control plane, but for JobMasters."""


def long_job(name: str, count: int = 10**6, parallelism: int = 1) -> JobGraph:
    return counting_job(
        JobId.generate(RANDOM),
        name,
        count=count,
        interval_ms=100,
        parallelism=parallelism,
        settings={},
    )


def raise_in(endpoint: RpcEndpoint, error: BaseException) -> None:
    def bug() -> None:
        raise error

    endpoint.run_async(bug)


@pytest.mark.parametrize("name", ENDPOINTS)
@pytest.mark.parametrize("error", [LookupError("a bug"), MemoryError(), SystemExit(3)], ids=repr)
def test_the_job_fails_the_cluster_says_so_and_everything_ends(
    name: str, error: BaseException
) -> None:
    graph = long_job("endless")
    settings = {REPLACEMENTS_MAX.key: "0", DISPATCHER_REPLACEMENTS_MAX.key: "0"}
    with MiniCluster(settings=settings) as mini:
        cluster = mini.handle._cluster  # pyright: ignore[reportPrivateUsage]
        handle = mini.submit(graph)
        raise_in(ENDPOINTS[name](cluster), error)
        result = mini.await_result(graph.job_id, 30)
        assert result.status is JobStatus.FAILED and result.failure is not None
        assert type(error).__name__ in result.failure.text.split("\n", 1)[0]
        assert handle.is_shutting_down.wait(10)
        assert isinstance(handle.failure, ClusterFailedError)
        with pytest.raises(ClusterFailedError, match=type(error).__name__):
            mini.submit(long_job("late"))


def test_a_job_whose_master_fails_ends_with_the_cause() -> None:
    graph = long_job("endless")
    with MiniCluster() as mini:
        dispatcher = mini.handle._cluster.dispatcher  # pyright: ignore[reportPrivateUsage]
        mini.submit(graph)
        [job] = dispatcher._jobs  # pyright: ignore[reportPrivateUsage]
        raise_in(job.job_master, LookupError("a bug"))
        result = mini.await_result(graph.job_id, 30)
        assert result.status is JobStatus.FAILED and result.failure is not None
        assert "LookupError: a bug" in result.failure.text


def test_a_host_that_cannot_be_opened_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, listener: object) -> None:
        raise OSError("no host")

    monkeypatch.setattr("headrace.cluster.minicluster._InProcessDriver.initialize", broken)
    with MiniCluster() as mini:
        assert mini.handle.is_shutting_down.wait(10)
        with pytest.raises(ClusterFailedError, match="OSError: no host"):
            mini.submit(long_job("nowhere"))


def resources(mini: MiniCluster) -> ResourceOverview:
    return mini.handle.call(mini.handle.resource_manager.request_resource_overview(), 10)


def slots_of(mini: MiniCluster, graph: JobGraph) -> dict[ResourceId, int]:
    """Return the TaskManagers that have registered, with the number of their slots that belong to the job."""
    return {
        each.resource_id: sum(slot.job_id == graph.job_id for slot in each.slots)
        for each in resources(mini).task_managers
    }


def details_of(mini: MiniCluster, graph: JobGraph) -> JobDetails:
    return mini.handle.call(mini.handle.dispatcher.request_job_details(graph.job_id), 10)


def emitted_count(mini: MiniCluster, graph: JobGraph) -> float:
    return details_of(mini, graph).vertices[0].metrics.get("numRecordsOut", 0)


def leader(mini: MiniCluster, name: str) -> RpcEndpoint:
    return ENDPOINTS[name](mini.handle._cluster)  # pyright: ignore[reportPrivateUsage]


def await_next(mini: MiniCluster, name: str, before: RpcEndpoint) -> None:
    wait_until(lambda: leader(mini, name) is not before, 10, f"another {name} follows")


@pytest.mark.parametrize("way", ["a bug", "its end"])
def test_another_resource_manager_follows_and_takes_over_task_managers_slots_and_jobs(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = long_job("goes on", parallelism=2)
    with MiniCluster(task_manager_count=3) as mini:
        mini.submit(graph)
        wait_until(lambda: emitted_count(mini, graph) > 0, 30, "the job runs")
        before = slots_of(mini, graph)
        assert sorted(before.values()) == [1, 1]
        failing = mini.handle._cluster.resource_manager  # pyright: ignore[reportPrivateUsage]
        if way == "a bug":
            raise_in(failing, LookupError("a bug"))
        else:
            failing.close_async()
        await_next(mini, "resourcemanager", failing)
        wait_until(lambda: slots_of(mini, graph) == before, 10, "all TaskManagers are back")
        so_far = emitted_count(mini, graph)
        late = long_job("late", count=20)
        mini.submit(late)
        assert mini.await_result(late.job_id, 30).status is JobStatus.FINISHED
        wait_until(lambda: emitted_count(mini, graph) > so_far, 30, "records go on")
        details = details_of(mini, graph)
        assert details.restart_count == 0 and details.status is JobStatus.RUNNING
        attempts = {one.attempt_number for vertex in details.vertices for one in vertex.subtasks}
        assert attempts == {0}
        after = slots_of(mini, graph)
        assert {key: after[key] for key in before} == before and len(after) == 3
        assert mini.handle.failure is None and not mini.handle.is_shutting_down.is_set()
    (told,) = [each for each in caplog.messages if "another one replaces it" in each]
    assert "resourcemanager_0" in told and REPLACEMENTS_MAX.key in told
    assert ("LookupError: a bug" if way == "a bug" else "it was closed") in told


@pytest.mark.parametrize(
    ("name", "option"),
    [("resourcemanager", REPLACEMENTS_MAX), ("dispatcher", DISPATCHER_REPLACEMENTS_MAX)],
)
def test_a_leader_that_fails_again_and_again_ends_the_cluster(
    name: str, option: ConfigOption[int]
) -> None:
    graph = long_job("endless")
    with MiniCluster(settings={option.key: "2"}) as mini:
        mini.submit(graph)
        for number in range(3):
            failing = leader(mini, name)
            raise_in(failing, LookupError(f"bug {number}"))
            if number < 2:
                await_next(mini, name, failing)
        result = mini.await_result(graph.job_id, 30)
        assert result.status is JobStatus.FAILED and result.failure is not None
        assert "LookupError: bug 2 (in endpoint" in result.failure.text
        assert isinstance(mini.handle.failure, ClusterFailedError)


def test_a_resource_manager_that_was_followed_has_no_say_any_more() -> None:
    with MiniCluster() as mini:
        failing = mini.handle._cluster.resource_manager  # pyright: ignore[reportPrivateUsage]
        address, token = failing.address, failing.fencing_token
        raise_in(failing, LookupError("a bug"))
        await_next(mini, "resourcemanager", failing)
        leads = mini.handle._cluster.resource_manager  # pyright: ignore[reportPrivateUsage]
        assert leads.address != address and leads.fencing_token != token
        stale = leads.rpc_service.gateway(leads.address, ResourceManagerGateway, token)
        with pytest.raises(HeadraceError, match="fencing token"):
            mini.handle.call(stale.request_resource_overview(), 10)
        assert resources(mini).task_managers == ()


@pytest.mark.parametrize("way", ["a bug", "its end"])
def test_another_dispatcher_follows_for_the_same_jobs(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph, short = long_job("goes on"), long_job("ends meanwhile", count=40)
    with MiniCluster(task_manager_count=2) as mini:
        mini.submit(graph)
        mini.submit(short)
        wait_until(lambda: emitted_count(mini, short) > 0, 30, "both jobs run")
        failing = mini.handle._cluster.dispatcher  # pyright: ignore[reportPrivateUsage]
        if way == "a bug":
            raise_in(failing, LookupError("a bug"))
        else:
            failing.close_async()
        await_next(mini, "dispatcher", failing)
        # Submitted again, as clients do whose answer was lost.
        with pytest.raises(DuplicateJobSubmissionError):
            mini.submit(graph)
        assert mini.await_result(short.job_id, 30).status is JobStatus.FINISHED
        so_far = emitted_count(mini, graph)
        wait_until(lambda: emitted_count(mini, graph) > so_far, 30, "records go on")
        details = details_of(mini, graph)
        assert details.restart_count == 0 and details.status is JobStatus.RUNNING
        attempts = {one.attempt_number for vertex in details.vertices for one in vertex.subtasks}
        assert attempts == {0}
        mini.handle.call(mini.handle.dispatcher.cancel_job(graph.job_id), 10)
        assert mini.await_result(graph.job_id, 30).status is JobStatus.CANCELED
        listed = mini.handle.call(mini.handle.dispatcher.list_jobs(), 10)
        assert {one.job_id for one in listed} == {graph.job_id, short.job_id}
        assert mini.handle.failure is None and not mini.handle.is_shutting_down.is_set()
    (told,) = [each for each in caplog.messages if "another one replaces it" in each]
    assert "dispatcher_0" in told and DISPATCHER_REPLACEMENTS_MAX.key in told
    assert ("LookupError: a bug" if way == "a bug" else "it was closed") in told


def test_a_submission_under_way_outlives_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = long_job("stored")
    with MiniCluster() as mini:
        cluster = mini.handle._cluster  # pyright: ignore[reportPrivateUsage]
        jobs, failing = cluster._dispatchers.jobs, cluster.dispatcher  # pyright: ignore[reportPrivateUsage]
        start, begun, may_go_on = jobs._submit, threading.Event(), asyncio.Event()  # pyright: ignore[reportPrivateUsage]

        async def slow(graph: JobGraph, submitted_ms: int) -> None:
            begun.set()
            await may_go_on.wait()
            await start(graph, submitted_ms)

        monkeypatch.setattr(jobs, "_submit", slow)
        asked = asyncio.run_coroutine_threadsafe(
            mini.handle.dispatcher.submit_job(graph), mini.handle.loop
        )
        assert begun.wait(10)
        raise_in(failing, LookupError("a bug"))
        with pytest.raises(NotLeadingError, match="either another one follows"):
            asked.result(10)
        await_next(mini, "dispatcher", failing)
        mini.handle.loop.call_soon_threadsafe(may_go_on.set)
        wait_until(lambda: emitted_count(mini, graph) > 0, 30, "the job runs")
