"""RpcEndpoint: the base of all objects that serve calls, with one main thread and one mailbox.

A subclass implements its gateway Protocol; handlers have the names of the Protocol's methods and run on the main
thread in the order of the calls. An `async def` handler yields the thread at each `await`: values that it read
before may be stale afterwards. A FencedRpcEndpoint serves only calls that carry the session of its leadership; its
token never changes: new leadership means a new endpoint.
Source: Flink RpcEndpoint, FencedRpcEndpoint, PekkoRpcActor; Hewitt, Bishop, Steiger 1973.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Generic, TypeVar

from headrace.core.clock import Cancellable, Clock
from headrace.core.config import Settings
from headrace.core.ids import FencingToken
from headrace.rpc.errors import FencingTokenError
from headrace.rpc.main_thread import is_on_loop
from headrace.rpc.server import EndpointState
from headrace.rpc.service import RpcService

T = TypeVar("T")
G = TypeVar("G")

_LOG = logging.getLogger(__name__)
F = TypeVar("F", bound=FencingToken)


class RpcEndpoint:
    """An actor. The constructor registers it with `rpc_service`; it serves calls after `start`.

    `gateway_types`: gateways that the class implements without inheriting from them.
    """

    gateway_types: ClassVar[tuple[type, ...]] = ()

    def __init__(self, rpc_service: RpcService, endpoint_name: str) -> None:
        self.rpc_service = rpc_service
        self.endpoint_name = endpoint_name
        self._scheduled: set[_ScheduledAction] = set()
        self._server = rpc_service.start_server(self)
        self.address = self._server.address

    @property
    def clock(self) -> Clock:
        """Return the process's clock."""
        return self.rpc_service.clock

    @property
    def settings(self) -> Settings:
        """Return the process's settings."""
        return self.rpc_service.settings

    @property
    def state(self) -> EndpointState:
        """Return the endpoint's state in its life cycle."""
        return self._server.state

    @property
    def queue_length(self) -> int:
        """Return the number of messages that wait for the main thread."""
        return self._server.queue_length

    @property
    def termination(self) -> asyncio.Future[None]:
        """Return a future that completes when the endpoint has ended; it fails with the error that ended it, if any."""
        return self._server.termination

    def start(self) -> None:
        """Run `on_start`, then begin to serve; from any thread."""
        self._server.start()

    async def on_start(self) -> None:
        """Prepare the endpoint; subclasses override it.

        No message is served before it ends, so it must not wait for one.
        """

    async def on_stop(self) -> None:
        """Release resources; subclasses override it. Messages are still served while it waits."""

    def close_async(self) -> asyncio.Future[None]:
        """Begin to terminate and return `termination`; idempotent, from any thread, also from a handler."""
        return self._server.close()

    async def close(self) -> None:
        """Terminate and wait for it; idempotent. When it returns, no handler and no spawned task runs any more.

        From a handler or a spawned task use `close_async`: they are cancelled before the endpoint has ended.
        """
        await asyncio.shield(self.close_async())

    def on_fatal_error(self, error: BaseException) -> None:
        """Handle the error of a spawned task or a queued action; by default the endpoint terminates with it."""
        self._server.close(error)

    def run_async(self, action: Callable[[], None]) -> None:
        """Run `action` on the main thread, in order with messages; from any thread.

        The caller does not wait for it: its error goes to `on_fatal_error`.
        """
        self._server.run_async(action)

    def call_async(self, action: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Run `action` as `run_async` does and return a future of its result (`asyncio.wrap_future` awaits it)."""
        return self._server.call_async(action)

    def schedule_run_async(self, delay_ms: float, action: Callable[[], None]) -> Cancellable:
        """Queue `action` after `delay_ms`; from any thread. It never runs after `close` has begun."""
        scheduled = _ScheduledAction(self, action)
        if self._server.is_closing:
            _LOG.info("%s is closing and no longer schedules actions", self.address)
            scheduled.cancel()
        else:
            self._scheduled.add(scheduled)
            scheduled.arm(delay_ms)
        return scheduled

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `coroutine` as a task of this endpoint: cancelled on close, its error goes to `on_fatal_error`."""
        return self._server.spawn(coroutine, name)

    def spawn_shared(
        self, work: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> asyncio.Future[None]:
        """Spawn `work`, and return a future of its outcome for several waiters.

        Await it through `asyncio.shield`: a waiter that stops must not stop the work for the others. Only the waiters
        get its error; it is ignored if nobody waits.
        """
        outcome: asyncio.Future[None] = self.rpc_service.loop.create_future()

        async def settle() -> None:
            try:
                await work()
            except Exception as error:
                outcome.set_exception(error)
                outcome.exception()  # all who waited may have gone
            except BaseException:
                outcome.cancel()
                raise
            else:
                outcome.set_result(None)

        self.spawn(settle(), name)
        return outcome

    def validate_main_thread(self) -> None:
        """Raise AssertionError unless called on the main thread."""
        assert is_on_loop(self.rpc_service.loop), (
            f"{self.address} was used outside its main thread: use run_async"
        )

    def self_gateway(self, gateway_type: type[G]) -> G:
        """Return a gateway to this endpoint itself, for wiring inside the process."""
        return self.rpc_service.gateway(self.address, gateway_type, self.own_token())

    def own_token(self) -> FencingToken | None:
        """Return the leader session of a fenced endpoint."""
        return None

    def check_fencing(self, method: str, token: bytes | None) -> None:
        """Raise FencingTokenError unless a call that carries `token` may reach a handler."""
        if token is not None:
            raise FencingTokenError(self.address, method, None, token.hex())

    def cancel_scheduled(self) -> None:
        """Cancel all delayed actions."""
        for scheduled in tuple(self._scheduled):
            scheduled.cancel()

    def forget_scheduled(self, scheduled: "_ScheduledAction") -> None:
        """Remove an action that ran or was cancelled."""
        self._scheduled.discard(scheduled)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"


class _ScheduledAction:
    """A delayed action: waits on the service's timer, then in the mailbox, and checks again that it may run."""

    def __init__(self, endpoint: RpcEndpoint, action: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._action: Callable[[], None] | None = action
        self._timer: Cancellable | None = None

    def arm(self, delay_ms: float) -> None:
        self._timer = self._endpoint.rpc_service.schedule(delay_ms, self._due)

    def cancel(self) -> None:
        """Cancel the action, unless it is running already."""
        self._action = None
        if self._timer is not None:
            self._timer.cancel()
        self._endpoint.forget_scheduled(self)

    def _due(self) -> None:
        self._endpoint.run_async(self._run)

    def _run(self) -> None:
        action, self._action = self._action, None
        self._endpoint.forget_scheduled(self)
        if action is not None:
            action()


class FencedRpcEndpoint(RpcEndpoint, Generic[F]):
    """An endpoint whose handlers are reached only with `fencing_token`."""

    def __init__(self, rpc_service: RpcService, endpoint_name: str, fencing_token: F) -> None:
        self.fencing_token = fencing_token
        self.stale_call_count = 0
        """Number of calls that were refused because of their token."""
        super().__init__(rpc_service, endpoint_name)

    def own_token(self) -> FencingToken | None:
        """Return the token that calls must carry."""
        return self.fencing_token

    def check_fencing(self, method: str, token: bytes | None) -> None:
        """Raise FencingTokenError for a call with another token, or none."""
        if token != self.fencing_token.value:
            self.stale_call_count += 1
            raise FencingTokenError(
                self.address, method, self.fencing_token.hex(), token.hex() if token else None
            )
