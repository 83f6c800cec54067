"""Which methods of an endpoint serve which calls."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.rpc.contract import MethodContract, gateway_contract, is_gateway
from headrace.rpc.errors import GatewayDefinitionError


@dataclass(frozen=True, eq=False)
class Handler:
    """A bound method of an endpoint, sync or async, and the contract it fulfils."""

    contract: MethodContract
    function: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, eq=False)
class Handlers:
    """All of one endpoint: by gateway and method name."""

    gateways: frozenset[str]
    by_method: Mapping[tuple[str, str], Handler]

    def find(self, gateway: str, method: str) -> Handler | None:
        """The handler, or None where the endpoint does not offer it."""
        return self.by_method.get((gateway, method))


def collect_handlers(endpoint: object, declared: tuple[type, ...]) -> Handlers:
    """Find the gateways an endpoint inherits from or declares, and its handlers for them.

    GatewayDefinitionError for a method that is missing; the Protocol's own empty body is none.
    """
    inherited = tuple(cls for cls in type(endpoint).__mro__ if is_gateway(cls))
    names: set[str] = set()
    handlers: dict[tuple[str, str], Handler] = {}
    for gateway_type in (*inherited, *declared):
        contract = gateway_contract(gateway_type)
        names.add(contract.name)
        for name, method in contract.methods.items():
            function = getattr(endpoint, name, None)
            body = getattr(type(endpoint), name, None)
            if function is None or body is getattr(gateway_type, name):
                raise GatewayDefinitionError(
                    f"{type(endpoint).__name__} does not implement {method.full_name}"
                )
            handlers[contract.name, name] = Handler(
                method, function, inspect.iscoroutinefunction(function)
            )
    return Handlers(frozenset(names), handlers)
