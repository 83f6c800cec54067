"""Drivers of one cluster, each a simulation of its own, and the world that runs them tick by tick.

Each has a clock that shows another time and runs at another rate. All they share is a folder, and with those of the
same host the locks by which the end of a process is certain there.
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.common import Encoder
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.file_system import FileSink
from headrace.functions.watermarks import WatermarkStrategy
from headrace.gateways.errors import NotLeadingError, UnknownJobError
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.rpc.errors import RecipientUnreachableError
from testkit.simulation.simulated_cluster import SimulatedCluster, failure_note
from testkit.simulation.simulated_job import PacedSource
from tests.simulation.scenario import SETTINGS

T = TypeVar("T")

COUNT: Final = 1_000
TICK_MS: Final = 100
END_MS: Final = 400_000
NEVER_MS: Final = 10**9


def settings_of(folder: Path) -> dict[str, str]:
    return {
        **SETTINGS,
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "ha"),
        "headrace.checkpoint.key-file": str(folder / "key"),
    }


class HostLock(ProcessLock):
    """The lock of a simulated process: the kernel keeps it, as for a real one, until the process is killed."""

    def process_is_killed(self) -> None:
        """Give the lock back as the kernel does, which leaves the file."""
        descriptor, self._descriptor = self._descriptor, None
        assert descriptor is not None
        os.close(descriptor)


class Driver:
    """A standby until it leads, and a cluster from then on; as a standby again, it keeps its TaskManagers.

    `sleeps_until_ms` and `stalls_until_ms`, until which no renewal comes through, are true time. With
    `storing_takes_ms` it sleeps for so long once it has looked whether it leads and is about to store a job.
    """

    def __init__(self, folder: Path, seed: int, drawn: random.Random, host: str = "host") -> None:
        self._settings: Final = settings_of(folder)
        self._seed: Final = seed
        self._rate: Final = drawn.uniform(0.95, 1.05)
        self._clock: Final = ManualClock(drawn.randrange(10**6, 10**10))
        locks = folder / host
        locks.mkdir(exist_ok=True)
        self._lock: Final = HostLock(SeededRandom(seed), self._clock, locks)
        self._services: Final = HighAvailabilityServices(
            Settings(self._settings), self._clock, SeededRandom(seed), self._lock
        )
        self._due_ms = 0.0
        self.sleeps_until_ms = 0.0
        self.stalls_until_ms = 0.0
        self.storing_takes_ms = 0.0
        self._is_dead = False
        self._true_ms = 0.0
        self.cluster: SimulatedCluster | None = None

    @property
    def leads(self) -> bool:
        if self._is_dead:
            return False
        try:
            self._services.election.validate()
        except LeadershipLostError:
            return False
        return True

    @property
    def is_served(self) -> bool:
        """Whether clients find a Dispatcher here."""
        assert self.cluster is not None
        try:
            self.cluster.loop.run_until(self.cluster.dispatcher.list_jobs())
        except (NotLeadingError, RecipientUnreachableError):
            return False
        return True

    def run(self, true_ms: float) -> None:
        self._true_ms = true_ms
        duration_ms = TICK_MS * self._rate
        if true_ms < self.sleeps_until_ms:
            self._clock.advance_ms(duration_ms)
        elif self.cluster is not None:
            self.cluster.run_for(duration_ms)
        else:
            self._clock.advance_ms(duration_ms)
            self._contend(true_ms)

    def die(self) -> None:
        """End at once, for good, wherever it is."""
        self.sleeps_until_ms, self._is_dead = NEVER_MS, True
        self._lock.process_is_killed()

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
                run_blocking=self._run_blocking,
            )
            self._renew()

    async def _run_blocking(self, name: str, body: Callable[[], T]) -> T:
        if not (self.storing_takes_ms and name == "high availability: store a job"):
            return body()
        store: Any = self._services.job_graph_store
        late: list[StoredJobGraph] = []
        store.put = late.append
        result = body()
        del store.put
        assert late, "it does not lead"
        self.sleeps_until_ms, self.storing_takes_ms = self._true_ms + self.storing_takes_ms, 0.0
        await asyncio.sleep(2 * TICK_MS / 1000)
        store.put(*late)
        return result

    def _renew(self) -> None:
        assert self.cluster is not None
        is_stalled = self._true_ms < self.stalls_until_ms
        self.cluster.later(TICK_MS if is_stalled else self._services.election.step(), self._renew)

    def close(self) -> None:
        if self.cluster is not None:
            # One that died does nothing on its way out.
            self._clock.advance_ms(60_000)
            self.cluster.close()
        self._lock.close()


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.drawn: Final = random.Random(seed)
        # Each may see the ends of those of its host.
        hosts = random.Random(seed)
        self.drivers: Final = [
            Driver(folder, seed + 100 * n, self.drawn, hosts.choice(("one-host", "another")))
            for n in range(3)
        ]
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
            is_awake = leader is not None and leader.sleeps_until_ms <= self.now_ms
            if leader is not None and is_awake and leader.cluster and leader.is_served:
                return leader
            assert self.now_ms < END_MS, self._note("nobody leads")
            self.tick()

    def await_end(self, job_id: JobId) -> JobStatus:
        """The job's last status, as a leader tells it."""
        while True:
            cluster = self.await_leader().cluster
            assert cluster is not None
            try:
                status = cluster.loop.run_until(cluster.dispatcher.request_job_status(job_id))
                if status.is_globally_terminal_state():
                    return status
            except UnknownJobError:
                # It ended under an earlier leader, and nothing is left of it: its output says how.
                return JobStatus.FINISHED
            except (NotLeadingError, RecipientUnreachableError):
                pass
            assert self.now_ms < END_MS, self._note("the job does not end")
            self.run_for(1_000)


def numbers_job(job_id: JobId, target: Path, count: int = COUNT) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = PacedSource(count, interval_ms=300)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "paced", Types.INT())
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    numbers.map(str, output_type=Types.STRING()).sink_to(sink)
    settings = Settings({"execution.checkpointing.interval": "500 ms"})
    return generate_job_graph(env.get_stream_graph("numbers"), job_id, settings)
