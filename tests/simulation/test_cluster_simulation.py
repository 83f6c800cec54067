"""A whole cluster on one thread, from one seed, with lost, delayed and reordered messages and dead workers.

`make sim SEED=n` runs the same checks for seed n alone.
"""

import pytest

from headrace.core.lifecycle import JobStatus
from testkit.simulation import simulated_job
from testkit.simulation.simulated_cluster import MASTER, SimulatedCluster, failure_note
from testkit.simulation.simulated_job import counting_job
from tests.simulation.scenario import Plan, run_scenario
from tests.simulation.seeds import seeds

SEEDS = seeds(40, quick_step=5)
LEASE = {
    "heartbeat.interval": "2 s",
    "heartbeat.timeout": "10 s",
    "taskmanager.registration.timeout": "20 s",
    "resourcemanager.taskmanager-timeout": "1 h",
}
LEASE_MS = 30_000
"""How long a worker of these settings may outlive the last word of its master."""
# Seeds that once found something; each stays.
REGRESSIONS = (
    (8, "a lost goodbye of the JobMaster left its slot taken"),
    (4, "a consumer that was deployed late made its producer run out of network memory"),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "scenario_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        known = sorted({*SEEDS, *(number for number, _ in REGRESSIONS)})
        metafunc.parametrize("scenario_seed", known if seed is None else [seed])


def test_the_job_ends_as_it_must_and_nothing_is_left(scenario_seed: int) -> None:
    note = failure_note(scenario_seed)
    assert run_scenario(scenario_seed).faults == (), note("not as it must be")


def test_the_same_seed_gives_the_same_events(simulation_seed: int | None) -> None:
    seed = 3 if simulation_seed is None else simulation_seed
    first, second = run_scenario(seed), run_scenario(seed)
    difference = next(
        (
            pair
            for pair in zip(first.trace_lines, second.trace_lines, strict=False)
            if pair[0] != pair[1]
        ),
        None,
    )
    assert first.trace_digest == second.trace_digest, f"seed {seed}: first difference {difference}"


def test_different_seeds_give_different_events() -> None:
    assert run_scenario(1).trace_digest != run_scenario(2).trace_digest


def test_the_seeds_cover_finished_failed_killed_and_restarted_jobs() -> None:
    plans = [Plan.draw(seed) for seed in SEEDS]
    assert any(plan.kill_times_ms and plan.has_restarts for plan in plans)
    assert any(plan.kill_times_ms and not plan.has_restarts for plan in plans)
    assert any(plan.cut_times_ms for plan in plans)
    assert any(plan.fail_at is not None for plan in plans)
    assert any(plan.faults.loss for plan in plans)


def test_a_cluster_without_jobs_asks_for_no_worker() -> None:
    sim = SimulatedCluster(1)
    sim.run_for(60_000)
    assert sim.driver.workers == {}
    sim.close()


def test_an_idle_worker_is_given_up_after_its_timeout() -> None:
    sim = SimulatedCluster(1)
    job_id = sim.new_job_id()
    sim.submit(counting_job(job_id, "idle", count=20, interval_ms=10, parallelism=1, settings={}))
    assert sim.await_result(job_id).status is JobStatus.FINISHED
    sim.run_for(20_000)
    assert len(sim.driver.live_workers()) == 1
    sim.run_for(15_000)
    assert sim.driver.live_workers() == []
    sim.close()


@pytest.mark.slow
def test_workers_end_by_themselves_when_the_master_falls_silent_for_good() -> None:
    sim = SimulatedCluster(1, settings=LEASE)
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(job_id, "long", count=10**6, interval_ms=100, parallelism=2, settings={})
    )
    sim.run_for(10_000)
    workers = sim.driver.live_workers()
    assert len(workers) == 2
    sim.silence_master()
    # The last heartbeat may be an interval old.
    sim.run_for(LEASE_MS - 2_500)
    assert sim.driver.live_workers() == workers
    # Tasks that must end, and a goodbye that nobody hears, take a moment.
    sim.run_for(2_500 + 5_000)
    assert sim.driver.live_workers() == []
    sim.close()


def test_a_worker_that_hears_its_master_again_in_time_goes_on() -> None:
    sim = SimulatedCluster(1, settings=LEASE)
    job_id = sim.new_job_id()
    sim.submit(counting_job(job_id, "brief", count=20, interval_ms=10, parallelism=1, settings={}))
    assert sim.await_result(job_id).status is JobStatus.FINISHED
    (worker,) = sim.driver.live_workers()
    sim.faults.partition([MASTER], [worker.worker_id.name])
    sim.run_for(8_000)
    sim.faults.heal()
    sim.run_for(LEASE_MS + 15_000)
    assert worker.is_alive
    sim.close()


def test_a_job_that_needs_more_slots_than_the_host_can_give_fails_and_says_why() -> None:
    sim = SimulatedCluster(1, max_worker_count=1)
    job_id = sim.new_job_id()
    graph = counting_job(
        job_id,
        "too big",
        count=20,
        interval_ms=10,
        parallelism=2,
        settings={"slot.request.timeout": "20 s"},
    )
    sim.submit(graph)
    result = sim.await_result(job_id)
    assert result.status is JobStatus.FAILED and result.failure is not None
    wanted, _, explanation = result.failure.text.partition(" did not become available within ")
    assert wanted.startswith("2 slot(s) for 'Source: Paced -> Map -> ")
    assert f"({simulated_job.__file__}, line " in wanted
    assert explanation == (
        "20000 ms (slot.request.timeout): "
        f"job {job_id.hex()[:8]} lacks 2 of 2 slot(s) and takes none before it can have all of them; "
        "1 TaskManager(s) with 1 slot(s) are registered, 1 of them free; the host can run at most 1 worker(s)"
    )
    sim.close()


def test_a_user_error_is_told_with_operator_file_and_line() -> None:
    sim = SimulatedCluster(1)
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(
            job_id, "bad", count=50, interval_ms=10, parallelism=2, settings={}, fail_at=30
        )
    )
    result = sim.await_result(job_id)
    assert result.failure is not None
    first_line = result.failure.text.partition("\n")[0]
    assert first_line.startswith("ValueError: number 30 has to fail (in operator 'Source: Paced'")
    sim.close()


def test_who_awaits_the_end_of_a_job_hears_of_it_at_once_and_else_when_the_wait_is_over() -> None:
    sim = SimulatedCluster(1)
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(job_id, "long", count=10**6, interval_ms=100, parallelism=1, settings={})
    )
    begun_ms = sim.clock.now_ms()
    status = sim.loop.run_until(sim.dispatcher.await_job_end(job_id, 9_000))
    assert (status, sim.clock.now_ms() - begun_ms) == (JobStatus.RUNNING, 9_000)
    sim.later(1_000, lambda: sim.cancel(job_id))
    status = sim.loop.run_until(sim.dispatcher.await_job_end(job_id, 60_000))
    assert status is JobStatus.CANCELED
    assert sim.clock.now_ms() - begun_ms < 12_000
    assert sim.loop.run_until(sim.dispatcher.await_job_end(job_id, 60_000)) is JobStatus.CANCELED
    sim.close()


@pytest.mark.slow
def test_cancelling_a_job_frees_everything() -> None:
    sim = SimulatedCluster(1)
    job_id = sim.new_job_id()
    sim.submit(
        counting_job(job_id, "long", count=10**6, interval_ms=100, parallelism=2, settings={})
    )
    sim.run_for(10_000)
    sim.loop.run_until(sim.dispatcher.cancel_job(job_id))
    assert sim.await_result(job_id).status is JobStatus.CANCELED
    sim.run_for(100)
    assert sim.leaks() == []
    sim.close()
