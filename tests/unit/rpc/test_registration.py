"""The retry engine: the policy row by row, and the shell on a network that loses messages."""

import asyncio
from random import Random
from typing import Protocol

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.ids import FencingToken
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError
from headrace.rpc.registration import (
    Accepted,
    AttemptFailed,
    AttemptTimedOut,
    Connect,
    Connected,
    ConnectFailed,
    Refused,
    Register,
    RegistrationEvent,
    RegistrationPolicy,
    RegistrationTimings,
    Rejected,
    RetryingRegistration,
    Stop,
)
from headrace.rpc.service import RpcService
from testkit.simulation.lossy_network import LinkFaults, LossyNetwork
from tests.unit.rpc.conftest import World, make_world
from tests.unit.rpc.sample_endpoints import TOKEN

TIMINGS = RegistrationTimings(100, 350, 10_000, 30_000)


def test_the_options_are_flinks() -> None:
    assert RegistrationTimings.from_settings(Settings()) == RegistrationTimings(
        100, 30_000, 10_000, 30_000
    )


@pytest.mark.parametrize(
    ("event", "action"),
    [
        (ConnectFailed(), Connect(10_000)),
        (Connected(), Register(1, 100)),
        (AttemptTimedOut(), Register(2, 200)),
        (AttemptFailed(), Register(1, 100, 10_000)),
        (Refused("later"), Register(1, 100, 30_000)),
        (Rejected("never"), Stop()),
        (Accepted(), Stop()),
    ],
)
def test_each_answer_has_its_reaction(event: RegistrationEvent, action: object) -> None:
    assert RegistrationPolicy(TIMINGS).handle(event) == action


def test_timeouts_double_up_to_the_maximum_and_errors_begin_anew() -> None:
    policy = RegistrationPolicy(TIMINGS)
    events = [Connected(), *[AttemptTimedOut()] * 3, AttemptFailed(), AttemptTimedOut()]
    actions = [policy.handle(event) for event in events]
    assert actions == [
        Register(1, 100),
        Register(2, 200),
        Register(3, 350),
        Register(4, 350),
        Register(1, 100, 10_000),
        Register(2, 200),
    ]


@given(
    st.lists(
        st.sampled_from(
            [ConnectFailed(), Connected(), AttemptTimedOut(), AttemptFailed(), Refused("x")]
        )
    )
)
def test_without_an_answer_for_good_it_never_gives_up_and_stays_in_bounds(
    events: list[RegistrationEvent],
) -> None:
    policy = RegistrationPolicy(TIMINGS)
    for event in events:
        action = policy.handle(event)
        assert not isinstance(action, Stop)
        if isinstance(action, Register):
            assert 100 <= action.timeout_ms <= 350
            assert (action.delay_ms == 0) is isinstance(event, Connected | AttemptTimedOut)


# -- shell -----------------------------------------------------------------------------------------------------------


class Response(msgspec.Struct, frozen=True):
    verdict: str


class LeaderGateway(Protocol):
    async def register(self, name: str) -> Response: ...


class Leader(RpcEndpoint):
    """Answers registrations from a script; the last entry repeats."""

    gateway_types = (LeaderGateway,)

    def __init__(self, service: RpcService, *script: str, name: str = "leader") -> None:
        super().__init__(service, name)
        self.script = list(script)
        self.times_ms: list[int] = []

    async def register(self, name: str) -> Response:
        self.times_ms.append(self.clock.now_ms() - 1_000_000)
        verdict = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        match verdict:
            case "raise":
                raise LookupError("not ready")
            case "inner timeout":
                raise AskTimeoutError("Other.method", "somewhere else", 100)
            case "silence":
                await asyncio.Event().wait()
        return Response(verdict)


class Follower(RpcEndpoint):
    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "follower")
        self.outcomes: list[str] = []

    def registration(
        self,
        address: str,
        token: FencingToken | None = None,
        *,
        gives_up_when_gone: bool = False,
    ) -> RetryingRegistration[LeaderGateway, Response]:
        return RetryingRegistration(
            self,
            target_address=address,
            gateway_type=LeaderGateway,
            fencing_token=token,
            register=lambda gateway: gateway.register("me"),
            interpret=_interpret,
            on_success=lambda _, response: self._took(response.verdict),
            on_rejected=self._took,
            gives_up_when_gone=gives_up_when_gone,
        )

    def _took(self, outcome: str) -> None:
        self.validate_main_thread()
        self.outcomes.append(outcome)


def _interpret(response: Response) -> Refused | Rejected | None:
    match response.verdict:
        case "refuse":
            return Refused("come later")
        case "reject":
            return Rejected("never")
        case _:
            return None


def endpoints(world: World, *script: str) -> tuple[Leader, Follower]:
    leader, follower = Leader(world.callee, *script), Follower(world.caller)
    leader.start()
    follower.start()
    return leader, follower


@pytest.mark.parametrize(
    ("script", "times_ms", "outcome"),
    [
        (["welcome"], [0], ["welcome"]),
        (["silence", "silence", "silence", "welcome"], [0, 100, 300, 700], ["welcome"]),
        (["raise", "raise", "welcome"], [0, 10_000, 20_000], ["welcome"]),
        (["inner timeout", "welcome"], [0, 10_000], ["welcome"]),
        (["refuse", "welcome"], [0, 30_000], ["welcome"]),
        (
            ["silence", "silence", "raise", "silence", "welcome"],
            [0, 100, 300, 10_300, 10_400],
            None,
        ),
        (["refuse", "reject"], [0, 30_000], ["never"]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_registrations_are_sent_when_the_table_says(
    virtual_world: World, script: list[str], times_ms: list[int], outcome: list[str] | None
) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, *script)
        registration = follower.registration(leader.address)
        registration.start()
        await virtual_world.advance_ms(300_000)
        assert leader.times_ms == times_ms
        assert follower.outcomes == (outcome or ["welcome"])
        assert registration.is_registered is (follower.outcomes == ["welcome"])

    virtual_world.run(scenario())


def test_a_target_that_is_not_there_yet_is_tried_again_after_the_error_delay(
    remote_world: World,
) -> None:
    async def scenario() -> None:
        follower = Follower(remote_world.caller)
        follower.start()
        address = "headrace.loopback://later/rpc/leader"
        registration = follower.registration(address)
        registration.start()
        await remote_world.advance_ms(25_000)
        assert "no process listens at later" in registration.last_failure
        leader = Leader(remote_world.network.create_service("later"), "welcome")
        leader.start()
        await remote_world.advance_ms(10_000)
        assert leader.times_ms == [30_000] and follower.outcomes == ["welcome"]
        assert registration.last_failure == ""

    remote_world.run(scenario())


def test_whoever_says_so_gives_up_a_target_that_is_not_there_any_more(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, "welcome")
        await leader.close()
        follower.registration(leader.address, gives_up_when_gone=True).start()
        await virtual_world.advance_ms(1_000)
        (reason,) = follower.outcomes
        assert "there is no such endpoint" in reason

    virtual_world.run(scenario())


def test_a_stale_token_is_an_error_that_is_retried(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, "welcome")
        registration = follower.registration(leader.address, TOKEN)
        registration.start()
        await virtual_world.advance_ms(100_000)
        assert follower.outcomes == [] and leader.times_ms == []
        assert "FencingTokenError" in registration.last_failure

    virtual_world.run(scenario())


def test_nothing_is_heard_of_a_registration_that_was_closed(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, "silence", "welcome")
        registration = follower.registration(leader.address)
        registration.start()
        await virtual_world.advance_ms(100)  # the second attempt is on its way in this instant
        registration.close()
        registration.close()
        registration.try_reconnect()
        await virtual_world.advance_ms(100_000)
        assert follower.outcomes == [] and not registration.is_registered

    virtual_world.run(scenario())


def test_reconnecting_registers_anew_and_forgets_the_attempt_under_way(
    virtual_world: World,
) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, "first", "second", "silence", "third")
        registration = follower.registration(leader.address)
        registration.start()
        await virtual_world.advance_ms(1_000)
        registration.try_reconnect()
        assert not registration.is_registered
        await virtual_world.advance_ms(1_000)
        registration.try_reconnect()
        await virtual_world.advance_ms(50)
        registration.try_reconnect()
        await virtual_world.advance_ms(100_000)
        assert follower.outcomes == ["first", "second", "third"]
        assert len(leader.times_ms) == 4

    virtual_world.run(scenario())


def test_a_registration_ends_with_its_endpoint(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, follower = endpoints(virtual_world, "silence")
        follower.registration(leader.address).start()
        await virtual_world.advance_ms(1_000)
        await follower.close()
        count = len(leader.times_ms)
        await virtual_world.advance_ms(1_000_000)
        assert len(leader.times_ms) == count

    virtual_world.run(scenario(), max_virtual_ms=2_000_000)


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.7))
def test_a_lossy_network_delays_a_registration_and_never_doubles_its_outcome(
    seed: int, loss: float
) -> None:
    world = make_world("remote")
    faults = LinkFaults(loss=loss, duplication=0.3, reordering=0.5, delay_max_ms=150)
    world.network.policy = LossyNetwork(world.clock, Random(seed), faults)

    async def scenario() -> None:
        leader, follower = endpoints(world, "welcome")
        registration = follower.registration(leader.address)
        registration.start()
        while not registration.is_registered:
            await world.advance_ms(1_000)
        await world.advance_ms(100_000)
        assert follower.outcomes == ["welcome"]
        assert len(leader.times_ms) >= 1

    world.run(scenario(), max_virtual_ms=36_000_000)
