"""The server side of one endpoint: its lifecycle, its mailbox, and how a call becomes a call of its handler.

    STOPPED --start--> STARTING --on_start done--> STARTED --close--> TERMINATING --on_stop done--> TERMINATED

STOPPED drops calls. STARTING lets mail wait until `on_start` has ended. TERMINATING still serves, since `on_stop`
itself talks to others. TERMINATED answers every asker that it is gone and runs nothing. Source: Flink PekkoRpcActor.
"""

import asyncio
import concurrent.futures
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from headrace.core.threads import spawn
from headrace.rpc.contract import MethodContract, gateway_contract, is_gateway
from headrace.rpc.errors import (
    EndpointNotStartedError,
    EndpointStartError,
    GatewayDefinitionError,
    MailboxFullError,
    RecipientUnreachableError,
    UnknownMethodError,
)
from headrace.rpc.invocation import Invocation
from headrace.rpc.mailbox import Mailbox
from headrace.rpc.main_thread import HandlerWatch
from headrace.rpc.options import (
    MAILBOX_CAPACITY,
    SERVICES_SHUTDOWN_TIMEOUT,
    SLOW_HANDLER_THRESHOLD,
    THROUGHPUT,
    duration_ms,
)

if TYPE_CHECKING:
    from headrace.rpc.endpoint import RpcEndpoint
    from headrace.rpc.service import RpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class EndpointState(enum.Enum):
    """Where an endpoint stands in its life."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    STARTED = "STARTED"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


ENDPOINT_TRANSITIONS: Final[Mapping[EndpointState, frozenset[EndpointState]]] = {
    EndpointState.STOPPED: frozenset({EndpointState.STARTING, EndpointState.TERMINATED}),
    EndpointState.STARTING: frozenset({EndpointState.STARTED, EndpointState.TERMINATED}),
    EndpointState.STARTED: frozenset({EndpointState.TERMINATING, EndpointState.TERMINATED}),
    EndpointState.TERMINATING: frozenset({EndpointState.TERMINATED}),
    EndpointState.TERMINATED: frozenset(),
}


@dataclass(frozen=True, eq=False)
class _Handler:
    contract: MethodContract
    function: Callable[..., Any]
    is_async: bool


class EndpointServer:
    """Everything about one endpoint that is not its own logic. Lives on the loop of `service`."""

    def __init__(self, endpoint: "RpcEndpoint", service: "RpcService", address: str) -> None:
        self._endpoint = endpoint
        self._service = service
        self._loop = service.loop
        self.address = address
        self.state = EndpointState.STOPPED
        self.termination: asyncio.Future[None] = self._loop.create_future()
        settings = service.settings
        self._mailbox = Mailbox(self._loop, settings.get_option(THROUGHPUT))
        self._capacity = settings.get_option(MAILBOX_CAPACITY)
        self._shutdown_timeout_ms = duration_ms(settings, SERVICES_SHUTDOWN_TIMEOUT)
        self.watch = HandlerWatch(
            address, service.clock, duration_ms(settings, SLOW_HANDLER_THRESHOLD)
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._handlers: dict[tuple[str, str], _Handler] = {}
        self.gateways: frozenset[str] = self._collect_handlers()

    @property
    def queue_length(self) -> int:
        """How many pieces of mail wait."""
        return len(self._mailbox)

    @property
    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self.state in (EndpointState.TERMINATING, EndpointState.TERMINATED)

    @property
    def load(self) -> str:
        """Queue length and slowest handler so far, for error messages."""
        text = f"{self.queue_length} messages wait there"
        if self.watch.slowest_ns >= 1_000_000:
            slowest_ms = self.watch.slowest_ns // 1_000_000
            text += (
                f", its slowest handler so far is {self.watch.slowest_name} with {slowest_ms} ms"
            )
        return text

    # -- calls ---------------------------------------------------------------------------------------------------

    def deliver(self, invocation: Invocation) -> None:
        """Put a call into the mailbox, or refuse it."""
        if self.queue_length >= self._capacity:
            invocation.fail(
                MailboxFullError(self.address, invocation.full_name, self._capacity), self.address
            )
            return
        handler = self._handlers.get((invocation.gateway, invocation.method))
        self._mailbox.put(_InvocationMail(self, invocation, handler))

    def invoke(self, invocation: Invocation, handler: _Handler | None) -> None:
        """Run a call on the main thread: check state and fencing, decode, call the handler."""
        try:
            if self.state in (EndpointState.STOPPED, EndpointState.TERMINATED):
                raise EndpointNotStartedError(self.address, invocation.full_name)
            self._endpoint.check_fencing(invocation.full_name, invocation.token)
            if handler is None:
                raise UnknownMethodError(self.address, invocation.gateway, invocation.method)
            arguments = invocation.arguments
            if isinstance(arguments, msgspec.Raw):
                arguments = handler.contract.decode_arguments(arguments)
            result = self.watch.call(invocation.full_name, handler.function, *arguments)
        except MemoryError as error:
            self._service.fatal_error(error)
        except Exception as error:
            invocation.fail(error, self.address)
        else:
            if inspect.isawaitable(result):
                self._start_task(
                    self._finish(invocation, handler, result), invocation.full_name, is_mail=True
                )
            elif invocation.reply is not None:
                invocation.reply.succeed(handler.contract, result)

    async def _finish(
        self, invocation: Invocation, handler: _Handler, result: Awaitable[Any]
    ) -> None:
        try:
            value = await self.watch.awaiting(invocation.full_name, result)
        except asyncio.CancelledError:
            self.refuse(invocation)
            raise
        except MemoryError as error:
            self._service.fatal_error(error)
        except Exception as error:
            invocation.fail(error, self.address)
        else:
            if invocation.reply is not None:
                invocation.reply.succeed(handler.contract, value)

    def refuse(self, invocation: Invocation) -> None:
        """Answer a call that a terminated endpoint will not run."""
        if invocation.reply is not None:
            invocation.reply.fail(
                RecipientUnreachableError(
                    self.address, invocation.full_name, "the endpoint has terminated"
                )
            )

    # -- actions of the endpoint itself --------------------------------------------------------------------------

    def run_async(self, action: Callable[[], None]) -> None:
        """Queue `action`; from any thread."""
        self._mailbox.put(_ActionMail(self, action))

    def run_action(self, action: Callable[[], None]) -> None:
        """Run a queued action; its error is logged."""
        if self.state in (EndpointState.STOPPED, EndpointState.TERMINATED):
            return
        name = getattr(action, "__qualname__", repr(action))
        try:
            self.watch.call(name, action)
        except MemoryError as error:
            self._service.fatal_error(error)
        except Exception:
            _LOG.exception("%s failed on the main thread of %s", name, self.address)

    def call_async(self, action: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Queue `action` and return a future of its result; from any thread."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._mailbox.put(_CallMail(self, action, future))
        return future

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `coroutine` as a task that is cancelled with the endpoint; its error is fatal to the endpoint."""
        if self.state is EndpointState.TERMINATED:
            coroutine.close()
            raise RecipientUnreachableError(self.address, name, "the endpoint has terminated")
        task = self._start_task(coroutine, name, is_mail=False)
        task.add_done_callback(self._spawned_task_ended)
        return task

    def start_mail_task(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Run the rest of a piece of mail as a task."""
        self._start_task(coroutine, name, is_mail=True)

    def _start_task(
        self, coroutine: Coroutine[Any, Any, T], name: str, *, is_mail: bool
    ) -> asyncio.Task[T]:
        if is_mail:
            self._mailbox.task_announced()
            coroutine = _Begun(self._mailbox, coroutine).run()
        return spawn(coroutine, self._loop, f"{self.address} {name}", self._tasks)

    def _spawned_task_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self.state is not EndpointState.TERMINATED:
            _LOG.error("task '%s' of %s failed", task.get_name(), self.address, exc_info=error)
            self._endpoint.on_fatal_error(error)

    # -- lifecycle -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Queue the start; a second one is ignored."""
        self._mailbox.put(_ControlMail(self._begin_start, starts_task=True))

    def close(self, cause: BaseException | None = None) -> asyncio.Future[None]:
        """Queue the termination, once; the future completes when nothing of the endpoint runs any more."""
        self._mailbox.put(_ControlMail(lambda: self._begin_close(cause), starts_task=False))
        return self.termination

    def abort(self) -> None:
        """Terminate on the spot without `on_stop`, as the end of the process would."""
        if self.state is EndpointState.TERMINATED:
            return
        self.state = EndpointState.TERMINATED
        for task in tuple(self._tasks):
            task.cancel()
        if self._closing is not None:
            self._closing.cancel()
        self._leave(None)

    def _begin_start(self) -> None:
        if self.state is not EndpointState.STOPPED:
            return
        self._change_state(EndpointState.STARTING)
        self._mailbox.hold()
        self._start_task(self._run_on_start(), "on_start", is_mail=False)

    async def _run_on_start(self) -> None:
        try:
            await self.watch.awaiting("on_start", self._endpoint.on_start())
        except Exception as error:
            failure = EndpointStartError(self.address, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            _LOG.error("%s could not start", self.address, exc_info=error)
            self._change_state(EndpointState.TERMINATED)
            self._closing = self._service.spawn(
                self._terminate(failure), f"{self.address} termination"
            )
        else:
            self._change_state(EndpointState.STARTED)
            self._mailbox.release()

    def _begin_close(self, cause: BaseException | None) -> None:
        if self._closing is not None or self.state is EndpointState.TERMINATED:
            return
        if self.state is EndpointState.STOPPED:
            self._change_state(EndpointState.TERMINATED)
        else:
            self._change_state(EndpointState.TERMINATING)
        self._closing = self._service.spawn(self._terminate(cause), f"{self.address} termination")

    async def _terminate(self, cause: BaseException | None) -> None:
        self._endpoint.cancel_scheduled()
        if self.state is EndpointState.TERMINATING:
            try:
                await self.watch.awaiting("on_stop", self._endpoint.on_stop())
            except Exception as error:
                _LOG.exception("on_stop of %s failed", self.address)
                cause = cause or error
            self._change_state(EndpointState.TERMINATED)
        self._mailbox.close()
        await self._end_tasks()
        self._leave(cause)

    async def _end_tasks(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            _, stuck = await asyncio.wait(
                tuple(self._tasks), timeout=self._shutdown_timeout_ms / 1000
            )
            for task in stuck:
                _LOG.error("task '%s' does not end although it was cancelled", task.get_name())

    def _leave(self, cause: BaseException | None) -> None:
        self._endpoint.cancel_scheduled()
        self._mailbox.close()
        self._service.endpoint_terminated(self._endpoint)
        if self.termination.done():
            return
        if cause is None:
            self.termination.set_result(None)
        else:
            self.termination.set_exception(cause)
            self.termination.exception()  # logged already; nobody need await it

    def _change_state(self, following: EndpointState) -> None:
        assert following in ENDPOINT_TRANSITIONS[self.state], f"{self.state} -> {following}"
        self.state = following

    # -- handlers ------------------------------------------------------------------------------------------------

    def _collect_handlers(self) -> frozenset[str]:
        declared = getattr(self._endpoint, "gateway_types", ())
        types = [cls for cls in type(self._endpoint).__mro__ if is_gateway(cls)]
        names: set[str] = set()
        for gateway_type in (*types, *declared):
            contract = gateway_contract(gateway_type)
            names.add(contract.name)
            for name, method in contract.methods.items():
                function = getattr(self._endpoint, name, None)
                if function is None or getattr(type(self._endpoint), name, None) is getattr(
                    gateway_type, name
                ):
                    raise GatewayDefinitionError(
                        f"{type(self._endpoint).__name__} does not implement {method.full_name}"
                    )
                is_async = inspect.iscoroutinefunction(function)
                self._handlers[contract.name, name] = _Handler(
                    method, cast("Callable[..., Any]", function), is_async
                )
        return frozenset(names)


class _Begun:
    """Tells the mailbox that a task has had its first step, then runs it."""

    def __init__(self, mailbox: Mailbox, coroutine: Coroutine[Any, Any, T]) -> None:
        self._mailbox = mailbox
        self._coroutine = coroutine

    async def run(self) -> Any:
        self._mailbox.task_begun()
        return await self._coroutine


class _InvocationMail:
    def __init__(
        self, server: EndpointServer, invocation: Invocation, handler: _Handler | None
    ) -> None:
        self._server = server
        self._invocation = invocation
        self._handler = handler
        self.starts_task = handler is not None and handler.is_async

    def run(self) -> None:
        self._server.invoke(self._invocation, self._handler)

    def refuse(self) -> None:
        self._server.refuse(self._invocation)


class _ActionMail:
    starts_task = False

    def __init__(self, server: EndpointServer, action: Callable[[], None]) -> None:
        self._server = server
        self._action = action

    def run(self) -> None:
        self._server.run_action(self._action)

    def refuse(self) -> None:
        _LOG.debug("%s has terminated and drops an action", self._server.address)


class _CallMail:
    def __init__(
        self,
        server: EndpointServer,
        action: Callable[[], Any],
        future: concurrent.futures.Future[Any],
    ) -> None:
        self._server = server
        self._action = action
        self._future = future
        self.starts_task = inspect.iscoroutinefunction(action)

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        name = getattr(self._action, "__qualname__", repr(self._action))
        try:
            result = self._server.watch.call(name, self._action)
        except Exception as error:
            self._future.set_exception(error)
            return
        if inspect.isawaitable(result):
            self._server.start_mail_task(self._finish(result), name)
        else:
            self._future.set_result(result)

    async def _finish(self, result: Awaitable[Any]) -> None:
        try:
            value = await result
        except asyncio.CancelledError:
            self._future.set_exception(self._gone())
            raise
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)

    def refuse(self) -> None:
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(self._gone())

    def _gone(self) -> RecipientUnreachableError:
        return RecipientUnreachableError(
            self._server.address, "call_async", "the endpoint has terminated"
        )


class _ControlMail:
    def __init__(self, run: Callable[[], None], *, starts_task: bool) -> None:
        self.run = run
        self.starts_task = starts_task

    def refuse(self) -> None:
        pass
