"""The mailbox of an endpoint: mail is begun in the order in which it came, one piece at a time.

Mail of a sync handler runs to its end before the next begins. Mail of an async handler becomes a task; the next mail
begins only when the task has had its first step, so that the order of beginnings is kept and no mail waits for the
end of another (two endpoints that ask each other would wait for ever).
"""

import asyncio
import collections
from typing import Protocol

from headrace.rpc.main_thread import is_on_loop


class EndpointMail(Protocol):
    """One piece of work for an endpoint's main thread."""

    starts_task: bool

    def run(self) -> None:
        """Do it, or start the task that does it; never raises."""
        ...

    def refuse(self) -> None:
        """It will not be done: tell whoever waits."""
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
        """How many pieces of mail wait."""
        return len(self._queue)

    def put(self, mail: EndpointMail) -> None:
        """Append `mail`; may be called from any thread."""
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
        """Go on after `hold`."""
        self._is_held = False
        self._schedule_drain()

    def task_announced(self) -> None:
        """A piece of mail became a task that has not had its first step."""
        self._unstarted_task_count += 1

    def task_begun(self) -> None:
        """Called by such a task as its first action."""
        self._unstarted_task_count -= 1
        if not self._unstarted_task_count:
            self._schedule_drain()

    def close(self) -> None:
        """Refuse what waits and whatever still comes."""
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
            self.close()  # mail that another thread put while the mailbox was being closed
        for _ in range(self._throughput):
            if not self._queue or self._is_held:
                return
            if self._unstarted_task_count and not self._queue[0].starts_task:
                return  # task_begun continues
            try:
                self._queue.popleft().run()
            except BaseException:
                self._schedule_drain()  # a fatal error is the owner's affair; the rest of the mail is not lost
                raise
        self._schedule_drain()
