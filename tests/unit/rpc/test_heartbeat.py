"""Heartbeats: the monitor as a pure machine, and sender and receiver on lossy links."""

from random import Random
from typing import Protocol

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.heartbeat import (
    ArmTimer,
    AskWitness,
    HeartbeatEvent,
    HeartbeatLoss,
    HeartbeatMonitor,
    HeartbeatReceived,
    HeartbeatReceiver,
    HeartbeatSender,
    HeartbeatTimings,
    MonitoringCanceled,
    MonitorState,
    NotifyLost,
    PeerUnreachable,
    TimerFired,
    WitnessAnswered,
)
from headrace.rpc.service import RpcService
from testkit.simulation.lossy_network import LinkFaults, LossyNetwork
from tests.unit.rpc.conftest import World, make_world

MS = 1_000_000
TIMINGS = HeartbeatTimings(interval_ms=10, timeout_ms=50, rpc_failure_threshold=2)


def test_the_options_are_flinks() -> None:
    assert HeartbeatTimings.from_settings(Settings()) == HeartbeatTimings(10_000, 50_000, 2)


def test_the_timer_looks_how_old_the_last_sign_is() -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0)
    assert monitor.start() == [ArmTimer(50)]
    assert monitor.handle(HeartbeatReceived(30 * MS)) == []
    assert monitor.handle(TimerFired(50 * MS)) == [ArmTimer(30)]
    assert monitor.handle(TimerFired(80 * MS)) == [NotifyLost(MonitorState.TIMEOUT)]
    assert monitor.handle(TimerFired(200 * MS)) == []


def test_unreachable_counts_only_in_a_row() -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0)
    assert monitor.handle(PeerUnreachable()) == []
    assert monitor.handle(HeartbeatReceived(1)) == []
    assert monitor.handle(PeerUnreachable()) == []
    assert monitor.handle(PeerUnreachable()) == [NotifyLost(MonitorState.UNREACHABLE)]
    assert monitor.handle(PeerUnreachable()) == []


def test_a_threshold_below_zero_leaves_silence_as_the_only_proof() -> None:
    monitor = HeartbeatMonitor(HeartbeatTimings(10, 50, -1), now_ns=0)
    assert all(monitor.handle(PeerUnreachable()) == [] for _ in range(100))
    assert monitor.handle(TimerFired(50 * MS)) == [NotifyLost(MonitorState.TIMEOUT)]


def test_a_timer_that_comes_late_gives_the_peer_a_whole_timeout_more() -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0)
    assert monitor.handle(TimerFired(70 * MS)) == [ArmTimer(50)]
    assert monitor.handle(TimerFired(120 * MS)) == [NotifyLost(MonitorState.TIMEOUT)]


def test_a_silent_peer_is_lost_only_where_its_witness_does_not_say_that_it_is_alive() -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0, has_witness=True)
    assert monitor.handle(TimerFired(50 * MS)) == [AskWitness()]
    assert monitor.handle(WitnessAnswered(51 * MS, is_alive=True)) == [ArmTimer(10)]
    assert monitor.handle(TimerFired(61 * MS)) == [AskWitness()]
    assert monitor.handle(WitnessAnswered(62 * MS, is_alive=False)) == [
        NotifyLost(MonitorState.TIMEOUT)
    ]


def test_a_sign_of_life_outweighs_a_witness_that_knows_of_none() -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0, has_witness=True)
    assert monitor.handle(TimerFired(50 * MS)) == [AskWitness()]
    monitor.handle(HeartbeatReceived(51 * MS))
    assert monitor.handle(WitnessAnswered(52 * MS, is_alive=False)) == [ArmTimer(49)]


EVENTS = st.one_of(
    st.builds(HeartbeatReceived, st.integers(0, 1000).map(lambda ms: ms * MS)),
    st.builds(TimerFired, st.integers(0, 1000).map(lambda ms: ms * MS)),
    st.just(PeerUnreachable()),
    st.just(MonitoringCanceled()),
)


@given(st.lists(EVENTS, max_size=40))
def test_a_loss_is_told_at_most_once_and_never_after_cancelling(
    events: list[HeartbeatEvent],
) -> None:
    monitor = HeartbeatMonitor(TIMINGS, now_ns=0)
    losses = 0
    for event in events:
        was_running = monitor.state is MonitorState.RUNNING
        actions = monitor.handle(event)
        losses += sum(isinstance(action, NotifyLost) for action in actions)
        assert was_running or not actions
        assert all(action.delay_ms > 0 for action in actions if isinstance(action, ArmTimer))
    assert losses == (monitor.state in (MonitorState.TIMEOUT, MonitorState.UNREACHABLE))


# -- sender and receiver ---------------------------------------------------------------------------------------------


class Report(msgspec.Struct, frozen=True):
    number: int


class WorkerGateway(Protocol):
    async def heartbeat(self, resource_id: ResourceId) -> Report: ...


LEADER, WORKER = ResourceId("leader"), ResourceId("worker")
Losses = list[tuple[float, ResourceId, MonitorState]]


class Worker(RpcEndpoint):
    gateway_types = (WorkerGateway,)

    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "worker")
        self.request_count = 0
        self.losses: Losses = []
        self.receiver = HeartbeatReceiver(self, self._lost)

    async def on_start(self) -> None:
        self.receiver.monitor_target(LEADER)

    async def heartbeat(self, resource_id: ResourceId) -> Report:
        self.request_count += 1
        self.receiver.request_received(resource_id)
        return Report(self.request_count)

    def _lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.losses.append((self.clock.now_ms(), resource_id, loss.state))


class Leader(RpcEndpoint):
    def __init__(self, service: RpcService) -> None:
        super().__init__(service, "leader")
        self.losses: Losses = []
        self.texts: list[str] = []
        self.payloads: list[Report] = []
        self.sender: HeartbeatSender[Report] = HeartbeatSender(self, self._lost, self._payload)

    async def watch(self, address: str) -> None:
        gateway = await self.rpc_service.connect(address, WorkerGateway)
        self.sender.monitor_target(WORKER, lambda: gateway.heartbeat(LEADER))

    def _lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.losses.append((self.clock.now_ms(), resource_id, loss.state))
        self.texts.append(loss.text)

    def _payload(self, _: ResourceId, payload: Report) -> None:
        self.payloads.append(payload)


async def pair(world: World) -> tuple[Leader, Worker]:
    leader, worker = Leader(world.caller), Worker(world.callee)
    leader.start()
    worker.start()
    await world.advance_ms(1)
    await leader.watch(worker.address)
    return leader, worker


def test_a_peer_that_answers_is_never_lost(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, worker = await pair(virtual_world)
        await virtual_world.advance_ms(1_000_000)
        assert leader.losses == worker.losses == []
        # One at once, then one per interval.
        assert [report.number for report in leader.payloads] == list(range(1, 101))

    virtual_world.run(scenario(), max_virtual_ms=2_000_000)


def test_a_process_that_dies_is_unreachable_after_two_heartbeats(remote_world: World) -> None:
    async def scenario() -> None:
        leader, _ = await pair(remote_world)
        started_ms = remote_world.clock.now_ms()
        await remote_world.advance_ms(5_000)
        remote_world.network.kill("callee")
        await remote_world.advance_ms(200_000)
        assert leader.losses == [(started_ms + 20_000, WORKER, MonitorState.UNREACHABLE)]
        assert "could not be reached by 2 heartbeats" in leader.texts[0]

    remote_world.run(scenario())


def test_a_host_that_vanishes_is_lost_by_silence(remote_world: World) -> None:
    async def scenario() -> None:
        leader, _ = await pair(remote_world)
        started_ms = remote_world.clock.now_ms()
        await remote_world.advance_ms(25_000)
        remote_world.network.kill("callee", breaks_connections=False)
        await remote_world.advance_ms(500_000)
        assert leader.losses == [(started_ms + 70_000, WORKER, MonitorState.TIMEOUT)]
        assert "no heartbeat from worker for 50000 ms ('heartbeat.timeout')" in leader.texts[0]

    remote_world.run(scenario())


@pytest.mark.parametrize(("source", "target"), [("caller", "callee"), ("callee", "caller")])
def test_a_link_cut_in_either_direction_is_noticed_once(source: str, target: str) -> None:
    world = make_world("remote")
    lossy = world.network.policy = LossyNetwork(world.clock, Random(1))

    async def scenario() -> None:
        leader, worker = await pair(world)
        await world.advance_ms(25_000)
        lossy.cut(source, target)
        await world.advance_ms(500_000)
        assert [state for _, _, state in leader.losses] == [MonitorState.TIMEOUT]
        # Where answers are lost, requests still tell the worker that its leader lives, until the leader gives up.
        assert [state for _, _, state in worker.losses] == [MonitorState.TIMEOUT]
        assert (worker.losses[0] > leader.losses[0]) is (source == "callee")

    world.run(scenario())


def test_an_error_of_the_handler_is_no_proof_of_death(virtual_world: World) -> None:
    class Failing(Worker):
        async def heartbeat(self, resource_id: ResourceId) -> Report:
            self.request_count += 1
            raise LookupError("busy")

    async def scenario() -> None:
        leader, worker = Leader(virtual_world.caller), Failing(virtual_world.callee)
        leader.start()
        worker.start()
        await leader.watch(worker.address)
        await virtual_world.advance_ms(45_000)
        assert leader.losses == [] and worker.request_count == 5
        await virtual_world.advance_ms(10_000)
        assert [state for _, _, state in leader.losses] == [MonitorState.TIMEOUT]

    virtual_world.run(scenario())


class Size(int):
    """A number that the codec does not take."""


def test_answers_that_cannot_be_sent_are_told_once(
    remote_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Sizing(Worker):
        async def heartbeat(self, resource_id: ResourceId) -> Report:
            return Report(Size(1))

    async def scenario() -> None:
        leader, worker = Leader(remote_world.caller), Sizing(remote_world.callee)
        leader.start()
        worker.start()
        await leader.watch(worker.address)
        await remote_world.advance_ms(55_000)
        assert [state for _, _, state in leader.losses] == [MonitorState.TIMEOUT]

    remote_world.run(scenario())
    [told] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert told.startswith(
        "heartbeats of worker fail, so that it will count as lost: result (Report)"
    )


def test_nothing_comes_after_unmonitoring_or_stopping(virtual_world: World) -> None:
    async def scenario() -> None:
        leader, worker = await pair(virtual_world)
        await virtual_world.advance_ms(15_000)
        leader.sender.unmonitor_target(WORKER)
        worker.receiver.stop()
        count = len(leader.payloads)
        await virtual_world.advance_ms(500_000)
        assert leader.losses == worker.losses == []
        assert len(leader.payloads) == worker.request_count == count
        assert not worker.receiver.request_received(LEADER)
        leader.sender.stop()

    virtual_world.run(scenario())


def test_monitoring_anew_forgets_the_old_target(remote_world: World) -> None:
    async def scenario() -> None:
        leader, worker = await pair(remote_world)
        remote_world.network.kill("callee")
        again = Worker(remote_world.network.create_service("callee"))
        again.start()
        await leader.watch(again.address)
        await remote_world.advance_ms(500_000)
        assert leader.losses == [] and again.request_count > 40
        assert worker.request_count <= 1

    remote_world.run(scenario())


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.4))
def test_silence_of_one_side_is_exactly_one_loss_whatever_else_is_in_flight(
    seed: int, loss: float
) -> None:
    world = make_world("remote")
    lossy = world.network.policy = LossyNetwork(world.clock, Random(seed))

    async def scenario() -> None:
        leader, worker = await pair(world)
        lossy.set_faults(LinkFaults(loss=loss, duplication=0.2, reordering=0.3, delay_max_ms=3000))
        await world.advance_ms(200_000)
        lossy.partition({"caller"}, {"callee"})
        await world.advance_ms(100_000)
        assert len(leader.losses) == len(worker.losses) == 1
        lossy.heal()
        await world.advance_ms(200_000)
        assert len(leader.losses) == len(worker.losses) == 1

    world.run(scenario())
