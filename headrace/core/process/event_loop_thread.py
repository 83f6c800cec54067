"""EventLoopThread: one daemon thread with one event loop, and the way into it for every other thread.

Python ends a loop at `SystemExit` and `KeyboardInterrupt` from whatever runs on it. Here that would leave everybody who
waits for the loop waiting for ever: the loop goes on, and whoever it belongs to hears of it.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
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
        self.on_fatal_error: Callable[[BaseException], None] | None = None
        """Called on the thread with what would have ended the loop."""
        self._is_stopping = False
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
            self.loop.call_soon_threadsafe(self._stop)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                _LOG.error("thread %s does not end", self._thread.name)

    def _body(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._is_running.set)
        try:
            while not self._is_stopping:
                self._run_until_stopped()
            self._cancel_rest()
        finally:
            self.loop.close()

    def _run_until_stopped(self) -> None:
        try:
            self.loop.run_forever()
        except BaseException as error:
            _LOG.critical(
                "%r reached the loop of thread %s", error, self._thread.name, exc_info=error
            )
            if self.on_fatal_error is not None:
                self.loop.call_soon(self.on_fatal_error, error)

    def _stop(self) -> None:
        self._is_stopping = True
        self.loop.stop()

    def _cancel_rest(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
