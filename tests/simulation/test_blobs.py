"""A job whose functions travel as blobs, on a network that loses messages and on workers that die."""

from pathlib import Path

import pytest

from headrace.cluster.blob import options
from headrace.core.lifecycle import JobStatus
from testkit.simulation.lossy_network import LinkFaults
from testkit.simulation.simulated_cluster import MASTER, SimulatedCluster, failure_note
from testkit.simulation.simulated_job import (
    counting_job,
    expected_output,
    forget_output,
    output_of,
)
from tests.simulation.scenario import COUNT, INTERVAL_MS, RESTARTS, SETTINGS
from tests.simulation.seeds import seeds

OFFLOADED = {**SETTINGS, "blob.offload.minsize": "1", "blob.service.cleanup.interval": "30 s"}
CHUNK_BYTES = 100


def files(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8))
def test_the_job_is_exact_and_its_blobs_end_with_it(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "_CHUNK_SIZE_MAX", CHUNK_BYTES)
    note, name = failure_note(seed), f"blobs-{seed}"
    forget_output(name)
    sim = SimulatedCluster(
        seed,
        settings={**OFFLOADED, "blob.storage.directory": str(tmp_path)},
        faults=LinkFaults(loss=0.02, duplication=0.02, delay_min_ms=0.1, delay_max_ms=20),
    )
    sim.later(3_000 + 200 * seed, sim.kill_some_worker)
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(
            job_id, name, count=COUNT, interval_ms=INTERVAL_MS, parallelism=2, settings=RESTARTS
        )
    )
    assert files(tmp_path), note("nothing was offloaded")
    result = sim.await_result(job_id)
    assert result.status is JobStatus.FINISHED, note(str(result.failure))
    assert output_of(name) == expected_output(COUNT), note("the output is not exact")
    master = sim.cluster.blob_server.directory
    assert master is not None
    assert files(master) == [], note("the server keeps blobs of a job that is over")
    sim.faults.set_faults(LinkFaults(delay_min_ms=0.1, delay_max_ms=5))
    sim.run_for(60_000)
    assert sim.leaks() == [], note("something is held that no job owns")
    chunks = [line for line in sim.trace.lines if " ASK get_chunk " in line]
    assert len(chunks) > 4, note("the blobs came in one chunk")
    assert all(f">{MASTER} " in line for line in chunks)
    sim.close()
