"""Calls of a gateway: the same results within a process, serialised, and between processes."""

import asyncio
import logging
import traceback

import pytest

from headrace.core.errors import NoResourceAvailableError, RemoteError
from headrace.rpc.errors import (
    AskTimeoutError,
    OversizeReplyError,
    OversizeRequestError,
    RecipientUnreachableError,
    RpcConnectionError,
    RpcHandshakeError,
    SerializationError,
    UnknownMethodError,
)
from headrace.rpc.proxies import create_proxy, gateway_address, parse_address, with_timeout
from tests.unit.rpc.conftest import AnyWorld, World, make_world
from tests.unit.rpc.sample_endpoints import (
    ENTRY,
    Added,
    Declined,
    Ledger,
    LedgerGateway,
    NewerLedgerGateway,
    UnofferedGateway,
)


async def connected(world: AnyWorld) -> tuple[Ledger, LedgerGateway]:
    ledger = Ledger(world.callee)
    ledger.start()
    return ledger, await world.caller.connect(ledger.address, LedgerGateway)


def test_an_ask_returns_what_the_handler_returns(world: AnyWorld) -> None:
    async def scenario() -> None:
        _, gateway = await connected(world)
        assert await gateway.add(ENTRY) == Added(ENTRY)
        assert await gateway.add(ENTRY, "decline") == Declined("decline")
        assert await gateway.add(comment="decline", entry=ENTRY) == Declined("decline")
        assert await gateway.count() == 0

    world.run(scenario())


def test_arguments_are_copied_only_where_they_leave_the_process(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(world)
        await gateway.add(ENTRY)
        assert ledger.entries == [ENTRY]
        assert (ledger.entries[0] is ENTRY) is not world.is_serialized

    world.run(scenario())


def test_tells_and_asks_of_one_sender_keep_their_order(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(world)
        for number in range(40):
            gateway.note(str(number))
        assert await gateway.count() == 40
        assert ledger.notes == [str(number) for number in range(40)]

    world.run(scenario())


def test_wrong_arguments_are_refused_as_python_does(world: AnyWorld) -> None:
    async def scenario() -> None:
        _, gateway = await connected(world)
        with pytest.raises(TypeError, match="missing a required argument"):
            await gateway.add()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword"):
            gateway.note("x", volume=3)  # type: ignore[call-arg]

    world.run(scenario())


def test_a_known_error_arrives_as_what_it_was(world: AnyWorld) -> None:
    async def scenario() -> None:
        _, gateway = await connected(world)
        with pytest.raises(NoResourceAvailableError, match="nothing is free") as caught:
            await gateway.fail("known")
        assert caught.value.missing_count == 3
        with pytest.raises(NoResourceAvailableError) as caught:
            await gateway.fail("chained")
        text = "".join(traceback.format_exception(caught.value))
        assert "KeyError" in text and "sample_endpoints.py" in text

    world.run(scenario())


def test_an_unknown_error_arrives_with_its_name_text_and_traceback(world: AnyWorld) -> None:
    async def scenario() -> None:
        _, gateway = await connected(world)
        with pytest.raises(RemoteError if world.is_serialized else LookupError) as caught:
            await gateway.fail("teapot")
        text = "".join(traceback.format_exception(caught.value))
        assert "LookupError: no such thing: teapot" in text
        assert "sample_endpoints.py" in text and "raise LookupError" in text

    world.run(scenario())


def test_a_failing_tell_is_logged_where_it_failed(
    world: AnyWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(world)
        gateway.note("fail")
        gateway.note("after")
        assert await gateway.count() == 1
        assert ledger.notes == ["after"]

    with caplog.at_level(logging.WARNING):
        world.run(scenario())
    assert "LedgerGateway.note" in caplog.text and "a failing tell" in caplog.text


def test_an_ask_that_is_not_answered_in_time_names_method_and_target(
    virtual_world: World,
) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(virtual_world)
        started_ms = virtual_world.clock.now_ms()
        with pytest.raises(AskTimeoutError) as caught:
            await gateway.hold("late")
        assert virtual_world.clock.now_ms() - started_ms == 10_000
        assert "LedgerGateway.hold" in str(caught.value) and ledger.address in str(caught.value)
        assert "pekko.ask.timeout" in str(caught.value)

    virtual_world.run(scenario())


def test_an_answer_that_comes_too_late_disturbs_nobody(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(world)
        with pytest.raises(AskTimeoutError):
            await with_timeout(gateway, 1).hold("late")
        ledger.release("late")
        assert await gateway.count() == 0
        await world.until(lambda: ledger.ended == ["late"])
        assert world.caller.outstanding_count == 0

    world.run(scenario())


def test_a_gateway_may_have_a_timeout_of_its_own(virtual_world: World) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(virtual_world)
        patient, hasty = with_timeout(gateway, 120_000), with_timeout(gateway, 5)
        assert gateway_address(patient) == ledger.address
        virtual_world.loop.call_later(60, ledger.release, "slow")
        assert await patient.hold("slow") == "slow"
        with pytest.raises(AskTimeoutError, match="within 5 ms"):
            await hasty.hold("slower")

    virtual_world.run(scenario())


def test_an_oversize_request_is_refused_at_the_sender(remote_world: World) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(remote_world)
        with pytest.raises(OversizeRequestError) as caught:
            await gateway.add(ENTRY, "x" * 70_000)
        assert caught.value.method == "LedgerGateway.add"
        assert caught.value.size_bytes > 70_000
        assert caught.value.limit_bytes == 65536
        assert "pekko.framesize" in str(caught.value)
        with pytest.raises(OversizeRequestError, match=r"LedgerGateway\.note"):
            gateway.note("x" * 70_000)
        assert ledger.entries == [] and ledger.notes == []

    remote_world.run(scenario())


def test_an_oversize_request_is_refused_also_when_serialisation_is_forced() -> None:
    world = make_world("serialized")

    async def scenario() -> None:
        _, gateway = await connected(world)
        with pytest.raises(OversizeRequestError):
            await gateway.add(ENTRY, "x" * 70_000)

    world.run(scenario())


@pytest.mark.parametrize("kind", ["serialized", "remote"])
def test_a_reply_larger_than_a_message_fails_only_its_call(kind: str) -> None:
    world = make_world(kind)

    class Verbose(Ledger):
        async def echo(self, data: bytes) -> bytes:
            return data * 66_000

    async def scenario() -> None:
        endpoint = Verbose(world.callee)
        endpoint.start()
        gateway = await world.caller.connect(endpoint.address, LedgerGateway)
        with pytest.raises(OversizeReplyError) as caught:
            await gateway.echo(b"x")
        assert "echo" in caught.value.method and "pekko.framesize" in str(caught.value)
        assert await gateway.count() == 0

    world.run(scenario())


@pytest.mark.parametrize("kind", ["serialized", "remote"])
def test_an_argument_that_cannot_travel_is_named_at_the_caller(kind: str) -> None:
    world = make_world(kind)

    async def scenario() -> None:
        _, gateway = await connected(world)
        with pytest.raises(SerializationError, match="argument 'comment'"):
            await gateway.add(ENTRY, object())  # type: ignore[arg-type]

    world.run(scenario())


@pytest.mark.parametrize("kind", ["serialized", "remote"])
def test_an_argument_of_another_type_is_refused_at_the_callee(kind: str) -> None:
    world = make_world(kind)

    async def scenario() -> None:
        ledger, gateway = await connected(world)
        with pytest.raises(SerializationError, match=r"Expected `str`, got `int`"):
            await gateway.add(ENTRY, 5)  # type: ignore[arg-type]
        assert ledger.entries == []

    world.run(scenario())


def test_an_unknown_method_is_an_error_of_the_caller(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, _ = await connected(world)
        newer = create_proxy(NewerLedgerGateway, world.caller, parse_address(ledger.address), None)
        with pytest.raises(UnknownMethodError, match="subtract"):
            await newer.subtract(ENTRY)

    world.run(scenario())


def test_connecting_needs_an_endpoint_that_offers_the_gateway(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, _ = await connected(world)
        with pytest.raises(RpcHandshakeError, match="UnofferedGateway"):
            await world.caller.connect(ledger.address, UnofferedGateway)
        with pytest.raises(RpcConnectionError, match="nobody"):
            await world.caller.connect(ledger.address.replace("/ledger", "/nobody"), LedgerGateway)
        with pytest.raises(RpcConnectionError, match="form"):
            await world.caller.connect("localhost:6123", LedgerGateway)

    world.run(scenario())


def test_connecting_to_a_process_that_is_not_there_fails_at_once(remote_world: World) -> None:
    async def scenario() -> None:
        started_ms = remote_world.clock.now_ms()
        with pytest.raises(RpcConnectionError, match="no process listens"):
            await remote_world.caller.connect(
                "headrace.loopback://elsewhere/rpc/ledger", LedgerGateway
            )
        assert remote_world.clock.now_ms() == started_ms

    remote_world.run(scenario())


def test_asks_on_their_way_fail_when_the_process_dies(remote_world: World) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(remote_world)
        asks = [asyncio.ensure_future(gateway.hold(str(number))) for number in range(3)]
        await remote_world.until(lambda: len(ledger.begun) == 3)
        remote_world.network.kill("callee")
        started_ms = remote_world.clock.now_ms()
        for ask in asks:
            with pytest.raises(RecipientUnreachableError, match="connection was closed"):
                await ask
        with pytest.raises(RecipientUnreachableError, match="no process listens"):
            await gateway.count()
        assert remote_world.clock.now_ms() == started_ms
        for name in ledger.begun:
            ledger.release(name)
        await remote_world.advance_ms(60_000)
        assert ledger.ended == []

    remote_world.run(scenario())


def test_the_next_call_reaches_a_process_that_came_back(remote_world: World) -> None:
    async def scenario() -> None:
        _, gateway = await connected(remote_world)
        remote_world.network.kill("callee")
        with pytest.raises(RecipientUnreachableError):
            await gateway.count()
        Ledger(remote_world.network.create_service("callee")).start()
        assert await gateway.count() == 0

    remote_world.run(scenario())


def test_a_host_that_vanishes_is_noticed_by_the_timeout(remote_world: World) -> None:
    async def scenario() -> None:
        _, gateway = await connected(remote_world)
        remote_world.network.kill("callee", breaks_connections=False)
        with pytest.raises(AskTimeoutError):
            await gateway.count()

    remote_world.run(scenario())


def test_a_caller_that_gives_up_leaves_nothing_behind(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger, gateway = await connected(world)
        ask = asyncio.ensure_future(gateway.hold("x"))
        await world.until(lambda: ledger.begun == ["x"])
        ask.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ask
        ledger.release("x")
        await world.until(lambda: ledger.ended == ["x"])
        assert await gateway.count() == 0
        assert world.caller.outstanding_count == 0

    world.run(scenario())
