"""Drivers of one cluster that die and freeze at moments drawn from the seed: at most one leads, and no row is lost.

Each driver is a simulation of its own, with a clock that shows another time and runs at another rate; all they share is
a folder. Output is committed to files, so that what a former leader still does would be seen there.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.common import Encoder
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.file_system import FileSink
from headrace.functions.watermarks import WatermarkStrategy
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import PacedSource
from tests.integration.programs.committed_lines import committed_lines
from tests.simulation.scenario import SETTINGS
from tests.simulation.seeds import seeds

COUNT: Final = 1_000
TICK_MS: Final = 100
END_MS: Final = 240_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per seed, or only the seed that was asked for."""
    if "failover_seed" in metafunc.fixturenames:
        seed = metafunc.config.getoption("--seed")
        metafunc.parametrize("failover_seed", seeds(40) if seed is None else [seed])


def settings_of(folder: Path) -> dict[str, str]:
    return {
        **SETTINGS,
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "ha"),
        "headrace.checkpoint.key-file": str(folder / "key"),
    }


class Driver:
    """A standby until it leads, and a cluster from then on. `sleeps_until_ms` is true time."""

    def __init__(self, folder: Path, seed: int, drawn: random.Random) -> None:
        self._settings: Final = settings_of(folder)
        self._seed: Final = seed
        self._rate: Final = drawn.uniform(0.95, 1.05)
        self._clock: Final = ManualClock(drawn.randrange(10**6, 10**10))
        self._services: Final = HighAvailabilityServices(
            Settings(self._settings), self._clock, SeededRandom(seed)
        )
        self._due_ms = 0.0
        self.sleeps_until_ms = 0.0
        self.cluster: SimulatedCluster | None = None

    @property
    def leads(self) -> bool:
        try:
            self._services.election.validate()
        except LeadershipLostError:
            return False
        return True

    def run(self, true_ms: float) -> None:
        duration_ms = TICK_MS * self._rate
        if true_ms < self.sleeps_until_ms:
            self._clock.advance_ms(duration_ms)
        elif self.cluster is not None:
            self.cluster.run_for(duration_ms)
        else:
            self._clock.advance_ms(duration_ms)
            self._contend(true_ms)

    def _contend(self, true_ms: float) -> None:
        if true_ms < self._due_ms:
            return
        self._due_ms = true_ms + self._services.election.step()
        if self._services.election.epoch:
            self.cluster = SimulatedCluster(
                self._seed,
                settings=self._settings,
                clock=self._clock,
                high_availability=self._services,
            )
            self._renew()

    def _renew(self) -> None:
        assert self.cluster is not None
        if self.leads:
            self.cluster.later(self._services.election.step(), self._renew)

    def close(self) -> None:
        if self.cluster is not None:
            # One that died does nothing on its way out.
            self._clock.advance_ms(60_000)
            self.cluster.close()


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.drawn: Final = random.Random(seed)
        self.drivers: Final = [Driver(folder, seed + 100 * n, self.drawn) for n in range(3)]
        self.now_ms = 0
        self._note: Final = failure_note(seed)

    def leader(self) -> Driver | None:
        """The one that leads at this moment, awake or not. AssertionError where there are two."""
        leading = [driver for driver in self.drivers if driver.leads]
        assert len(leading) <= 1, self._note(f"two lead at {self.now_ms} ms")
        return leading[0] if leading else None

    def tick(self) -> None:
        for driver in self.drivers:
            driver.run(self.now_ms)
            self.leader()
        self.now_ms += TICK_MS

    def run_for(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.tick()

    def await_leader(self) -> Driver:
        """The one that leads and is awake, which may be another one than before."""
        while True:
            leader = self.leader()
            if leader is not None and leader.cluster and leader.sleeps_until_ms <= self.now_ms:
                return leader
            assert self.now_ms < END_MS, self._note("nobody leads")
            self.tick()

    def await_end(self, job_id: JobId) -> JobStatus:
        """The job's last status, as a leader tells it."""
        while True:
            cluster = self.await_leader().cluster
            assert cluster is not None
            status = cluster.loop.run_until(cluster.dispatcher.request_job_status(job_id))
            if status.is_globally_terminal_state():
                return status
            assert self.now_ms < END_MS, self._note(f"the job does not end: {status}")
            self.run_for(1_000)


def numbers_job(job_id: JobId, target: Path) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = PacedSource(COUNT, interval_ms=300)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "paced", Types.INT())
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    numbers.map(str, output_type=Types.STRING()).sink_to(sink)
    settings = Settings({"execution.checkpointing.interval": "500 ms"})
    return generate_job_graph(env.get_stream_graph("numbers"), job_id, settings)


def test_every_row_comes_out_once_whichever_drivers_die_and_freeze(
    failover_seed: int, tmp_path: Path
) -> None:
    note, world = failure_note(failover_seed), World(tmp_path, failover_seed)
    drawn = world.drawn
    first = world.await_leader()
    job_id = JobId.generate(drawn)
    assert first.cluster is not None
    first.cluster.submit(numbers_job(job_id, tmp_path / "lines"))
    sleepers: list[Driver] = []
    # The first dies, or freezes for longer than its lease, as may the second; somebody is left.
    for _ in range(drawn.choice([1, 2])):
        world.run_for(drawn.uniform(0, 12_000))
        victim = world.await_leader()
        victim.sleeps_until_ms = world.now_ms + drawn.choice([8_000, 15_000, 10**9])
        sleepers.append(victim)
    status = world.await_end(job_id)
    world.run_for(20_000)
    assert status is JobStatus.FINISHED, note("the job did not finish")
    expected = Counter(str(number) for number in range(COUNT))
    assert committed_lines(tmp_path / "lines") == expected, note("rows are missing, or twice there")
    for driver in sleepers:
        if driver.sleeps_until_ms < 10**9:
            assert driver.cluster is not None
            failure = driver.cluster.cluster.failure
            assert isinstance(failure, LeadershipLostError), note("it has not noticed")
    left = [path for path in (tmp_path / "ha").rglob("*") if job_id.hex() in path.as_posix()]
    assert left == [], note("not all of the job was forgotten")
    for driver in world.drivers:
        driver.close()
