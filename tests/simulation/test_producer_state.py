"""Consumers that come long before their producers: they ask what became of those, and the job ends as it must."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.lifecycle import JobStatus
from headrace.gateways.dispatcher import JobResult
from testkit.simulation.lossy_network import LinkFaults
from testkit.simulation.simulated_cluster import SimulatedCluster
from testkit.simulation.simulated_job import (
    counting_job,
    expected_output,
    forget_output,
    output_of,
)
from tests.simulation.scenario import SETTINGS

COUNT = 100
PATIENCE = {
    "pekko.ask.timeout": "20 s",
    "heartbeat.timeout": "60 s",
    # Requests come back after a moment, and are made again for a long time.
    "taskmanager.network.partition-request-timeout": "1 ms",
    "taskmanager.network.request-backoff.initial": "10 ms",
    "taskmanager.network.request-backoff.max": "5 s",
}
SLOW = LinkFaults(0.0, 0.0, 0.0, delay_min_ms=1.0, delay_max_ms=300.0)


@contextmanager
def job_of_late_producers(
    seed: int, fail_at: int | None = None
) -> Iterator[tuple[JobResult, SimulatedCluster]]:
    """Run a job in which the parts of a deployment arrive far apart."""
    sim = SimulatedCluster(seed, settings=SETTINGS | PATIENCE, faults=SLOW)
    name = f"producer-state-{seed}"
    forget_output(name)
    job_id = sim.new_job_id()
    try:
        job = counting_job(
            job_id, name, count=COUNT, interval_ms=10, parallelism=3, settings={}, fail_at=fail_at
        )
        sim.submit(job)
        yield sim.await_result(job_id), sim
        sim.faults.set_faults(LinkFaults(delay_min_ms=0.1, delay_max_ms=5))
        sim.run_for(12_000)
        assert sim.leaks() == []
    finally:
        sim.close()


# In these, some request comes before its partition.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5])
def test_a_producer_that_is_deployed_late_is_waited_for(seed: int) -> None:
    with job_of_late_producers(seed) as (result, sim):
        assert any("request_partition_state" in line for line in sim.trace.lines)
        assert result.status is JobStatus.FINISHED, result.failure
        assert output_of(f"producer-state-{seed}") == expected_output(COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_became_of_the_producer_is_the_cause_and_not_that_it_was_missed(seed: int) -> None:
    with job_of_late_producers(seed, fail_at=0) as (result, _):
        assert result.status is JobStatus.FAILED
        assert result.failure is not None
        assert result.failure.class_name == "UserCodeError"
