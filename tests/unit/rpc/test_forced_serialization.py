"""The switch that encodes calls within one process: it is on where it should be, in every kind of cluster.

What cannot travel (here an `object()` as a job's id) is refused by its encoding, and by nothing else, so these tests
tell a switch that works from one that is only set.
"""

from contextlib import nullcontext
from typing import cast

import pytest

from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import JobId
from headrace.gateways.errors import UnknownJobError
from headrace.rpc.errors import SerializationError
from testkit.simulation.simulated_cluster import SimulatedCluster
from tests.unit.rpc.conftest import FORCED, TcpWorld, World, make_world
from tests.unit.rpc.sample_endpoints import ENTRY, Ledger, LedgerGateway
from tests.unit.rpc.tcp_services import Run, make_service, started

CANNOT_TRAVEL = cast(JobId, object())
CASES = [("true", True), ("false", False), (None, None)]
"""What the settings say, and whether calls are then encoded; None stands for what this run was started with."""


@pytest.fixture(params=CASES, ids=["true", "false", "as this run was started"])
def case(request: pytest.FixtureRequest, forced_serialization: bool) -> tuple[dict[str, str], bool]:
    text, is_forced = request.param
    settings = {} if text is None else {FORCED: text}
    return settings, forced_serialization if is_forced is None else is_forced


def test_within_a_process_of_the_loopback_network(case: tuple[dict[str, str], bool]) -> None:
    settings, is_forced = case
    world = make_world("by reference", settings)

    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway)
        with pytest.raises(SerializationError) if is_forced else nullcontext():
            await gateway.add(ENTRY, cast(str, object()))
        assert len(ledger.entries) == (0 if is_forced else 1)

    world.run(scenario())


def test_within_a_process_on_the_network(case: tuple[dict[str, str], bool], run: Run) -> None:
    settings, is_forced = case

    async def scenario() -> None:
        async with started(service := make_service(settings)):
            ledger = Ledger(service)
            ledger.start()
            gateway = await service.connect(ledger.address, LedgerGateway)
            with pytest.raises(SerializationError) if is_forced else nullcontext():
                gateway.note(cast(str, object()))
            await gateway.add(ENTRY)
            assert len(ledger.notes) == (0 if is_forced else 1)
            assert (ledger.entries[0] is ENTRY) is not is_forced

    run(scenario())


def test_calls_are_encoded_in_a_minicluster_where_the_settings_say_so(
    case: tuple[dict[str, str], bool],
) -> None:
    settings, is_forced = case
    with MiniCluster(settings=settings) as cluster:
        handle = cluster.handle
        with pytest.raises(SerializationError if is_forced else UnknownJobError):
            handle.call(handle.dispatcher.request_job_status(CANNOT_TRAVEL))


def test_calls_are_encoded_in_a_simulated_cluster_where_the_settings_say_so(
    case: tuple[dict[str, str], bool],
) -> None:
    settings, is_forced = case
    simulation = SimulatedCluster(1, settings=settings)
    with pytest.raises(SerializationError if is_forced else UnknownJobError):
        simulation.loop.run_until(simulation.dispatcher.request_job_status(CANNOT_TRAVEL))
    simulation.close()


def test_every_world_of_this_suite_says_truly_whether_it_copies(
    world: World | TcpWorld, forced_serialization: bool
) -> None:
    async def scenario() -> None:
        ledger = Ledger(world.callee)
        ledger.start()
        gateway = await world.caller.connect(ledger.address, LedgerGateway)
        await gateway.add(ENTRY)
        assert (ledger.entries[0] is not ENTRY) is world.is_serialized
        assert world.is_serialized or not forced_serialization

    world.run(scenario())
