"""A virtual clock and a cluster of simulated TaskManagers for the tests of the exchange."""

import heapq
from collections.abc import Callable

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.stored.spill_files import FileLayer
from headrace.network.trace.simulated_transport import CreateRelay, LinkDelay, SimulatedNetwork
from testkit.simulation.posting_io import PostingIo
from tests.unit.network.exchange import SECRET


class _Call:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualLoop:
    """Runs scheduled calls in the order of virtual time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._calls: list[tuple[int, int, _Call]] = []
        self._count = 0

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> _Call:
        self._count += 1
        call = _Call(callback)
        due_ns = self.clock.monotonic_ns() + int(delay_ms * 1_000_000)
        heapq.heappush(self._calls, (due_ns, self._count, call))
        return call

    def step(self) -> bool:
        """Run the next call; False if there is none."""
        while self._calls:
            due_ns, _, call = heapq.heappop(self._calls)
            if call.callback is not None:
                self.clock.advance_ms(max(0, due_ns - self.clock.monotonic_ns()) / 1_000_000)
                call.callback()
                return True
        return False

    def run_until(self, condition: Callable[[], bool], steps: int = 100_000) -> None:
        for _ in range(steps):
            if condition():
                return
            assert self.step(), "nothing is left to happen"
        raise AssertionError("no progress")

    def run_for(self, duration_ms: float) -> None:
        end_ns = self.clock.monotonic_ns() + duration_ms * 1_000_000
        while self._calls and self._calls[0][0] <= end_ns:
            if self._calls[0][2].callback is None:
                heapq.heappop(self._calls)
            else:
                self.step()
        self.clock.advance_ms(max(0, end_ns - self.clock.monotonic_ns()) / 1_000_000)

    def run_all(self) -> None:
        while self.step():
            pass


class SimulatedCluster:
    """TaskManagers by name, on one virtual loop."""

    def __init__(
        self,
        delay_ms: LinkDelay = lambda source, target: 1.0,
        create_relay: CreateRelay | None = None,
    ) -> None:
        self.loop = VirtualLoop()
        self.network = SimulatedNetwork(self.loop.schedule, delay_ms, create_relay)
        self.environments: list[CreditBasedShuffleEnvironment] = []

    def start(
        self, name: str, secret: bytes = SECRET, files: FileLayer | None = None, **options: str
    ) -> tuple[CreditBasedShuffleEnvironment, TaskManagerLocation]:
        # Without signs of life all is said at some time, and tests can run until then.
        settings = Settings(
            {"headrace.network.keepalive.interval": "0 s"}
            | {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
        )
        transport = self.network.create_transport()
        environment = CreditBasedShuffleEnvironment(
            resource_id=ResourceId(name),
            settings=settings,
            secret=secret,
            bind_host="",
            advertised_host="",
            clock=self.loop.clock,
            random=SeededRandom(name),
            socket_directory=None,
            transport=transport,
            wait=NeverWait(),
            io=PostingIo(transport.post),
            files=files,
        )
        self.environments.append(environment)
        return environment, environment.start()

    def assert_nothing_leaks(self) -> None:
        """Every segment is back, and no partition, reader or channel is left."""
        self.loop.run_all()
        for environment in self.environments:
            pool = environment.buffer_pool
            assert pool.count_idle_pages() == pool.total_pages, f"{environment.name} keeps segments"
            assert environment.partitions.partition_count == 0, (
                f"{environment.name} keeps partitions"
            )
            assert environment.storage.directories.files() == [], f"{environment.name} keeps files"
            assert environment.storage.read_memory.used_bytes == 0, (
                f"{environment.name} keeps memory that was read ahead"
            )
            environment.storage.close()
