"""Jobs of stored exchanges on workers that die at any time: the output is exact, and no result goes too early or late.

Whatever it is and whoever is killed, after the job all live TaskManagers are scanned: see ExchangeScan.leaks.
"""

from pathlib import Path

import pytest

from headrace.core.lifecycle import JobStatus
from testkit.simulation.simulated_cluster import failure_note
from tests.simulation.scenario import Plan, run_scenario
from tests.simulation.seeds import seeds

KINDS = ("ALL_EXCHANGES_BLOCKING", "ALL_EXCHANGES_HYBRID_FULL", "ALL_EXCHANGES_HYBRID_SELECTIVE")
KILLED = [seed for seed in range(400) if Plan.draw(seed).kill_times_ms]
MIDDLE_MS = 5_000
"""When a job of this length is about half done."""
SEEDS = [KILLED[number] for number in seeds(30)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_outlives_its_job_whoever_is_killed(seed: int, kind: str, tmp_path: Path) -> None:
    outcome = run_scenario(seed, stored_as=(kind, str(tmp_path)))
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_result_outlives_its_job_that_is_cancelled_amid_reading(
    seed: int, kind: str, tmp_path: Path
) -> None:
    outcome = run_scenario(seed, stored_as=(kind, str(tmp_path)), is_cancelled_amid_reading=True)
    assert outcome.faults == (), failure_note(seed)("not as it must be")


@pytest.mark.slow
def test_results_are_released_while_their_job_goes_on(tmp_path: Path) -> None:
    """Else nobody looks whether that is too early."""
    outcomes = [run_scenario(seed, stored_as=(KINDS[0], str(tmp_path))) for seed in KILLED[:24]]
    assert sum(outcome.release_count for outcome in outcomes) > 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_of_stored_exchanges_finishes_although_a_worker_died(
    kind: str, tmp_path: Path
) -> None:
    plans = ((seed, Plan.draw(seed)) for seed in KILLED)
    seed = next(
        seed
        for seed, plan in plans
        if plan.has_restarts and plan.cancel_at_ms is None and plan.kill_times_ms[0] < MIDDLE_MS
    )
    outcome = run_scenario(seed, stored_as=(kind, str(tmp_path)))
    assert outcome.result.status is JobStatus.FINISHED, failure_note(seed)("it did not finish")
    assert any(" dies: " in line for line in outcome.trace_lines)
