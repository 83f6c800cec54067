"""EndpointMailbox: begins the mail of an endpoint in order of arrival, one piece at a time.

Mail of a sync handler runs to its end before the next begins. Mail of an async handler becomes a task (MailTask); the
next mail begins only when the task has had its first step, so that the order of beginnings is kept and no mail waits
for the end of another (two endpoints that ask each other would otherwise wait for ever).
"""

import asyncio
import collections
import concurrent.futures
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from headrace.rpc.contract import Handler
from headrace.rpc.errors import RecipientUnreachableError
from headrace.rpc.invocation import Invocation
from headrace.rpc.main_thread import is_on_loop

if TYPE_CHECKING:
    from headrace.rpc.server import EndpointServer

_LOG = logging.getLogger(__name__)


class EndpointMail(Protocol):
    """One piece of work for an endpoint's main thread."""

    starts_task: bool

    def run(self) -> None:
        """Do the work, or start the task that does it; never raises."""
        ...

    def refuse(self) -> None:
        """Tell the waiting caller that the work will not be done."""
        ...


class EndpointMailbox:
    """FIFO queue of mail, drained on `loop` in turns of at most `throughput` pieces."""

    def __init__(self, loop: asyncio.AbstractEventLoop, throughput: int) -> None:
        self._loop = loop
        self._throughput = max(1, throughput)
        self._queue: collections.deque[EndpointMail] = collections.deque()
        self._is_drain_scheduled = False
        self._unstarted_task_count = 0
        self._is_held = False
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of waiting mails."""
        return len(self._queue)

    def put(self, mail: EndpointMail) -> None:
        """Append `mail`; from any thread."""
        if self._is_closed:
            mail.refuse()
            return
        self._queue.append(mail)
        if is_on_loop(self._loop):
            self._schedule_drain()
        else:
            self._loop.call_soon_threadsafe(self._drain)

    def hold(self) -> None:
        """Begin no more mail until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Continue after `hold`."""
        self._is_held = False
        self._schedule_drain()

    def task_announced(self) -> None:
        """Note that a piece of mail became a task that has not had its first step."""
        self._unstarted_task_count += 1

    def task_begun(self) -> None:
        """Note that an announced task has begun; the task calls this in its first step."""
        self._unstarted_task_count -= 1
        if not self._unstarted_task_count:
            self._schedule_drain()

    def close(self) -> None:
        """Refuse waiting and later mail."""
        self._is_closed = True
        while self._queue:
            self._queue.popleft().refuse()

    def _schedule_drain(self) -> None:
        if not self._is_drain_scheduled and self._queue:
            self._is_drain_scheduled = True
            self._loop.call_soon(self._scheduled_drain)

    def _scheduled_drain(self) -> None:
        self._is_drain_scheduled = False
        self._drain()

    def _drain(self) -> None:
        if self._is_closed:
            self.close()  # mail that another thread put in while the mailbox was being closed
        for _ in range(self._throughput):
            if not self._queue or self._is_held:
                return
            if self._unstarted_task_count and not self._queue[0].starts_task:
                return  # task_begun continues
            try:
                self._queue.popleft().run()
            except BaseException:
                self._schedule_drain()  # the owner handles a fatal error; the rest of the mail is not lost
                raise
        self._schedule_drain()


class InvocationMail:
    """A call of a gateway's method."""

    def __init__(
        self, server: "EndpointServer", invocation: Invocation, handler: Handler | None
    ) -> None:
        self._server = server
        self._invocation = invocation
        self._handler = handler
        self.starts_task = handler is not None and handler.is_async

    def run(self) -> None:
        """Call the handler."""
        self._server.invoke(self._invocation, self._handler)

    def refuse(self) -> None:
        """Tell the caller that the endpoint is gone."""
        self._server.refuse(self._invocation)


class ActionMail:
    """An action of `run_async`."""

    starts_task = False

    def __init__(self, server: "EndpointServer", action: Callable[[], None]) -> None:
        self._server = server
        self._action = action

    def run(self) -> None:
        """Run the action; its error is logged."""
        self._server.run_action(self._action)

    def refuse(self) -> None:
        """Drop the action; no caller waits for its result."""
        _LOG.debug("%s has terminated and drops an action", self._server.address)


class CallMail:
    """An action of `call_async`, sync or async."""

    def __init__(
        self,
        server: "EndpointServer",
        action: Callable[[], Any],
        future: concurrent.futures.Future[Any],
    ) -> None:
        self._server = server
        self._action = action
        self._future = future
        self._name = getattr(action, "__qualname__", repr(action))
        self.starts_task = inspect.iscoroutinefunction(action)

    def run(self) -> None:
        """Run the action; its result or error goes to the future."""
        if not self._server.is_serving:
            self.refuse()
            return
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            result = self._server.watch.call(self._name, self._action)
        except Exception as error:
            self._future.set_exception(error)
            return
        if inspect.isawaitable(result):
            self._server.start_mail_task(result, self._name, self._finish, self._gone)
        else:
            self._future.set_result(result)

    def refuse(self) -> None:
        """Fail the future."""
        if self._future.set_running_or_notify_cancel():
            self._gone()

    async def _finish(self, result: Awaitable[Any]) -> None:
        try:
            value = await result
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)

    def _gone(self) -> None:
        self._future.set_exception(
            RecipientUnreachableError(
                self._server.address, self._name, "the endpoint is not running"
            )
        )


class ControlMail:
    """The START and TERMINATE messages."""

    def __init__(self, run: Callable[[], None], *, starts_task: bool) -> None:
        self.run = run
        self.starts_task = starts_task

    def refuse(self) -> None:
        """Do nothing: the endpoint has ended already."""


class MailTask:
    """Task for the rest of a piece of mail: passes `result` to `finish` and awaits that.

    `on_begun` is called in its first step. If the task is cancelled, even before its first step, `on_cancelled` is
    called, so that a waiting caller gets an answer.
    """

    def __init__(
        self,
        result: Awaitable[Any],
        finish: Callable[[Awaitable[Any]], Coroutine[Any, Any, None]],
        on_begun: Callable[[], None],
        on_cancelled: Callable[[], None],
    ) -> None:
        self._result = result
        self._finish = finish
        self._on_begun = on_begun
        self._on_cancelled = on_cancelled
        self._has_begun = False

    async def run(self) -> None:
        """Run the body of the task."""
        self._begin()
        await self._finish(self._result)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of the task."""
        if not self._has_begun:
            if inspect.iscoroutine(self._result):
                self._result.close()
            self._begin()
        if task.cancelled():
            self._on_cancelled()

    def _begin(self) -> None:
        self._has_begun = True
        self._on_begun()
