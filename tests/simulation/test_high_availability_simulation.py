"""Drivers of one cluster that die, freeze, lose their disk or their Dispatcher at moments drawn from the seed.

At most one leads, no row is lost, and a driver that has lost the leadership may lead again. Each driver is a simulation
of its own, with a clock that shows another time and runs at another rate; all they share is a folder, and with those of
the same host the locks by which the end of a process is certain there: one that dies gives its own back, one that is
frozen keeps it. Output is committed to files, so that what a former leader still does would be seen there.
"""

import random
from collections import Counter
from pathlib import Path

import pytest

from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from testkit.simulation.simulated_cluster import failure_note
from tests.integration.programs.committed_lines import committed_lines
from tests.simulation.failures import WAYS
from tests.simulation.rival_drivers import COUNT, NEVER_MS, TICK_MS, Driver, World, numbers_job
from tests.simulation.seeds import seeds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "failover_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("failover_seed", seeds(40) if seed is None else [seed])


def disturb(leader: Driver, drawn: random.Random, now_ms: int) -> None:
    """Let something happen to the leader that costs it the leadership, or its Dispatcher."""
    duration_ms = drawn.choice([8_000, 15_000, 30_000])
    match drawn.randrange(3):
        case 0:
            leader.sleeps_until_ms = now_ms + duration_ms
        case 1:
            leader.stalls_until_ms = now_ms + duration_ms
        case _:
            assert leader.cluster is not None
            drawn.choice(list(WAYS.values()))(leader.cluster.cluster.dispatcher)


def test_every_row_comes_out_once_whatever_happens_to_drivers(
    failover_seed: int, tmp_path: Path
) -> None:
    note, world = failure_note(failover_seed), World(tmp_path, failover_seed)
    drawn = world.drawn
    first = world.await_leader()
    job_id = JobId.generate(drawn)
    assert first.cluster is not None
    first.cluster.submit(numbers_job(job_id, tmp_path / "lines"))
    may_die = drawn.random() < 0.5
    for _ in range(drawn.choice([1, 2, 4])):
        world.run_for(drawn.uniform(0, 12_000))
        leader = world.await_leader()
        if may_die and drawn.random() < 0.3:
            # One at most, so that somebody is left.
            may_die = False
            leader.die()
        else:
            disturb(leader, drawn, world.now_ms)
    status = world.await_end(job_id)
    world.run_for(40_000)
    assert status is JobStatus.FINISHED, note("the job did not finish")
    expected = Counter(str(number) for number in range(COUNT))
    assert committed_lines(tmp_path / "lines") == expected, note("rows are missing, or twice there")
    for driver in world.drivers:
        if driver.cluster is not None and driver.sleeps_until_ms < NEVER_MS:
            assert driver.cluster.cluster.failure is None, note("its process would end")
            assert driver.is_served is driver.leads, note("it has not noticed")
            assert driver.cluster.leaks() == [], note("tasks of a leadership are left")
    left = [path for path in (tmp_path / "ha").rglob("*") if job_id.hex() in path.as_posix()]
    assert left == [], note("not all of the job was forgotten")
    for driver in world.drivers:
        driver.close()


@pytest.mark.parametrize("host", ["one-host", "another"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_only_a_killed_leader_of_the_same_host_is_not_waited_for(
    tmp_path: Path, host: str, is_killed: bool
) -> None:
    drawn = random.Random(1)
    first = Driver(tmp_path, 1, drawn, "one-host")
    second = Driver(tmp_path, 2, drawn, host)
    now_ms = 0
    while now_ms < 5_000:
        first.run(now_ms)
        second.run(now_ms)
        now_ms += TICK_MS
    assert first.leads
    if is_killed:
        first.die()
    else:
        first.sleeps_until_ms = NEVER_MS
    gone_ms = now_ms
    while not second.leads:
        first.run(now_ms)
        second.run(now_ms)
        now_ms += TICK_MS
    assert (now_ms - gone_ms < 4_000) is (is_killed and host == "one-host")
    first.close()
    second.close()


def test_a_driver_without_rivals_leads_again_and_its_task_managers_go_on(tmp_path: Path) -> None:
    drawn = random.Random(1)
    driver = Driver(tmp_path, 1, drawn)
    now_ms = 0

    def run_for(duration_ms: int) -> None:
        nonlocal now_ms
        end_ms = now_ms + duration_ms
        while now_ms < end_ms:
            driver.run(now_ms)
            now_ms += TICK_MS

    run_for(1_000)
    cluster = driver.cluster
    assert cluster is not None
    job_id = JobId.generate(drawn)
    cluster.submit(numbers_job(job_id, tmp_path / "lines"))
    run_for(20_000)
    workers = [worker.worker_id for worker in cluster.driver.live_workers()]
    driver.stalls_until_ms = now_ms + 8_000
    run_for(6_000)
    assert not driver.is_served
    run_for(250_000)
    assert (
        cluster.loop.run_until(cluster.dispatcher.request_job_status(job_id)) is JobStatus.FINISHED
    )
    assert committed_lines(tmp_path / "lines") == Counter(str(number) for number in range(COUNT))
    assert list(cluster.driver.workers) == workers, "no other TaskManager was asked for"
    driver.close()
