"""Gateway proxies: objects that look like the gateway's Protocol and turn each call into a message.

An ask returns a coroutine and is sent when that is first awaited (or made a task); a tell is sent at once. Endpoints
have addresses (RpcAddress) of the form `headrace.tcp://host:port/rpc/<endpoint name>`.
"""

import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headrace.core.ids import FencingToken
from headrace.rpc.contract import MethodContract, gateway_contract
from headrace.rpc.errors import RecipientUnreachableError, RpcConnectionError

if TYPE_CHECKING:
    from headrace.rpc.service import RpcService

_PATH: Final = "/rpc/"
NO_TIMEOUT_MS: Final = 21_474_835_000.0
"""Timeout of callers that wait without limit."""
G = TypeVar("G")


@dataclass(frozen=True)
class RpcAddress:
    """Address of an endpoint; `authority` names the process (`host:port`, or a name in the loopback network)."""

    scheme: str
    authority: str
    endpoint_name: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{_PATH}{self.endpoint_name}"


def parse_address(text: str) -> RpcAddress:
    """Parse an endpoint's address; RpcConnectionError if the text is not an address."""
    scheme, separator, rest = text.partition("://")
    authority, path, endpoint_name = rest.partition(_PATH)
    if not (scheme and separator and authority and path and endpoint_name):
        raise RpcConnectionError(text, "an address has the form headrace.tcp://host:port/rpc/name")
    return RpcAddress(scheme, authority, endpoint_name)


class GatewayProxy:
    """Base of the proxy classes made by `create_proxy`."""

    __slots__ = ("_caller", "_recipient", "_timeout_ms")

    def __init__(
        self, caller: "RpcService", recipient: "Recipient", timeout_ms: float | None = None
    ) -> None:
        self._caller = caller
        self._recipient = recipient
        self._timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._recipient.target})"

    @classmethod
    def copy_with_timeout(cls, proxy: "GatewayProxy", timeout_ms: float) -> "GatewayProxy":
        """Return a proxy with the same target, now and after `redirect`, but another timeout."""
        return cls(proxy._caller, proxy._recipient, timeout_ms)

    @staticmethod
    def recipient_of(proxy: "GatewayProxy") -> "Recipient":
        """Return the target of its calls."""
        return proxy._recipient


@dataclass
class Recipient:
    """Target of the calls of a gateway and its copies, with the leader session that the calls carry."""

    target: RpcAddress
    token: FencingToken | None
    refusal: Callable[[], Exception] | None = None
    """Function that creates the error of asks while there is no target."""
    ended: Callable[[], Exception] | None = None
    """Function that creates the error of asks whose target ends before it answers; None: RecipientUnreachableError."""


def create_proxy(
    gateway_type: type[G], caller: "RpcService", target: RpcAddress, token: FencingToken | None
) -> G:
    """Return a gateway whose calls go to `target`."""
    return cast(G, _proxy_class(gateway_type)(caller, Recipient(target, token)))


def with_timeout(gateway: G, timeout_ms: float) -> G:
    """Return the same gateway with asks that wait `timeout_ms` instead of `pekko.ask.timeout`."""
    proxy = _as_proxy(gateway)
    return cast(G, type(proxy).copy_with_timeout(proxy, timeout_ms))


def gateway_address(gateway: object) -> str:
    """Return the address that a gateway's calls go to."""
    return str(GatewayProxy.recipient_of(_as_proxy(gateway)).target)


def redirect(gateway: object, address: str, fencing_token: FencingToken | None) -> None:
    """Send later calls, also of copies with other timeouts, to the next leader; on the loop."""
    recipient = GatewayProxy.recipient_of(_as_proxy(gateway))
    recipient.target, recipient.token = parse_address(address), fencing_token
    recipient.refusal = None


def refuse(gateway: object, refusal: Callable[[], Exception]) -> None:
    """Let later calls, also of copies with other timeouts, fail until `redirect`; on the loop."""
    GatewayProxy.recipient_of(_as_proxy(gateway)).refusal = refusal


def when_ended(gateway: object, error: Callable[[], Exception]) -> None:
    """Let asks whose target ends before it answers fail with this error, or with the refusal set by then."""
    GatewayProxy.recipient_of(_as_proxy(gateway)).ended = error


async def _answered(
    recipient: Recipient, target: RpcAddress, ask: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    try:
        return await ask()
    except RecipientUnreachableError as error:
        ended = recipient.refusal or recipient.ended
        if ended is None or not error.is_gone or error.target != str(target):
            raise
        raise ended() from error


async def _refused(refusal: Callable[[], Exception]) -> Any:
    raise refusal()


def _as_proxy(gateway: object) -> GatewayProxy:
    assert isinstance(gateway, GatewayProxy), f"{gateway!r} did not come from an RpcService"
    return gateway


@functools.cache
def _proxy_class(gateway_type: type) -> type[GatewayProxy]:
    members: dict[str, Any] = {"__slots__": (), "__doc__": f"Calls of {gateway_type.__name__}."}
    for name, method in gateway_contract(gateway_type).methods.items():
        members[name] = _asking(method) if method.is_ask else _telling(method)
    return type(f"{gateway_type.__name__}Proxy", (GatewayProxy,), members)


def _asking(method: MethodContract) -> Callable[..., Coroutine[Any, Any, Any]]:
    def ask(self: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        recipient: Recipient = self._recipient
        if recipient.refusal is not None:
            return _refused(recipient.refusal)
        target, bound, token = recipient.target, method.bind(args, kwargs), _token_bytes(recipient)
        if recipient.ended is None:
            return self._caller.ask(target, method, bound, token, self._timeout_ms)
        return _answered(
            recipient,
            target,
            lambda: self._caller.ask(target, method, bound, token, self._timeout_ms),
        )

    return _named(ask, method)


def _telling(method: MethodContract) -> Callable[..., None]:
    def tell(self: Any, *args: Any, **kwargs: Any) -> None:
        recipient: Recipient = self._recipient
        bound = method.bind(args, kwargs)
        self._caller.tell(recipient.target, method, bound, _token_bytes(recipient))

    return _named(tell, method)


def _token_bytes(recipient: Recipient) -> bytes | None:
    return None if recipient.token is None else recipient.token.value


def _named(function: Any, method: MethodContract) -> Any:
    function.__name__ = method.name
    function.__qualname__ = method.full_name
    function.__signature__ = method.signature
    return function
