"""A part of the control plane that fails from within, at a moment drawn from the seed: its jobs end with the cause."""

import random
from collections.abc import Callable
from typing import Final

import pytest

from headrace.cluster.entrypoint import Cluster, ClusterFailedError
from headrace.core.lifecycle import JobStatus
from headrace.rpc.endpoint import RpcEndpoint
from testkit.simulation.simulated_cluster import SimulatedCluster
from testkit.simulation.simulated_job import counting_job
from tests.simulation.seeds import seeds

ENDPOINTS: Final[dict[str, Callable[[Cluster], RpcEndpoint]]] = {
    "resourcemanager": lambda cluster: cluster.resource_manager,
    "blobserver": lambda cluster: cluster.blob_server,
    "dispatcher": lambda cluster: cluster.dispatcher,
}
RESTARTS: Final = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


def bug() -> None:
    raise LookupError("a bug in the control plane")


async def failing_task() -> None:
    bug()


WAYS: Final[dict[str, Callable[[RpcEndpoint], object]]] = {
    "an action": lambda endpoint: endpoint.run_async(bug),
    "a timer": lambda endpoint: endpoint.schedule_run_async(1, bug),
    "a task": lambda endpoint: endpoint.spawn(failing_task(), "a task"),
    "its end": lambda endpoint: endpoint.close_async(),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "failing_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("failing_seed", seeds(8) if seed is None else [seed])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_job_ends_with_what_killed_a_part_of_the_control_plane(
    name: str, way: str, failing_seed: int
) -> None:
    drawn = random.Random(failing_seed)
    sim = SimulatedCluster(failing_seed)
    job_id = sim.new_job_id()
    graph = counting_job(
        job_id, "long", count=10**6, interval_ms=100, parallelism=2, settings=RESTARTS
    )
    sim.submit(graph)
    sim.run_for(drawn.uniform(0, 10_000))
    WAYS[way](ENDPOINTS[name](sim.cluster))
    if name == "dispatcher" and way == "its end":
        sim.run_for(30_000)
    else:
        result = sim.await_result(job_id, max_virtual_ms=60_000)
        assert result.status is JobStatus.FAILED and result.failure is not None
        assert f"{name}_0" in result.failure.text.split("\n", 1)[0]
        if way != "its end":
            assert "LookupError: a bug in the control plane" in result.failure.text
        with pytest.raises(ClusterFailedError, match=name):
            sim.submit(
                counting_job(
                    sim.new_job_id(), "late", count=1, interval_ms=1, parallelism=1, settings={}
                )
            )
    assert isinstance(sim.cluster.failure, ClusterFailedError)
    sim.close()
    assert sim.driver.live_workers() == []


def test_a_cluster_that_its_owner_closes_has_not_failed() -> None:
    sim = SimulatedCluster(1)
    sim.run_for(1_000)
    sim.close()
    assert sim.cluster.failure is None
