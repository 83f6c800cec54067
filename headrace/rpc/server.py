"""The server side of one endpoint: its lifecycle, its mailbox, and the dispatch of calls to its handlers.

    STOPPED --start--> STARTING --on_start done--> STARTED --close--> TERMINATING --on_stop done--> TERMINATED

STOPPED drops calls. STARTING delays mail until `on_start` has ended. TERMINATING still serves, since `on_stop`
itself calls others. TERMINATED answers every caller that the endpoint is gone, and runs nothing. Source: Flink
PekkoRpcActor.
"""

import asyncio
import concurrent.futures
import enum
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from headrace.core.threads import OrderedTasks, spawn
from headrace.rpc.contract import Handler, collect_handlers
from headrace.rpc.endpoint_mailbox import (
    ActionMail,
    CallMail,
    ControlMail,
    EndpointMailbox,
    InvocationMail,
    MailTask,
)
from headrace.rpc.errors import (
    ENDPOINT_TERMINATED,
    EndpointNotStartedError,
    EndpointStartError,
    MailboxFullError,
    RecipientUnreachableError,
    UnknownMethodError,
)
from headrace.rpc.invocation import Invocation
from headrace.rpc.main_thread import HandlerWatch
from headrace.rpc.options import (
    MAILBOX_CAPACITY,
    SERVICES_SHUTDOWN_TIMEOUT,
    SLOW_HANDLER_THRESHOLD,
    THROUGHPUT,
)

if TYPE_CHECKING:
    from headrace.rpc.endpoint import RpcEndpoint
    from headrace.rpc.service import RpcService

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


class EndpointState(enum.Enum):
    """States in the life cycle of an endpoint."""

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


class EndpointServer:
    """Serves one endpoint, independently of its logic. Lives on the loop of `service`."""

    def __init__(self, endpoint: "RpcEndpoint", service: "RpcService", address: str) -> None:
        self._endpoint = endpoint
        self._service = service
        self._loop = service.loop
        self.address = address
        self.state = EndpointState.STOPPED
        self.termination: asyncio.Future[None] = self._loop.create_future()
        settings = service.settings
        self._mailbox = EndpointMailbox(self._loop, settings.get_option(THROUGHPUT))
        self._capacity = settings.get_option(MAILBOX_CAPACITY)
        self._shutdown_timeout_ms = settings.duration_ms(SERVICES_SHUTDOWN_TIMEOUT)
        self.watch = HandlerWatch(
            address, service.clock, settings.duration_ms(SLOW_HANDLER_THRESHOLD)
        )
        self._tasks: Final = OrderedTasks()
        self._closing: asyncio.Task[None] | None = None
        self._handlers = collect_handlers(endpoint, endpoint.gateway_types)

    @property
    def gateways(self) -> frozenset[str]:
        """Return the qualified names of the endpoint's gateways."""
        return self._handlers.gateways

    @property
    def queue_length(self) -> int:
        """Return the number of waiting mails."""
        return len(self._mailbox)

    @property
    def is_serving(self) -> bool:
        """Return whether handlers and actions may run."""
        return self.state not in (EndpointState.STOPPED, EndpointState.TERMINATED)

    @property
    def is_closing(self) -> bool:
        """Return whether the termination has begun."""
        return self.state in (EndpointState.TERMINATING, EndpointState.TERMINATED)

    @property
    def load(self) -> str:
        """Return the queue length and the slowest handler so far, for error messages."""
        text = f"{self.queue_length} messages wait there"
        if self.watch.slowest_ns >= 1_000_000:
            slowest_ms = self.watch.slowest_ns // 1_000_000
            text += (
                f", its slowest handler so far is {self.watch.slowest_name} with {slowest_ms} ms"
            )
        return text

    def deliver(self, invocation: Invocation) -> None:
        """Put a call into the mailbox, or refuse it."""
        if self.queue_length >= self._capacity:
            invocation.fail(
                MailboxFullError(self.address, invocation.full_name, self._capacity), self.address
            )
            return
        handler = self._handlers.find(invocation.gateway, invocation.method)
        self._mailbox.put(InvocationMail(self, invocation, handler))

    def invoke(self, invocation: Invocation, handler: Handler | None) -> None:
        """Run a call on the main thread: check state and fencing, decode, call the handler."""
        try:
            if not self.is_serving:
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
                self.start_mail_task(
                    result,
                    invocation.full_name,
                    functools.partial(self._finish, invocation, handler),
                    functools.partial(self.refuse, invocation),
                )
            else:
                self._answer(invocation, handler, result)

    async def _finish(
        self, invocation: Invocation, handler: Handler, result: Awaitable[Any]
    ) -> None:
        try:
            value = await self.watch.awaiting(invocation.full_name, result)
        except MemoryError as error:
            self._service.fatal_error(error)
        except Exception as error:
            invocation.fail(error, self.address)
        else:
            self._answer(invocation, handler, value)

    def _answer(self, invocation: Invocation, handler: Handler, value: object) -> None:
        if invocation.reply is None:
            return
        try:
            invocation.reply.succeed(handler.contract, value)
        except Exception:
            _LOG.exception("the answer of %s cannot be sent", invocation.full_name)
            self.refuse(invocation, "its answer cannot be sent")

    def refuse(self, invocation: Invocation, reason: str = "") -> None:
        """Answer a call whose handler will not end, or was never started."""
        if invocation.reply is not None:
            reason = reason or (
                "its handler was cancelled" if self.is_serving else ENDPOINT_TERMINATED
            )
            invocation.reply.fail(
                RecipientUnreachableError(self.address, invocation.full_name, reason)
            )

    def run_async(self, action: Callable[[], None]) -> None:
        """Queue `action`; from any thread."""
        self._mailbox.put(ActionMail(self, action))

    def run_action(self, action: Callable[[], None]) -> None:
        """Run a queued action. The caller does not wait, so its error is fatal to the endpoint."""
        if not self.is_serving:
            return
        name = getattr(action, "__qualname__", repr(action))
        try:
            self.watch.call(name, action)
        except MemoryError as error:
            self._service.fatal_error(error)
        except Exception as error:
            _LOG.exception("%s failed on the main thread of %s", name, self.address)
            self._endpoint.on_fatal_error(error)

    def call_async(self, action: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        """Queue `action` and return a future of its result; from any thread."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._mailbox.put(CallMail(self, action, future))
        return future

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run `coroutine` as a task that is cancelled with the endpoint; its error is fatal to the endpoint."""
        if self.state is EndpointState.TERMINATED:
            coroutine.close()
            raise RecipientUnreachableError(self.address, name, ENDPOINT_TERMINATED)
        task = spawn(coroutine, self._loop, f"{self.address} {name}", self._tasks)
        task.add_done_callback(self._spawned_task_ended)
        return task

    def start_mail_task(
        self,
        result: Awaitable[Any],
        name: str,
        finish: Callable[[Awaitable[Any]], Coroutine[Any, Any, None]],
        on_cancelled: Callable[[], None],
    ) -> None:
        """Run the rest of a piece of mail as a task; later mail waits for its first step, not for its end."""
        self._mailbox.task_announced()
        mail_task = MailTask(result, finish, self._mailbox.task_begun, on_cancelled)
        task = spawn(mail_task.run(), self._loop, f"{self.address} {name}", self._tasks)
        task.add_done_callback(mail_task.ended)

    def _spawned_task_ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self.state is not EndpointState.TERMINATED:
            _LOG.error("task '%s' of %s failed", task.get_name(), self.address, exc_info=error)
            self._endpoint.on_fatal_error(error)

    def start(self) -> None:
        """Queue the start; later calls are ignored."""
        self._mailbox.put(ControlMail(self._begin_start, starts_task=True))

    def close(self, cause: BaseException | None = None) -> asyncio.Future[None]:
        """Queue the termination, once; the future completes when all of the endpoint's work has ended."""
        self._mailbox.put(ControlMail(lambda: self._begin_close(cause), starts_task=False))
        return self.termination

    def abort(self) -> None:
        """Terminate at once without `on_stop`, as the end of the process would."""
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
        spawn(self._run_on_start(), self._loop, f"{self.address} on_start", self._tasks)

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
        self._endpoint.cancel_scheduled()
        self._closing = self._service.spawn(self._terminate(cause), f"{self.address} termination")

    async def _terminate(self, cause: BaseException | None) -> None:
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
