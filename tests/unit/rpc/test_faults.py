"""Whatever the network and its processes do: every ask completes, nothing runs twice at once, and a seed repeats."""

import asyncio
import itertools
import logging
from random import Random
from typing import Protocol

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import RemoteError
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import RpcError
from headrace.rpc.loopback import LoopbackNetwork, MessageKind
from headrace.rpc.service import RpcService
from testkit.simulation.lossy_network import LinkFaults, LossyNetwork
from testkit.simulation.virtual_loop import VirtualLoop


class RelayGateway(Protocol):
    async def relay(self, path: tuple[str, ...], delay_ms: int) -> int: ...
    def tell(self, number: int) -> None: ...


class Relay(RpcEndpoint):
    """Passes a call along a path of other processes and counts the hops."""

    gateway_types = (RelayGateway,)

    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "relay")
        self.told: list[tuple[str, int]] = []
        self.calls_inside = 0

    async def relay(self, path: tuple[str, ...], delay_ms: int) -> int:
        self.calls_inside += 1
        try:
            await _virtual_delay(delay_ms)
            if not path:
                return 0
            return 1 + await self.to(path[0]).relay(path[1:], delay_ms)
        finally:
            self.calls_inside -= 1

    def tell(self, number: int) -> None:
        self.told.append((self.address, number))

    def to(self, name: str) -> RelayGateway:
        address = f"headrace.loopback://{name}/rpc/relay"
        return self.rpc_service.gateway(address, RelayGateway)


async def _virtual_delay(delay_ms: int) -> None:
    """A handler that takes its time; the time is the simulation's."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(delay_ms / 1000, passed.set)
    await passed.wait()


NAMES = ("a", "b", "c", "d")


class Simulation:
    """Four processes under random calls and faults, everything drawn from one seed."""

    def __init__(self, seed: int, faults: LinkFaults) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.loop = VirtualLoop(self.clock)
        self.lossy = LossyNetwork(self.clock, Random(seed + 1), faults)
        self.network = LoopbackNetwork(
            self.clock,
            Random(seed + 2),
            loop=self.loop,
            policy=self.lossy,
            settings=Settings({"pekko.ask.timeout": "5 s"}),
        )
        self.relays: dict[str, Relay] = {}
        self.outcomes: list[tuple[int, str]] = []
        self.asks: list[asyncio.Task[None]] = []
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        self.relays[name] = Relay(self.network.create_service(name))
        self.relays[name].start()

    async def advance_s(self, duration_s: float) -> None:
        """Let virtual time pass."""
        passed = asyncio.Event()
        self.loop.call_later(duration_s, passed.set)
        await passed.wait()

    async def act(self) -> None:
        random = self.random
        name = random.choice(NAMES)
        is_alive = name in self.network.services
        match random.choices(
            ["ask", "tell", "kill", "vanish", "close", "restart", "cut", "heal"],
            [60, 20, 3, 3, 3, 10, 4, 6],
        )[0]:
            case "ask" if is_alive:
                path = tuple(random.choices(NAMES, k=random.randrange(4)))
                ask = self._ask(name, path, random.randrange(400))
                self.asks.append(self.loop.create_task(ask))
            case "tell" if is_alive:
                self.relays[name].to(random.choice(NAMES)).tell(len(self.outcomes))
            case "kill" if is_alive:
                self.network.kill(name)
            case "vanish" if is_alive:
                self.network.kill(name, breaks_connections=False)
            case "close" if is_alive:
                await self.network.services[name].stop()
            case "restart" if not is_alive:
                self.start(name)
            case "cut":
                self.lossy.cut(name, random.choice(NAMES))
            case _:
                self.lossy.heal()
        await self.advance_s(random.random())

    async def _ask(self, name: str, path: tuple[str, ...], delay_ms: int) -> None:
        started_ms = self.clock.now_ms()
        try:
            hops = await self.relays[name].to(path[0] if path else name).relay(path[1:], delay_ms)
            outcome = str(hops)
        except (RpcError, RemoteError) as error:
            outcome = type(error).__name__
        assert self.clock.now_ms() - started_ms <= 5000
        self.outcomes.append((self.clock.now_ms(), outcome))

    def run(self, step_count: int) -> list[tuple[int, str]]:
        async def scenario() -> None:
            for _ in range(step_count):
                await self.act()
            await self.advance_s(5.001)
            assert all(ask.done() for ask in self.asks), "an ask hangs"
            for ask in self.asks:
                ask.result()
            await self.advance_s(20)  # a relay that was asked late may itself still wait
            for name, service in self.network.services.items():
                assert service.outstanding_count == 0
                assert self.relays[name].calls_inside == 0

        logging.getLogger("headrace.rpc").setLevel(logging.CRITICAL)
        try:
            self.loop.run_until(scenario())
        finally:
            self.loop.close()
            logging.getLogger("headrace.rpc").setLevel(logging.NOTSET)
        return self.outcomes


FAULTS = st.builds(
    LinkFaults,
    loss=st.floats(0, 0.5),
    duplication=st.floats(0, 0.5),
    reordering=st.floats(0, 1),
    delay_max_ms=st.floats(0, 2000),
)


@given(st.integers(0, 2**32), FAULTS)
def test_every_ask_completes_within_its_timeout_whatever_fails(
    seed: int, faults: LinkFaults
) -> None:
    simulation = Simulation(seed, faults)
    outcomes = simulation.run(30)
    assert len(outcomes) == len(simulation.asks)


def test_one_seed_gives_one_history() -> None:
    faults = LinkFaults(loss=0.1, duplication=0.1, reordering=0.2, delay_max_ms=300)
    first, second, other = (Simulation(seed, faults).run(200) for seed in (5, 5, 6))
    assert first == second != other
    assert len({outcome for _, outcome in first}) > 3, "results and several kinds of failure"


@given(st.integers(0, 2**32), st.floats(0, 0.9), st.floats(0, 500))
def test_tells_of_one_sender_that_arrive_keep_their_order(
    seed: int, loss: float, delay_ms: float
) -> None:
    simulation = Simulation(seed, LinkFaults(loss=loss, delay_max_ms=delay_ms))

    async def scenario() -> None:
        await asyncio.sleep(0)
        for number in range(30):
            simulation.relays["a"].to("b").tell(number)
            await simulation.advance_s(simulation.random.random() / 100)
        await simulation.advance_s(10)

    simulation.loop.run_until(scenario())
    simulation.loop.close()
    numbers = [number for _, number in simulation.relays["b"].told]
    assert all(earlier < later for earlier, later in itertools.pairwise(numbers))


def test_a_doubled_request_runs_twice_and_its_asker_hears_one_answer() -> None:
    simulation = Simulation(1, LinkFaults(duplication=1.0, delay_max_ms=10))
    kinds: list[MessageKind] = []
    decide = simulation.lossy.decide
    simulation.lossy.decide = lambda message: (kinds.append(message.kind), decide(message))[1]  # type: ignore[method-assign]

    async def scenario() -> None:
        await asyncio.sleep(0)
        a, b = simulation.relays["a"], simulation.relays["b"]
        assert await a.to("b").relay((), 0) == 0
        a.to("b").tell(7)
        await simulation.advance_s(10)
        assert [number for _, number in b.told] == [7, 7]

    simulation.loop.run_until(scenario())
    simulation.loop.close()
    assert kinds.count(MessageKind.ASK) == 1 and kinds.count(MessageKind.REPLY) == 2
