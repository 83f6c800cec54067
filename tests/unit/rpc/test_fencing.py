"""A call with a wrong or missing token never reaches a handler of a fenced endpoint."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import FencingToken
from headrace.rpc.errors import FencingTokenError
from tests.unit.rpc.conftest import AnyWorld, make_world
from tests.unit.rpc.sample_endpoints import (
    ENTRY,
    OTHER_TOKEN,
    TOKEN,
    Added,
    FencedLedger,
    Ledger,
    LedgerGateway,
)


def test_the_right_token_opens(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger = FencedLedger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway, TOKEN)
        assert await gateway.add(ENTRY) == Added(ENTRY)
        assert await ledger.self_gateway(LedgerGateway).add(ENTRY) == Added(ENTRY)

    world.run(scenario())


@pytest.mark.parametrize("token", [OTHER_TOKEN, None], ids=["another leader's", "none"])
def test_any_other_token_is_refused_and_learns_the_beginning_alone_of_the_right_one(
    world: AnyWorld, token: FencingToken | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger = FencedLedger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway, token)
        gateway.note("stale")
        with pytest.raises(
            FencingTokenError, match=f"the endpoint has {TOKEN.hex()[:8]}…"
        ) as caught:
            await gateway.add(ENTRY)
        assert TOKEN.hex() not in f"{caught.value} {caught.value.expected}"
        assert caught.value.actual == (token.hex() if token else None)
        assert ledger.notes == [] and ledger.entries == []
        assert ledger.stale_call_count == 2

    with caplog.at_level(logging.WARNING):
        world.run(scenario())
    assert "LedgerGateway.note" in caplog.text


def test_an_endpoint_that_is_not_fenced_refuses_tokens(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway, TOKEN)
        with pytest.raises(FencingTokenError, match="the endpoint has none"):
            await gateway.add(ENTRY)

    world.run(scenario())


@given(
    st.lists(st.tuples(st.sampled_from([TOKEN, OTHER_TOKEN, None]), st.booleans()), max_size=20),
    st.sampled_from(["by reference", "serialized", "remote"]),
)
def test_of_any_mixture_exactly_the_calls_with_the_token_arrive(
    calls: list[tuple[FencingToken | None, bool]], place: str
) -> None:
    world = make_world(place)

    async def scenario() -> None:
        ledger = FencedLedger(world.callee)
        ledger.start()
        asks = []
        for number, (token, is_tell) in enumerate(calls):
            gateway = await world.caller.connect(ledger.address, LedgerGateway, token)
            if is_tell:
                gateway.note(str(number))
            else:
                ledger.release(str(number))
                asks.append(asyncio.ensure_future(gateway.hold(str(number))))
        await asyncio.gather(*asks, return_exceptions=True)
        # What comes last from the same sender is handled last.
        await (await world.caller.connect(ledger.address, LedgerGateway, TOKEN)).count()
        arrived = sorted(int(name) for name in ledger.notes + ledger.begun)
        assert arrived == [n for n, (token, _) in enumerate(calls) if token is TOKEN]

    logging.getLogger("headrace.rpc").setLevel(logging.CRITICAL)
    try:
        world.run(scenario())
    finally:
        logging.getLogger("headrace.rpc").setLevel(logging.NOTSET)
