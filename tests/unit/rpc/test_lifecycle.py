"""The life of an endpoint: what it serves when, and that nothing runs after its end."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.rpc.errors import (
    EndpointNotStartedError,
    EndpointStartError,
    GatewayDefinitionError,
    RecipientUnreachableError,
    RpcConnectionError,
)
from headrace.rpc.server import ENDPOINT_TRANSITIONS, EndpointState
from headrace.rpc.service import RpcService
from tests.unit.rpc.conftest import AnyWorld, World, make_world
from tests.unit.rpc.sample_endpoints import ENTRY, Added, Ledger, LedgerGateway, Slow, Started


def test_calls_before_the_start_are_dropped_with_an_error(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger = Ledger(world.callee)
        # The handshake is answered before the start.
        gateway = await world.caller.connect(ledger.address, LedgerGateway)
        gateway.note("lost")
        with pytest.raises(EndpointNotStartedError, match=r"LedgerGateway\.add"):
            await gateway.add(ENTRY)
        ledger.start()
        assert await gateway.add(ENTRY) == Added(ENTRY)
        assert ledger.notes == []

    world.run(scenario())


def test_messages_wait_until_the_start_is_complete(world: AnyWorld) -> None:
    async def scenario() -> None:
        slow = Slow(world.callee)
        slow.start()
        gateway = await world.caller.connect(slow.address, LedgerGateway)
        gateway.note("first")
        count = asyncio.ensure_future(gateway.count())
        await world.until(lambda: slow.queue_length == 2)
        assert slow.notes == [] and not count.done()
        slow.may_start.set()
        slow.may_stop.set()
        assert await count == 2
        assert slow.notes == ["started", "first"]

    world.run(scenario())


def test_an_endpoint_whose_constructor_fails_is_forgotten_with_its_timers(
    world: AnyWorld,
) -> None:
    made: list[Ledger] = []
    heard: list[str] = []

    class HalfMade(Ledger):
        def __init__(self, rpc_service: RpcService) -> None:
            super().__init__(rpc_service, "half")
            made.append(self)
            self.schedule_run_async(1, lambda: heard.append("timer"))
            raise ValueError("half made")

    async def scenario() -> None:
        whole = Ledger(world.callee)
        whole.start()
        with pytest.raises(ValueError, match="half made"), world.callee.forgetting_half_made():
            HalfMade(world.callee)
        (half,) = made
        assert half.state is EndpointState.TERMINATED
        with pytest.raises(RpcConnectionError):
            await world.caller.connect(half.address, LedgerGateway)
        whole.schedule_run_async(5, lambda: heard.append("later"))
        await world.until(lambda: bool(heard))
        assert heard == ["later"]

    world.run(scenario())


def test_a_second_start_is_ignored(local_world: World) -> None:
    async def scenario() -> None:
        slow = Slow(local_world.callee)
        slow.start()
        slow.start()
        slow.may_start.set()
        await slow.self_gateway(LedgerGateway).count()
        slow.start()
        await local_world.advance_ms(5000)
        assert slow.notes == ["started"]

    local_world.run(scenario())


def test_an_endpoint_that_cannot_start_terminates_with_the_reason(world: AnyWorld) -> None:
    class Broken(Slow):
        async def on_start(self) -> None:
            raise OSError("no disk")

    async def scenario() -> None:
        broken = Broken(world.callee)
        gateway = await world.caller.connect(broken.address, LedgerGateway)
        broken.start()
        with pytest.raises(RecipientUnreachableError):
            await gateway.count()
        with pytest.raises(EndpointStartError, match="OSError: no disk") as caught:
            await broken.termination
        assert isinstance(caught.value.__cause__, OSError)
        assert broken.notes == [], "on_stop is for endpoints that ran"

    world.run(scenario())


def test_a_terminating_endpoint_still_serves_until_on_stop_is_done(world: AnyWorld) -> None:
    async def scenario() -> None:
        slow = Started(world.callee)
        slow.start()
        gateway = await world.caller.connect(slow.address, LedgerGateway)
        await gateway.count()
        closing = asyncio.ensure_future(slow.close())
        await world.until(lambda: slow.notes[-1] == "stopping")
        assert slow.state is EndpointState.TERMINATING
        assert await gateway.add(ENTRY) == Added(ENTRY)
        ask = asyncio.ensure_future(gateway.hold("never"))
        await world.until(lambda: slow.begun == ["never"])
        slow.may_stop.set()
        await closing
        assert slow.notes[-1] == "stopped" and slow.state is EndpointState.TERMINATED
        with pytest.raises(RecipientUnreachableError, match="has terminated"):
            await ask
        with pytest.raises(RecipientUnreachableError, match="no such endpoint"):
            await gateway.count()

    world.run(scenario())


def test_closing_is_idempotent_and_an_endpoint_that_never_ran_ends_at_once(
    local_world: World,
) -> None:
    async def scenario() -> None:
        slow = Slow(local_world.callee)
        await asyncio.gather(slow.close(), slow.close())
        await slow.close()
        assert slow.notes == []
        slow.start()
        slow.may_start.set()
        await local_world.advance_ms(5000)
        assert slow.notes == [] and slow.state is EndpointState.TERMINATED

    local_world.run(scenario())


def test_an_error_of_on_stop_is_what_the_termination_fails_with(local_world: World) -> None:
    class Clumsy(Ledger):
        async def on_stop(self) -> None:
            raise OSError("still busy")

    async def scenario() -> None:
        clumsy = Clumsy(local_world.callee)
        clumsy.start()
        with pytest.raises(OSError, match="still busy"):
            await clumsy.close()
        assert clumsy.state is EndpointState.TERMINATED

    local_world.run(scenario())


def test_delayed_actions_never_run_after_close_has_begun(local_world: World) -> None:
    async def scenario() -> None:
        slow = Started(local_world.callee)
        slow.start()
        await slow.self_gateway(LedgerGateway).count()
        local_world.loop.call_later(2, slow.may_stop.set)
        slow.schedule_run_async(500, lambda: slow.notes.append("due before"))
        slow.schedule_run_async(1500, lambda: slow.notes.append("due while stopping"))
        slow.schedule_run_async(5000, lambda: slow.notes.append("due after"))
        cancelled = slow.schedule_run_async(100, lambda: slow.notes.append("cancelled"))
        cancelled.cancel()
        await local_world.advance_ms(1000)
        slow.close_async()
        await asyncio.sleep(0)
        slow.schedule_run_async(1, lambda: slow.notes.append("too late"))
        await local_world.advance_ms(60_000)
        assert slow.notes == ["started", "due before", "stopping", "stopped"]

    local_world.run(scenario())


def test_a_delayed_action_that_is_queued_behind_the_close_does_not_run(local_world: World) -> None:
    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        await local_world.advance_ms(1000)
        # Both timers are due in the same instant: the close is queued first, the action right behind it.
        local_world.loop.call_later(0.1, lambda: ledger.close_async())
        ledger.schedule_run_async(100, lambda: ledger.notes.append("ran"))
        await local_world.advance_ms(5000)
        assert ledger.notes == [] and ledger.state is EndpointState.TERMINATED

    local_world.run(scenario())


def test_spawned_tasks_end_with_their_endpoint(world: AnyWorld) -> None:
    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        await ledger.self_gateway(LedgerGateway).count()
        task = ledger.spawn(asyncio.Event().wait(), "sleeper")
        closing = ledger.close_async()
        unstarted = ledger.spawn(asyncio.Event().wait(), "born while closing")
        await closing
        assert task.cancelled() and unstarted.cancelled()
        with pytest.raises(RecipientUnreachableError):
            ledger.spawn(asyncio.Event().wait(), "too late")

    world.run(scenario())


def test_the_error_of_a_spawned_task_ends_the_endpoint(
    local_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing() -> None:
        raise LookupError("nothing there")

    async def scenario() -> None:
        ledger = Ledger(local_world.callee)
        ledger.start()
        await ledger.self_gateway(LedgerGateway).count()
        ledger.spawn(failing(), "finder")
        with pytest.raises(LookupError):
            await ledger.termination

    local_world.run(scenario())
    assert "finder" in caplog.text


def test_an_endpoint_may_close_itself_from_a_handler(world: AnyWorld) -> None:
    class Leaving(Ledger):
        async def add(self, entry, comment="none"):  # type: ignore[no-untyped-def]
            self.close_async()
            return Added(entry)

    async def scenario() -> None:
        leaving = Leaving(world.callee)
        leaving.start()
        gateway = await world.caller.connect(leaving.address, LedgerGateway)
        assert await gateway.add(ENTRY) == Added(ENTRY)
        await leaving.termination

    world.run(scenario())


def test_a_handler_that_is_cancelled_from_elsewhere_still_answers(world: AnyWorld) -> None:
    class Fragile(Ledger):
        async def hold(self, name: str) -> str:
            raise asyncio.CancelledError

    async def scenario() -> None:
        fragile = Fragile(world.callee)
        fragile.start()
        gateway = await world.caller.connect(fragile.address, LedgerGateway)
        with pytest.raises(RecipientUnreachableError, match="its handler was cancelled"):
            await gateway.hold("x")
        assert await gateway.count() == 0

    world.run(scenario())


def test_stopping_the_service_ends_every_endpoint(world: AnyWorld) -> None:
    async def scenario() -> None:
        slow, ledger = Started(world.callee, "slow"), Ledger(world.callee, "quick")
        slow.may_stop.set()
        slow.start()
        ledger.start()
        gateway = await world.caller.connect(slow.address, LedgerGateway)
        await gateway.count()
        await world.callee.stop()
        await world.callee.stop()
        assert slow.notes[-1] == "stopped"
        assert {slow.state, ledger.state} == {EndpointState.TERMINATED}
        with pytest.raises(RecipientUnreachableError):
            await gateway.count()

    world.run(scenario())


def test_a_stopped_service_sends_nothing_any_more(remote_world: World) -> None:
    async def scenario() -> None:
        ledger = Ledger(remote_world.callee)
        ledger.start()
        gateway = await remote_world.caller.connect(ledger.address, LedgerGateway)
        await remote_world.caller.stop()
        gateway.note("too late")
        with pytest.raises(RecipientUnreachableError, match="the RpcService here is stopped"):
            await gateway.count()
        await remote_world.advance_ms(1000)
        assert ledger.notes == []

    remote_world.run(scenario())


def test_stopping_does_not_wait_for_ever_for_an_endpoint_that_hangs(
    local_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(Ledger):
        async def on_stop(self) -> None:
            await asyncio.Event().wait()

    async def scenario() -> None:
        hanging = Hanging(local_world.callee)
        hanging.start()
        await hanging.self_gateway(LedgerGateway).count()
        started_ms = local_world.clock.now_ms()
        await local_world.callee.stop()
        assert local_world.clock.now_ms() - started_ms == 30_000
        assert hanging.state is EndpointState.TERMINATED

    local_world.run(scenario())
    assert "did not end in time" in caplog.text


def test_an_endpoint_must_implement_the_gateway_it_names(local_world: World) -> None:
    class Partial(Ledger):
        echo = None  # type: ignore[assignment]

    class Inheriting(LedgerGateway):
        pass

    with pytest.raises(GatewayDefinitionError, match=r"Partial does not implement .*echo"):
        Partial(local_world.callee)

    class Empty(Inheriting, Ledger):
        gateway_types = ()
        add = LedgerGateway.add  # type: ignore[assignment]

    with pytest.raises(GatewayDefinitionError, match=r"Empty does not implement .*add"):
        Empty(local_world.callee, "empty")


def test_names_of_endpoints_are_never_given_twice(local_world: World) -> None:
    service = local_world.callee
    names = [service.create_endpoint_name("job_master") for _ in range(3)]
    assert names == ["job_master_0", "job_master_1", "job_master_2"]
    assert service.create_endpoint_name("task_executor") == "task_executor_0"


def test_terminated_is_final_in_the_table_of_states() -> None:
    assert ENDPOINT_TRANSITIONS[EndpointState.TERMINATED] == frozenset()
    assert set(ENDPOINT_TRANSITIONS) == set(EndpointState)


@given(
    st.lists(
        st.sampled_from(["start", "note", "hold", "action", "schedule", "spawn", "turn", "ms"]),
        max_size=20,
    ),
    st.lists(st.sampled_from(["note", "hold", "action", "schedule", "start"]), max_size=10),
    st.sampled_from(["by reference", "serialized", "remote"]),
)
def test_after_close_nothing_runs_and_every_ask_was_answered(
    before: list[str], after: list[str], place: str
) -> None:
    world = make_world(place)

    async def scenario() -> None:
        slow = Slow(world.callee)
        world.loop.call_later(1, slow.may_start.set)
        world.loop.call_later(2, slow.may_stop.set)
        gateway = await world.caller.connect(slow.address, LedgerGateway)
        asks: list[asyncio.Future[str]] = []

        async def perform(step: str) -> None:
            match step:
                case "start":
                    slow.start()
                case "note":
                    gateway.note("note")
                case "hold":
                    world.loop.call_later(1.5, slow.release, f"held {len(asks)}")
                    asks.append(asyncio.ensure_future(gateway.hold(f"held {len(asks)}")))
                case "action":
                    slow.run_async(lambda: slow.notes.append("action"))
                case "schedule":
                    slow.schedule_run_async(700, lambda: slow.notes.append("scheduled"))
                case "spawn":
                    slow.spawn(asyncio.Event().wait(), "sleeper")
                case "turn":
                    await asyncio.sleep(0)
                case _:
                    await world.advance_ms(400)

        for step in before:
            await perform(step)
        closing = asyncio.ensure_future(slow.close())
        for step in after:
            await perform(step)
        await closing
        assert slow.state is EndpointState.TERMINATED
        frozen = (list(slow.notes), list(slow.begun), list(slow.ended))
        await world.advance_ms(100)
        assert all(ask.done() for ask in asks), "unreachable is answered at once, not by a timeout"
        await world.advance_ms(100_000)
        assert (slow.notes, slow.begun, slow.ended) == frozen
        await asyncio.gather(*asks, return_exceptions=True)

    world.run(scenario())


def test_the_log_of_a_dropped_tell_says_why(
    remote_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger = Ledger(remote_world.callee)
        ledger.start()
        gateway = await remote_world.caller.connect(ledger.address, LedgerGateway)
        await ledger.close()
        gateway.note("to nobody")
        await remote_world.advance_ms(1000)

    with caplog.at_level(logging.WARNING):
        remote_world.run(scenario())
    assert "LedgerGateway.note" in caplog.text and "no such endpoint" in caplog.text
