"""A part of the control plane that fails from within, at a moment drawn from the seed.

Jobs end with the cause; but a ResourceManager or a Dispatcher is followed by another one, and no task notices.
"""

import random
from collections.abc import Callable
from typing import Final

import pytest

from headrace.cluster.cluster import Cluster, ClusterFailedError
from headrace.cluster.dispatcher.dispatcher_runner import DISPATCHER_REPLACEMENTS_MAX
from headrace.cluster.resource_manager.options import REPLACEMENTS_MAX
from headrace.cluster.task_executor.options import NUMBER_OF_TASK_SLOTS
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from headrace.gateways.errors import DuplicateJobSubmissionError, NotLeadingError
from headrace.graph.job_graph import JobGraph
from headrace.rpc.endpoint import RpcEndpoint
from testkit.simulation.lossy_network import LinkFaults
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import (
    counting_job,
    expected_output,
    forget_output,
    output_of,
)
from tests.simulation.failures import WAYS
from tests.simulation.scenario import SETTINGS
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    seed = metafunc.config.getoption("--seed")
    if "failing_seed" in metafunc.fixturenames:
        metafunc.parametrize("failing_seed", seeds(8) if seed is None else [seed])
    if "followed_seed" in metafunc.fixturenames:
        metafunc.parametrize("followed_seed", seeds(60, quick_step=20) if seed is None else [seed])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_job_ends_with_what_killed_a_part_of_the_control_plane(
    name: str, way: str, failing_seed: int
) -> None:
    drawn = random.Random(failing_seed)
    none = {REPLACEMENTS_MAX.key: "0", DISPATCHER_REPLACEMENTS_MAX.key: "0"}
    sim = SimulatedCluster(failing_seed, settings=none)
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


COUNT: Final = 400
CHECKPOINTS: Final = {
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.timeout": "4 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000",
}


def fail_leader(sim: SimulatedCluster, name: str, way: str) -> None:
    """Let the one that leads now fail; without effect on one that has just failed."""
    WAYS[way](ENDPOINTS[name](sim.cluster))


def submit(sim: SimulatedCluster, graph: JobGraph) -> None:
    """Submit a job, again where the Dispatcher fails before it has answered."""
    while True:
        try:
            sim.submit(graph)
        except NotLeadingError:
            sim.run_for(100)
        except DuplicateJobSubmissionError:
            return
        else:
            return


def result_of(sim: SimulatedCluster, job_id: JobId) -> JobResult:
    """Wait for the end of a job, again where the Dispatcher fails meanwhile."""
    while True:
        try:
            return sim.await_result(job_id)
        except NotLeadingError:
            sim.run_for(100)


@pytest.mark.parametrize("is_sound", [True, False], ids=["sound", "faulty"])
def test_leaders_follow_one_another_and_jobs_have_their_output_exactly_once(
    is_sound: bool, followed_seed: int
) -> None:
    """On a sound network no task restarts and no TaskManager more is asked for; else they may, and nothing is lost."""
    drawn = random.Random(followed_seed)
    note = failure_note(followed_seed)
    loss = 0.0 if is_sound else drawn.choice([0.0, 0.01, 0.05])
    sim = SimulatedCluster(
        followed_seed,
        settings=SETTINGS,
        slots_per_task_manager=drawn.choice([1, 2]),
        faults=LinkFaults(loss=loss, delay_min_ms=0.1, delay_max_ms=drawn.choice([1.0, 20.0])),
    )
    name = f"followed-{followed_seed}"
    forget_output(name)
    job_id, late_id = sim.new_job_id(), sim.new_job_id()
    parallelism = drawn.choice([1, 2, 3])
    graph = counting_job(
        job_id,
        name,
        count=COUNT,
        interval_ms=300,
        parallelism=parallelism,
        settings=RESTARTS | CHECKPOINTS,
    )
    for _ in range(drawn.choice([1, 1, 2, 3])):
        leader, way = drawn.choice(["resourcemanager", "dispatcher"]), drawn.choice(list(WAYS))
        sim.later(
            drawn.uniform(0, 12_000),
            lambda leader=leader, way=way: fail_leader(sim, leader, way),
        )
    if not is_sound:
        sim.later(drawn.uniform(0, 12_000), sim.kill_some_worker)
    submit(sim, graph)
    result = result_of(sim, job_id)
    assert result.status is JobStatus.FINISHED, note(str(result.failure))
    assert output_of(name) == expected_output(COUNT), note("the output is not exact")
    if is_sound:
        details = sim.loop.run_until(sim.dispatcher.request_job_details(job_id))
        assert details.restart_count == 0, note("tasks were restarted")
        needed = -(-parallelism // sim.settings.get_option(NUMBER_OF_TASK_SLOTS))
        assert len(sim.driver.workers) == needed, note("TaskManagers that are there were asked for")
    sim.faults.set_faults(LinkFaults(delay_min_ms=0.1, delay_max_ms=5))
    late_graph = counting_job(
        late_id, "late", count=50, interval_ms=10, parallelism=4, settings=RESTARTS
    )
    submit(sim, late_graph)
    late = result_of(sim, late_id)
    assert late.status is JobStatus.FINISHED, note(str(late.failure))
    assert sim.cluster.failure is None
    sim.run_for(20_000)
    assert sim.leaks() == [], note("something is left")
    sim.close()
    assert sim.driver.live_workers() == []
