"""An in-process network: RpcServices on one event loop, with a policy that can drop, delay or duplicate messages.

Messages are encoded and decoded as over TCP, so that a simulation finds messages that cannot be encoded. Without a
policy every message arrives, in order.
"""

import asyncio
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom
from headrace.rpc import codec
from headrace.rpc.invocation import Respond
from headrace.rpc.service import Route, RpcService

_CONNECT_METHOD: Final = "connect"


class MessageKind(enum.Enum):
    """Kinds of messages in the loopback network."""

    CONNECT = "CONNECT"
    ASK = "ASK"
    TELL = "TELL"
    REPLY = "REPLY"


@dataclass(frozen=True)
class LoopbackMessage:
    """Description of a message for a policy. A reply names the endpoint and method that it answers."""

    source: str
    target: str
    kind: MessageKind
    endpoint_name: str
    method: str
    size_bytes: int


class DeliveryPolicy(Protocol):
    """Decides whether, when and how often each message arrives."""

    def decide(self, message: LoopbackMessage) -> Sequence[float]:
        """Return the delays in ms of the copies that arrive: `()` loses it, `(0,)` delivers it, `(0, 5)` doubles it."""
        ...


class ReliableDelivery:
    """Policy by which every message arrives at once, in order."""

    def decide(self, message: LoopbackMessage) -> Sequence[float]:
        """Return one copy without delay."""
        return (0.0,)


class LoopbackNetwork:
    """Connects the services it creates. `loop` defaults to the running one."""

    def __init__(
        self,
        clock: Clock,
        random: SeededRandom,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        policy: DeliveryPolicy | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._clock = clock
        self._random = random
        self._loop = loop
        self._settings = settings or Settings()
        self.policy: DeliveryPolicy = policy or ReliableDelivery()
        self._services: dict[str, LoopbackRpcService] = {}
        self._vanished: set[str] = set()

    @property
    def services(self) -> Mapping[str, "LoopbackRpcService"]:
        """Return the live services by name."""
        return self._services

    def create_service(self, name: str, clock: Clock | None = None) -> "LoopbackRpcService":
        """Create a process called `name`; the name can be used again once that process has ended."""
        assert name not in self._services, f"a service named {name} exists already"
        service = LoopbackRpcService(
            name,
            self,
            self._settings,
            clock or self._clock,
            self._random,
            self._loop or asyncio.get_running_loop(),
        )
        self._services[name] = service
        self._vanished.discard(name)
        return service

    def kill(self, name: str, *, breaks_connections: bool = True) -> None:
        """End a process at once. Its peers' connections break, as when a kernel closes them.

        Without `breaks_connections` the peers only notice silence, as when a whole host loses power.
        """
        service = self._services[name]
        if not breaks_connections:
            del self._services[name]
            self._vanished.add(name)
        service.abort()

    def has_vanished(self, name: str) -> bool:
        """Return whether messages to this process are lost silently rather than refused."""
        return name in self._vanished

    def transmit(self, message: LoopbackMessage, deliver: Callable[[], None]) -> None:
        """Deliver a message as the policy decides."""
        loop = self._loop or asyncio.get_running_loop()
        for delay_ms in self.policy.decide(message):
            if delay_ms <= 0:
                loop.call_soon(deliver)
            else:
                loop.call_later(delay_ms / 1000, deliver)

    def remove(self, name: str) -> None:
        """Remove a service that has ended, and fail the asks that wait for its answers."""
        if self._services.pop(name, None) is None:
            return
        for other in tuple(self._services.values()):
            other.connection_lost(name, "the connection was closed")


class LoopbackRpcService(RpcService):
    """RpcService of a process in a LoopbackNetwork."""

    scheme = "headrace.loopback"

    def __init__(
        self,
        name: str,
        network: LoopbackNetwork,
        settings: Settings,
        clock: Clock,
        random: SeededRandom,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(settings, clock, random, loop)
        self._name = name
        self._network = network

    @property
    def address(self) -> str:
        """Return the process's name."""
        return self._name

    def connection_lost(self, authority: str, reason: str) -> None:
        """Fail the outstanding asks to a lost peer."""
        self._outstanding.fail_route(_LoopbackRoute(self, authority), reason)

    def receive(self, frame: bytes, respond: Respond) -> None:
        """Handle a request that has arrived."""
        if not self.is_stopped:
            self._receive_request(codec.decode_request(frame), respond, self._frame_size)

    def receive_response(self, frame: bytes) -> None:
        """Handle a response that has arrived."""
        if not self.is_stopped:
            self._outstanding.complete(codec.decode_response(frame))

    @property
    def network(self) -> LoopbackNetwork:
        """Return the network of the service."""
        return self._network

    def _route(self, authority: str) -> Route:
        return _LoopbackRoute(self, authority)

    def _close_routes(self) -> None:
        self._network.remove(self._name)
        self._outstanding.fail_all("the RpcService here is stopped")


@dataclass(frozen=True)
class _LoopbackRoute:
    """The way from one service to another, which needs no connection."""

    source: LoopbackRpcService
    authority: str

    def send(self, request: codec.Request, frame: bytes) -> None:
        if self.source.is_stopped:
            return
        network = self.source.network
        addressee = network.services.get(self.authority)
        message = _describe(self.source.address, self.authority, request, len(frame))
        network.transmit(message, functools.partial(self._arrive, addressee, message, frame))

    def _arrive(
        self, addressee: LoopbackRpcService | None, message: LoopbackMessage, frame: bytes
    ) -> None:
        network = self.source.network
        target = network.services.get(self.authority)
        if network.has_vanished(self.authority):
            return
        if target is None:
            self.source.connection_lost(self.authority, f"no process listens at {self.authority}")
            return
        if addressee not in (None, target):
            return  # meant for a process that a new one has replaced; its connection ended with it
        target.receive(frame, functools.partial(self._answer, target, message))

    def _answer(
        self,
        target: LoopbackRpcService,
        request: LoopbackMessage,
        _: codec.Response,
        frame: bytes,
    ) -> None:
        if target.is_stopped:
            return
        reply = LoopbackMessage(
            self.authority,
            self.source.address,
            MessageKind.REPLY,
            request.endpoint_name,
            request.method,
            len(frame),
        )
        target.network.transmit(reply, functools.partial(self.source.receive_response, frame))


def _describe(source: str, target: str, request: codec.Request, size_bytes: int) -> LoopbackMessage:
    if isinstance(request, codec.ConnectRequest):
        kind, method = MessageKind.CONNECT, _CONNECT_METHOD
    else:
        kind = MessageKind.ASK if request.call_id else MessageKind.TELL
        method = request.method
    return LoopbackMessage(source, target, kind, request.endpoint_name, method, size_bytes)
