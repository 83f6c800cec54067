"""A cluster with real threads, a part of which fails from within: it ends with the cause, and so do its jobs."""

from collections.abc import Callable
from typing import Final

import pytest

from headrace.cluster.entrypoint import Cluster, ClusterFailedError
from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.graph.job_graph import JobGraph
from headrace.rpc.endpoint import RpcEndpoint
from testkit.simulation.simulated_job import counting_job

RANDOM: Final = SeededRandom(12)
ENDPOINTS: Final[dict[str, Callable[[Cluster], RpcEndpoint]]] = {
    "resourcemanager": lambda cluster: cluster.resource_manager,
    "blobserver": lambda cluster: cluster.blob_server,
    "dispatcher": lambda cluster: cluster.dispatcher,
}


def long_job(name: str) -> JobGraph:
    return counting_job(
        JobId.generate(RANDOM), name, count=10**6, interval_ms=100, parallelism=1, settings={}
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
    with MiniCluster() as mini:
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


def test_a_host_that_cannot_be_opened_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, listener: object) -> None:
        raise OSError("no host")

    monkeypatch.setattr("headrace.cluster.minicluster._InProcessDriver.initialize", broken)
    with MiniCluster() as mini:
        assert mini.handle.is_shutting_down.wait(10)
        with pytest.raises(ClusterFailedError, match="OSError: no host"):
            mini.submit(long_job("nowhere"))
