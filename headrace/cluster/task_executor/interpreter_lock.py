"""InterpreterLock: makes it visible from outside that this process's interpreter lock is held.

While Python runs here, a thread puts off the dump of `faulthandler` again and again. Once C code holds the lock, no
thread of Python runs, and the C thread of `faulthandler` writes the stacks into the pipe of the LockWatcher.
"""

import contextlib
import faulthandler
import logging
import os
from threading import Event
from typing import Final

import msgspec

from headrace.cluster.task_executor.lock_watcher import (
    RELEASED,
    WatcherConfiguration,
    WatcherProcess,
    dump_period_s,
)
from headrace.core.config import Settings
from headrace.core.threads import Thread, start_thread

_LOG = logging.getLogger(__name__)
_SIGNS_IN_PERIOD: Final = 4
_END_TIMEOUT_S: Final = 5.0


class InterpreterLock:
    """Watches the lock of this process, from `start` to `stop`. One per process: `faulthandler` has one timer."""

    def __init__(self, configuration: WatcherConfiguration, process: WatcherProcess) -> None:
        self._configuration: Final = configuration
        self._process: Final = process
        self._period_s: Final = dump_period_s(Settings(configuration.settings))
        self._is_stopped: Final = Event()
        self._thread: Thread | None = None
        self.watcher_address = ""
        """The endpoint of the LockWatcher; '' until it serves, and where there is none."""

    def start(self) -> "InterpreterLock":
        """Tell the watcher process after a while what to watch, so that short lives do without; nobody waits for it."""
        self._thread = start_thread("headrace-lock-watch", self._run)
        return self

    def stop(self) -> None:
        """End both, and wait for their end."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(2 * _END_TIMEOUT_S)

    def _run(self) -> None:
        with (
            open(self._process.request, "wb", buffering=0) as pipe,
            open(self._process.answer, "rb", closefd=False) as answer,
            contextlib.suppress(BrokenPipeError),
        ):
            if not self._is_stopped.wait(self._period_s):
                with contextlib.suppress(BrokenPipeError):
                    pipe.write(msgspec.json.encode(self._configuration) + b"\n")
                    self.watcher_address = answer.readline().decode().strip()
                if self.watcher_address:
                    self._keep_quiet(pipe.fileno())
                else:
                    _LOG.warning("the process that watches the interpreter lock has ended")
        self.watcher_address = ""
        self._process.end(_END_TIMEOUT_S)

    def _keep_quiet(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        try:
            while True:
                faulthandler.dump_traceback_later(self._period_s, repeat=True, file=pipe)
                with contextlib.suppress(BlockingIOError):
                    os.write(pipe, RELEASED)
                if self._is_stopped.wait(self._period_s / _SIGNS_IN_PERIOD):
                    return
        finally:
            faulthandler.cancel_dump_traceback_later()
