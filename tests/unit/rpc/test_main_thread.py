"""One main thread per endpoint: order of beginnings, no overlap, actions, and the watch over slow handlers."""

import asyncio
import logging
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import MailboxFullError, RecipientUnreachableError
from headrace.rpc.invocation import RemoteReply
from headrace.rpc.service import RpcService
from tests.unit.rpc.conftest import AnyWorld, World, make_world
from tests.unit.rpc.sample_endpoints import ENTRY, Ledger, LedgerGateway


class OrderGateway(Protocol):
    async def slow(self, number: int, turns: int) -> int: ...
    async def quick(self, number: int) -> int: ...
    def tell(self, number: int) -> None: ...


class Order(RpcEndpoint):
    """Records beginnings, and whether two sync handlers were ever inside at once."""

    gateway_types = (OrderGateway,)

    def __init__(self, service: RpcService) -> None:
        self.begun: list[int] = []
        self.is_inside = False
        super().__init__(service, "order")

    async def slow(self, number: int, turns: int) -> int:
        self._enter(number)
        for _ in range(turns):
            await asyncio.sleep(0)
        return number

    def quick(self, number: int) -> int:
        self._enter(number)
        return number

    def tell(self, number: int) -> None:
        self._enter(number)

    def _enter(self, number: int) -> None:
        assert not self.is_inside
        self.is_inside = True
        self.validate_main_thread()
        self.begun.append(number)
        self.is_inside = False


MESSAGES = st.lists(
    st.sampled_from(["slow", "slow for long", "quick", "tell", "action", "call", "async call"]),
    max_size=40,
)


@given(MESSAGES, st.sampled_from(["by reference", "serialized", "remote"]))
def test_messages_begin_in_the_order_in_which_they_were_sent(kinds: list[str], place: str) -> None:
    world = make_world(place)

    async def scenario() -> None:
        endpoint = Order(world.callee)
        endpoint.start()
        gateway = await world.caller.connect(endpoint.address, OrderGateway)
        # Actions come from within the process; their order with messages holds where those do not travel.
        is_near = world.caller is world.callee
        asks = []
        for number, kind in enumerate(kinds):
            match kind:
                case "slow":
                    asks.append(asyncio.ensure_future(gateway.slow(number, 1)))
                case "slow for long":
                    asks.append(asyncio.ensure_future(gateway.slow(number, 100)))
                case "tell":
                    gateway.tell(number)
                case "action" if is_near:
                    endpoint.run_async(lambda number=number: endpoint.tell(number))
                case "call" if is_near:
                    endpoint.call_async(lambda number=number: endpoint.quick(number))
                case "async call" if is_near:
                    endpoint.call_async(lambda number=number: endpoint.slow(number, 2))
                case _:
                    asks.append(asyncio.ensure_future(gateway.quick(number)))
            await asyncio.sleep(0)  # an ask is sent when its task first runs
        await asyncio.gather(*asks)
        await world.advance_ms(1)
        assert endpoint.begun == list(range(len(kinds)))

    world.run(scenario())


def test_a_handler_that_waits_lets_later_messages_begin(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway)
        slow = asyncio.ensure_future(gateway.hold("slow"))
        quick = asyncio.ensure_future(gateway.hold("quick"))
        ledger.release("quick")
        assert await quick == "quick" and not slow.done()
        ledger.release("slow")
        assert await slow == "slow"
        assert (ledger.begun, ledger.ended) == (["slow", "quick"], ["quick", "slow"])

    world.run(scenario())


class PingGateway(Protocol):
    async def ping(self, hops: int) -> int: ...


class Ping(RpcEndpoint):
    gateway_types = (PingGateway,)
    peer: PingGateway

    async def ping(self, hops: int) -> int:
        return hops if hops == 0 else 1 + await self.peer.ping(hops - 1)


def test_two_endpoints_may_ask_each_other_at_once(world: AnyWorld) -> None:
    async def scenario() -> None:
        left, right = Ping(world.callee, "left"), Ping(world.caller, "right")
        left.start()
        right.start()
        left.peer = await world.callee.connect(right.address, PingGateway)
        right.peer = await world.caller.connect(left.address, PingGateway)
        assert await asyncio.gather(left.peer.ping(9), right.peer.ping(10)) == [9, 10]

    world.run(scenario())


@pytest.mark.parametrize("is_delayed", [False, True], ids=["queued", "delayed"])
def test_an_action_that_fails_ends_the_endpoint(
    local_world: World, is_delayed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        if is_delayed:
            ledger.schedule_run_async(10, lambda: ledger.fail("in an action"))
        else:
            ledger.run_async(lambda: ledger.fail("in an action"))
        with pytest.raises(LookupError, match="in an action"):
            await ledger.termination

    local_world.run(scenario())
    assert "in an action" in caplog.text


def test_a_call_that_fails_disturbs_nobody_but_its_caller(
    local_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        future = ledger.call_async(lambda: ledger.fail("in a call"))
        assert await asyncio.wrap_future(ledger.call_async(ledger.count)) == 0
        with pytest.raises(LookupError, match="in a call"):
            future.result(0)

    local_world.run(scenario())
    assert "in a call" not in caplog.text


def test_touching_an_endpoint_outside_its_main_thread_is_caught(local_world: World) -> None:
    ledger = Ledger(local_world.callee)
    with pytest.raises(AssertionError, match="outside its main thread"):
        ledger.validate_main_thread()


def test_a_handler_that_holds_the_main_thread_is_logged_by_name(
    virtual_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Busy(Ledger):
        def note(self, text: str) -> None:
            virtual_world.clock.advance_ms(1500)

        async def hold(self, name: str) -> str:
            await virtual_world.advance_ms(1000)
            virtual_world.clock.advance_ms(2500)
            await virtual_world.advance_ms(1000)
            return name

    async def scenario() -> None:
        busy = Busy(virtual_world.callee)
        busy.start()
        gateway = await virtual_world.caller.connect(busy.address, LedgerGateway)
        gateway.note("x")
        await gateway.count()
        await gateway.hold("x")

    with caplog.at_level(logging.WARNING):
        virtual_world.run(scenario())
    slow = [record.getMessage() for record in caplog.records]
    assert len(slow) == 2, "waiting holds nothing"
    assert "LedgerGateway.note held the main thread" in slow[0] and "1500 ms" in slow[0]
    assert "LedgerGateway.hold held the main thread" in slow[1] and "2500 ms" in slow[1]


def test_a_full_mailbox_refuses_calls_by_name() -> None:
    world = make_world("by reference", {"headrace.rpc.mailbox-capacity": "3"})

    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        gateway = ledger.self_gateway(LedgerGateway)
        await gateway.count()
        for number in range(3):
            gateway.note(str(number))
        assert ledger.queue_length == 3
        with pytest.raises(MailboxFullError, match=r"LedgerGateway.count.*mailbox-capacity"):
            await gateway.count()
        await world.until(lambda: ledger.queue_length == 0)
        assert await gateway.count() == 3

    world.run(scenario())


def test_a_long_queue_does_not_starve_the_rest_of_the_loop(local_world: World) -> None:
    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        await asyncio.sleep(0)
        for _ in range(1000):
            ledger.run_async(lambda: ledger.note("x"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(ledger.notes) < 100

    local_world.run(scenario())


def test_call_async_to_an_endpoint_that_ended_fails(local_world: World) -> None:
    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        await ledger.close()
        with pytest.raises(RecipientUnreachableError):
            ledger.call_async(ledger.count).result(0)

    local_world.run(scenario())


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_running_out_of_memory_in_a_handler_is_fatal_to_the_process(
    local_world: World, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Greedy(Ledger):
        def note(self, text: str) -> None:
            raise MemoryError

        async def add(self, entry, comment="none"):  # type: ignore[no-untyped-def]
            raise MemoryError

    fatal: list[BaseException] = []
    local_world.callee.on_fatal_error = fatal.append

    async def scenario() -> None:
        greedy = Greedy(local_world.callee)
        greedy.start()
        gateway = greedy.self_gateway(LedgerGateway)
        if is_async:
            ask = asyncio.ensure_future(gateway.add(ENTRY))
        else:
            gateway.note("x")
        await local_world.until(lambda: bool(fatal))
        if is_async:
            ask.cancel()

    local_world.run(scenario())
    assert [type(error) for error in fatal] == [MemoryError]
    assert "fatal error in the process at callee" in caplog.text


def test_whoever_waits_hears_of_a_handler_whose_outcome_cannot_be_told(
    remote_world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(reply: RemoteReply, method: object, value: object) -> None:
        raise LookupError("a bug while the answer is sent")

    async def scenario() -> None:
        ledger = Ledger(remote_world.callee)
        ledger.start()
        gateway = await remote_world.caller.connect(ledger.address, LedgerGateway)
        monkeypatch.setattr(RemoteReply, "succeed", broken)
        for ask in (gateway.hold("x"), gateway.count()):
            ledger.release("x")
            with pytest.raises(RecipientUnreachableError, match="its answer cannot be sent"):
                await ask

    remote_world.run(scenario())
    assert "a bug while the answer is sent" in caplog.text
