"""A host that takes TaskManagers away: jobs leave them in time, and no failure is counted."""

import pytest

from headrace.core.lifecycle import JobStatus
from headrace.gateways.job_master import JobDetails
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import counting_job, expected_output, forget_output, output_of
from tests.simulation.scenario import COUNT, INTERVAL_MS, SETTINGS
from tests.simulation.seeds import seeds

NOTICE_MS = 30_000
NO_FAILURES = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "0",
    "restart-strategy.fixed-delay.delay": "1 h",
    "execution.checkpointing.interval": "1 h",
}


class Run:
    """One job of two subtasks on a simulated host; `taken_at_ms`: when all its TaskManagers are taken away."""

    def __init__(self, seed: int, taken_at_ms: tuple[float, ...], max_worker_count: int) -> None:
        self.name = f"decommissioned {seed} {max_worker_count}"
        forget_output(self.name)
        self.sim = SimulatedCluster(seed, settings=SETTINGS, max_worker_count=max_worker_count)
        self.job_id = self.sim.new_job_id()
        self.sim.submit(
            counting_job(
                self.job_id,
                self.name,
                count=COUNT,
                interval_ms=INTERVAL_MS,
                parallelism=2,
                settings=NO_FAILURES,
            )
        )
        for at_ms in taken_at_ms:
            self.sim.later(at_ms, self._take_all)
        self.result = self.sim.await_result(self.job_id)
        self.details: JobDetails = self.sim.loop.run_until(
            self.sim.dispatcher.request_job_details(self.job_id)
        )

    def _take_all(self) -> None:
        for worker in self.sim.driver.live_workers():
            self.sim.driver.decommission(worker.worker_id, NOTICE_MS)

    def faults(self) -> list[str]:
        """Return what is not as it must be, once every process that was taken away is dead."""
        found = [] if self.result.status is JobStatus.FINISHED else [str(self.result)]
        if output_of(self.name) != expected_output(COUNT):
            found.append("not every row came out once")
        self.sim.run_for(NOTICE_MS)
        found += self.sim.leaks()
        self.sim.close()
        return found


@pytest.mark.parametrize("seed", seeds(30))
def test_a_job_leaves_its_task_managers_with_a_checkpoint_and_counts_no_failure(seed: int) -> None:
    run = Run(seed, (4_000,), max_worker_count=4)
    assert run.faults() == [], failure_note(seed)("not as it must be")
    (failure,) = run.details.exceptions
    assert "is decommissioned: the simulated host takes it away" in failure.root.error.text
    counts = run.details.checkpoints.counts
    assert counts.restored == 1, "no checkpoint is due for an hour but the one before it left"


@pytest.mark.parametrize("seed", seeds(10))
def test_where_no_other_place_is_free_the_job_leaves_all_the_same_and_waits(seed: int) -> None:
    run = Run(seed, (4_000,), max_worker_count=2)
    assert run.faults() == [], failure_note(seed)("not as it must be")


@pytest.mark.parametrize("seed", seeds(10))
def test_replacements_may_be_taken_away_as_well(seed: int) -> None:
    run = Run(seed, (4_000, 6_500, 9_000), max_worker_count=8)
    assert run.faults() == [], failure_note(seed)("not as it must be")
