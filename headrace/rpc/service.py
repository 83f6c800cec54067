"""RpcService: owns the endpoints of a process and the routes to endpoints of other processes.

Calls within the process go by reference; calls to others are encoded by their contract and travel over a route that a
subclass provides (TCP, or the in-process network of the simulation). Source: Flink RpcService, PekkoRpcService.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from headrace.core.clock import Cancellable, Clock
from headrace.core.config import Settings
from headrace.core.ids import FencingToken
from headrace.core.randomness import SeededRandom
from headrace.core.threads import OrderedTasks, spawn
from headrace.rpc import codec
from headrace.rpc.connection import OutstandingAsks
from headrace.rpc.contract import MethodContract, gateway_contract
from headrace.rpc.errors import (
    NO_SUCH_ENDPOINT,
    AskTimeoutError,
    OversizeRequestError,
    RecipientUnreachableError,
    RpcConnectionError,
    RpcError,
    RpcHandshakeError,
)
from headrace.rpc.invocation import (
    FutureReply,
    Invocation,
    RemoteReply,
    Respond,
    SerializedFutureReply,
)
from headrace.rpc.main_thread import ForeignTimer, is_on_loop
from headrace.rpc.options import (
    ASK_TIMEOUT,
    FORCE_INVOCATION_SERIALIZATION,
    FRAME_SIZE,
    LOOKUP_TIMEOUT,
    SERVICES_SHUTDOWN_TIMEOUT,
)
from headrace.rpc.proxies import RpcAddress, create_proxy, parse_address
from headrace.rpc.server import EndpointServer

if TYPE_CHECKING:
    from headrace.rpc.endpoint import RpcEndpoint

G = TypeVar("G")
T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class Route(Hashable, Protocol):
    """Route to one other process. Equal routes lose their outstanding asks together."""

    def send(self, request: codec.Request, frame: bytes) -> None:
        """Send a request; never raises. The service is notified if the route is lost."""
        ...


class RpcService(ABC):
    """RPC of one process. Used on its loop only, except `schedule` and tells, which may come from any thread."""

    scheme: ClassVar[str]

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        random: SeededRandom,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.random = random
        self.loop = loop
        self.is_stopped = False
        self.on_fatal_error: Callable[[BaseException], None] | None = None
        self._servers: dict[str, EndpointServer] = {}
        self._name_counters: dict[str, int] = {}
        self._outstanding = OutstandingAsks()
        self._tasks: Final = OrderedTasks()
        self._ask_timeout_ms = settings.duration_ms(ASK_TIMEOUT)
        self._lookup_timeout_ms = settings.duration_ms(LOOKUP_TIMEOUT)
        self._shutdown_timeout_ms = settings.duration_ms(SERVICES_SHUTDOWN_TIMEOUT)
        self._frame_size = int(settings.get_option(FRAME_SIZE))
        self._is_serialization_forced = settings.get_option(FORCE_INVOCATION_SERIALIZATION)

    @property
    @abstractmethod
    def address(self) -> str:
        """Return `host:port`, or the process's name in a loopback network."""

    @property
    def outstanding_count(self) -> int:
        """Return the number of asks that wait for answers of other processes."""
        return len(self._outstanding)

    @abstractmethod
    def _route(self, authority: str) -> Route:
        """Return the route to another process, which may have to connect first."""

    def create_endpoint_name(self, prefix: str) -> str:
        """Return `<prefix>_<n>`, unique in this process: a later endpoint must not get messages of an earlier one."""
        number = self._name_counters.get(prefix, 0)
        self._name_counters[prefix] = number + 1
        return f"{prefix}_{number}"

    def start_server(self, endpoint: "RpcEndpoint") -> EndpointServer:
        """Register an endpoint; its constructor calls this."""
        assert not self.is_stopped, "the RpcService is stopped"
        name = endpoint.endpoint_name
        assert name not in self._servers, f"an endpoint named {name} exists already"
        address = str(RpcAddress(self.scheme, self.address, name))
        server = EndpointServer(endpoint, self, address)
        self._servers[name] = server
        return server

    def endpoint_terminated(self, endpoint: "RpcEndpoint") -> None:
        """Remove an endpoint that has ended; later calls do not find it."""
        self._servers.pop(endpoint.endpoint_name, None)

    @contextlib.contextmanager
    def forgetting_half_made(self) -> Generator[None]:
        """Remove endpoints that the block has begun to create, if it raises: constructors register them first."""
        before = tuple(self._servers)
        try:
            yield
        except BaseException:
            for name in self._servers.keys() - before:
                self._servers[name].abort()
            raise

    async def connect(
        self, address: str, gateway_type: type[G], fencing_token: FencingToken | None = None
    ) -> G:
        """Return a gateway to the endpoint at `address`, after asking whether it exists and offers that gateway.

        RpcConnectionError if nobody answers, RpcHandshakeError if the wrong process or endpoint answers.
        The connection is not watched afterwards; heartbeats do that.
        """
        target = parse_address(address)
        contract = gateway_contract(gateway_type)
        try:
            if target.authority == self.address:
                self._check_offers(target.endpoint_name, contract.name)
            else:
                await self._ask_remote(
                    target,
                    "connect",
                    lambda call_id: codec.ConnectRequest(
                        call_id, target.endpoint_name, contract.name
                    ),
                    self._lookup_timeout_ms,
                )
        except RpcHandshakeError:
            raise
        except RpcError as error:
            if isinstance(error.__cause__, RpcHandshakeError):
                raise error.__cause__ from None
            raise RpcConnectionError(address, str(error)) from error
        return create_proxy(gateway_type, self, target, fencing_token)

    def gateway(
        self, address: str, gateway_type: type[G], fencing_token: FencingToken | None = None
    ) -> G:
        """Return a gateway without checking that its target exists: for endpoints of this process."""
        return create_proxy(gateway_type, self, parse_address(address), fencing_token)

    def _check_offers(self, endpoint_name: str, gateway: str) -> None:
        address = str(RpcAddress(self.scheme, self.address, endpoint_name))
        server = self._servers.get(endpoint_name)
        if server is None:
            raise RecipientUnreachableError(address, "connect", NO_SUCH_ENDPOINT)
        if gateway not in server.gateways:
            raise RpcHandshakeError(address, f"the endpoint does not offer gateway {gateway}")

    async def ask(
        self,
        target: RpcAddress,
        method: MethodContract,
        arguments: tuple[Any, ...],
        token: bytes | None,
        timeout_ms: float | None,
    ) -> Any:
        """Call and wait for the result; raises the handler's error, or that of a lost connection or a timeout."""
        assert is_on_loop(self.loop), f"{method.full_name} was awaited on a foreign event loop"
        timeout_ms = self._ask_timeout_ms if timeout_ms is None else timeout_ms
        if target.authority == self.address:
            return await self._ask_local(target, method, arguments, token, timeout_ms)
        encoded = msgspec.Raw(method.encode_arguments(arguments))
        value = await self._ask_remote(
            target,
            method.full_name,
            lambda call_id: codec.Call(
                call_id, target.endpoint_name, method.gateway_name, method.name, token, encoded
            ),
            timeout_ms,
        )
        return method.decode_reply(value)

    def tell(
        self,
        target: RpcAddress,
        method: MethodContract,
        arguments: tuple[Any, ...],
        token: bytes | None,
    ) -> None:
        """Call without a reply; from any thread. Raises if the call cannot be sent; lost calls are logged."""
        is_local = target.authority == self.address
        if is_local and not self._is_serialization_forced:
            self._deliver_local(
                target, Invocation(method.gateway_name, method.name, token, arguments, None)
            )
            return
        encoded = msgspec.Raw(method.encode_arguments(arguments))
        call = codec.Call(0, target.endpoint_name, method.gateway_name, method.name, token, encoded)
        frame = self._encode_request(call, method.full_name)
        if is_local:
            self._deliver_local(
                target, Invocation(method.gateway_name, method.name, token, encoded, None)
            )
        elif is_on_loop(self.loop):
            self._send_tell(target, call, frame)
        else:
            self.loop.call_soon_threadsafe(self._send_tell, target, call, frame)

    def _send_tell(self, target: RpcAddress, call: codec.Call, frame: bytes) -> None:
        if self.is_stopped:
            _LOG.debug("%s of %s was not sent: the RpcService is stopped", call.method, target)
        else:
            self._route(target.authority).send(call, frame)

    async def _ask_local(
        self,
        target: RpcAddress,
        method: MethodContract,
        arguments: tuple[Any, ...],
        token: bytes | None,
        timeout_ms: float,
    ) -> Any:
        future: asyncio.Future[Any] = self.loop.create_future()
        if self._is_serialization_forced:
            encoded = msgspec.Raw(method.encode_arguments(arguments))
            call = codec.Call(
                1, target.endpoint_name, method.gateway_name, method.name, token, encoded
            )
            self._encode_request(call, method.full_name)
            reply = SerializedFutureReply(future, str(target), self._frame_size)
            invocation = Invocation(method.gateway_name, method.name, token, encoded, reply)
        else:
            reply = FutureReply(future)
            invocation = Invocation(method.gateway_name, method.name, token, arguments, reply)
        self._deliver_local(target, invocation)
        return await self._await_reply(future, method.full_name, target, timeout_ms)

    def _deliver_local(self, target: RpcAddress, invocation: Invocation) -> None:
        server = self._servers.get(target.endpoint_name)
        if server is None:
            invocation.fail(
                RecipientUnreachableError(str(target), invocation.full_name, NO_SUCH_ENDPOINT),
                str(target),
            )
        else:
            server.deliver(invocation)

    async def _ask_remote(
        self,
        target: RpcAddress,
        method: str,
        make_request: Callable[[int], codec.Request],
        timeout_ms: float,
    ) -> msgspec.Raw:
        if self.is_stopped:
            raise RecipientUnreachableError(str(target), method, "the RpcService here is stopped")
        route = self._route(target.authority)
        future: asyncio.Future[Any] = self.loop.create_future()
        call_id = self._outstanding.open(future, route, str(target), method)
        try:
            request = make_request(call_id)
            route.send(request, self._encode_request(request, method))
            return await self._await_reply(future, method, target, timeout_ms)
        finally:
            self._outstanding.forget(call_id)

    async def _await_reply(
        self, future: asyncio.Future[Any], method: str, target: RpcAddress, timeout_ms: float
    ) -> Any:
        def expire() -> None:
            if not future.done():
                server = self._servers.get(target.endpoint_name)
                is_local = target.authority == self.address
                load = server.load if is_local and server is not None else ""
                future.set_exception(AskTimeoutError(method, str(target), timeout_ms, load))

        timer = self.loop.call_later(timeout_ms / 1000, expire)
        try:
            return await future
        finally:
            timer.cancel()
            if future.done() and not future.cancelled():
                future.exception()  # a caller that is cancelled at the moment of a failure does not retrieve it

    def _encode_request(self, request: codec.Request, method: str) -> bytes:
        frame = codec.encode(request)
        if len(frame) > self._frame_size:
            raise OversizeRequestError(method, len(frame), self._frame_size, FRAME_SIZE.key)
        return frame

    def _receive_request(self, request: codec.Request, respond: Respond, limit_bytes: int) -> None:
        """Handle a request of another process, which accepts responses up to `limit_bytes`."""
        if isinstance(request, codec.ConnectRequest):
            reply = RemoteReply(request.call_id, "connect", respond, limit_bytes)
            try:
                self._check_offers(request.endpoint_name, request.gateway)
            except RpcError as error:
                reply.fail(error)
            else:
                reply.send(codec.Answer(request.call_id, codec.NIL))
            return
        invocation = Invocation(
            request.gateway, request.method, request.token, request.arguments, None
        )
        if request.call_id:
            reply = RemoteReply(request.call_id, invocation.full_name, respond, limit_bytes)
            invocation = replace(invocation, reply=reply)
        target = RpcAddress(self.scheme, self.address, request.endpoint_name)
        self._deliver_local(target, invocation)

    def schedule(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` on the loop after `delay_ms`; from any thread."""
        if is_on_loop(self.loop):
            return self.loop.call_later(delay_ms / 1000, callback)
        timer = ForeignTimer(self.loop, callback)
        self.loop.call_soon_threadsafe(timer.arm, delay_ms)
        return timer

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `coroutine` as a task of the service itself."""
        return spawn(coroutine, self.loop, name, self._tasks)

    def fatal_error(self, error: BaseException) -> None:
        """Report an error after which this process must not continue; the owner of the service decides how it ends."""
        _LOG.critical("fatal error in the process at %s", self.address, exc_info=error)
        if self.on_fatal_error is not None:
            self.on_fatal_error(error)
        else:
            raise error

    async def stop(self) -> None:
        """Terminate all endpoints, then every connection; idempotent."""
        if self.is_stopped:
            return
        terminations = [server.close() for server in tuple(self._servers.values())]
        if terminations:
            _, late = await asyncio.wait(terminations, timeout=self._shutdown_timeout_ms / 1000)
            if late:
                _LOG.error("%d endpoints at %s did not end in time", len(late), self.address)
        self.abort()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._shutdown_timeout_ms / 1000)

    def abort(self) -> None:
        """End at once: endpoints without `on_stop`, connections without sending buffered data."""
        self.is_stopped = True
        for server in tuple(self._servers.values()):
            server.abort()
        self._close_routes()

    @abstractmethod
    def _close_routes(self) -> None:
        """Drop every connection; outstanding asks fail."""
