"""Gateways from Protocols: what may be declared, and that every gateway of the cluster travels."""

import inspect
from typing import Any, Protocol

import msgspec
import pytest

from headrace.core.ids import ResourceId
from headrace.gateways import dispatcher, job_master, resource_manager, task_executor
from headrace.rpc.contract import gateway_contract, is_gateway
from headrace.rpc.errors import GatewayDefinitionError, SerializationError
from tests.unit.rpc.sample_endpoints import ENTRY, Added, Declined, Ledger, LedgerGateway

GATEWAYS = [
    dispatcher.DispatcherGateway,
    job_master.JobGateway,
    job_master.JobMasterGateway,
    resource_manager.ResourceManagerGateway,
    task_executor.TaskExecutorGateway,
]


@pytest.mark.parametrize("gateway_type", GATEWAYS)
def test_every_gateway_of_the_cluster_has_a_closed_schema(gateway_type: type) -> None:
    contract = gateway_contract(gateway_type)
    public = {name for name, _ in inspect.getmembers(gateway_type, inspect.isfunction)}
    assert set(contract.methods) == {name for name in public if not name.startswith("_")}


def test_calls_are_asks_or_tells_by_how_they_are_declared() -> None:
    methods = gateway_contract(LedgerGateway).methods
    assert {name for name, method in methods.items() if not method.is_ask} == {"note"}


def test_arguments_are_bound_in_order_with_defaults() -> None:
    add = gateway_contract(LedgerGateway).methods["add"]
    assert add.bind((ENTRY,), {}) == (ENTRY, "none")
    assert add.bind((), {"comment": "x", "entry": ENTRY}) == (ENTRY, "x")


def test_arguments_and_replies_survive_the_journey_with_their_types() -> None:
    add = gateway_contract(LedgerGateway).methods["add"]
    assert add.decode_arguments(add.encode_arguments((ENTRY, "x"))) == (ENTRY, "x")
    for reply in (Added(ENTRY), Declined("no")):
        assert add.decode_reply(add.encode_reply(reply)) == reply


def test_bytes_that_are_no_arguments_are_refused() -> None:
    add = gateway_contract(LedgerGateway).methods["add"]
    for garbage in (b"", b"\xc1", b"\x93\x01\x02\x03", msgspec.msgpack.encode([1])):
        with pytest.raises(SerializationError, match=r"LedgerGateway\.add"):
            add.decode_arguments(garbage)


class LiveGateway(Protocol):
    async def peer(self) -> LedgerGateway: ...


class AnyGateway(Protocol):
    async def anything(self, value: Any) -> None: ...


class NestedAnyGateway(Protocol):
    async def anything(self, values: dict[str, list[Any]]) -> None: ...


class ObjectGateway(Protocol):
    async def keep(self, error: ValueError) -> None: ...


class UntypedGateway(Protocol):
    async def keep(self, value) -> None: ...  # type: ignore[no-untyped-def]


class AnsweringTellGateway(Protocol):
    def keep(self, value: int) -> int: ...


class VariadicGateway(Protocol):
    async def keep(self, *values: int) -> None: ...


@pytest.mark.parametrize(
    ("gateway_type", "complaint"),
    [
        (LiveGateway, "a LedgerGateway cannot be encoded"),
        (AnyGateway, "Any is not a type that can be encoded"),
        (NestedAnyGateway, "Any is not a type that can be encoded"),
        (ObjectGateway, "a ValueError cannot be encoded"),
        (UntypedGateway, "parameter 'value' has no type"),
        (AnsweringTellGateway, "must return None"),
        (VariadicGateway, "cannot be typed"),
        (Ledger, "is not a Protocol"),
    ],
)
def test_what_cannot_travel_cannot_be_declared(gateway_type: type, complaint: str) -> None:
    with pytest.raises(GatewayDefinitionError, match=complaint):
        gateway_contract(gateway_type)


def test_an_implementation_is_not_a_gateway() -> None:
    class Implementing(LedgerGateway):
        pass

    assert is_gateway(LedgerGateway)
    assert not is_gateway(Implementing) and not is_gateway(ResourceId)
