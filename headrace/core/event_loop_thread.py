"""EventLoopThread: one daemon thread with one event loop, and the way into it for every other thread."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from headrace.core.threads import start_thread

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed; the stock loop moves up to a quarter less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class EventLoopThread:
    """Started by the constructor; `run` waits for a coroutine on it, `stop` ends it. Callable from other threads."""

    def __init__(self, name: str) -> None:
        self.loop: Final[asyncio.AbstractEventLoop] = new_event_loop()
        self._is_running = threading.Event()
        self._thread: Final = start_thread(name, self._body)
        self._is_running.wait()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and wait for its result; TimeoutError after `timeout_s`. Not from the thread itself."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def stop(self, timeout_s: float | None = 10.0) -> None:
        """Cancel what still runs and end the thread, whatever it takes where `timeout_s` is None; idempotent."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _LOG.error("thread %s does not end", self._thread.name)

    def _body(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._is_running.set)
        try:
            self.loop.run_forever()
            self._cancel_rest()
        finally:
            self.loop.close()

    def _cancel_rest(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
