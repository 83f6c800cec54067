"""Watches the memory of a Spark Python worker while a subtask runs in it, as for a TaskManager.

A subtask that uses too much memory gets an error in its thread, which names the function. If that does not end it,
the process ends, and Spark finds the cause in the file in which it expects the cause of a crash.
Source: pyspark.util (FaultHandlerIntegration), Spark BasePythonRunner.
"""

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from headrace.cluster.task_executor.memory_limit import MEMORY_LIMIT, MEMORY_RESERVE, MemoryLimit
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.process.memory_parts import PART_OPTIONS, PROCESSES_PER_HOST
from headrace.core.threads import forget_raised, own_thread_ids, raise_in_thread, start_thread

_LOG: Final = logging.getLogger(__name__)
_OPTIONS: Final = (MEMORY_LIMIT, MEMORY_RESERVE, PROCESSES_PER_HOST, *PART_OPTIONS)
_CRASH_FOLDER_VARIABLE: Final = "PYTHON_FAULTHANDLER_DIR"
_ADVICE: Final = "give the job more subtasks, so that each holds less, or the worker more memory"
_EXIT_CODE: Final = 1


class StageMemoryError(HeadraceError):
    """A subtask in BATCH mode was ended, as its Python worker used too much memory."""

    domain = ErrorDomain.USER

    def __init__(self, vertex_name: str, reason: str) -> None:
        super().__init__(f"subtask of '{vertex_name}': {reason}")


def memory_settings(settings: Settings) -> dict[str, str]:
    """Return those of `settings` that limit the memory of a Python worker and divide it."""
    given = settings.to_dict()
    return {option.key: given[option.key] for option in _OPTIONS if option.key in given}


@contextmanager
def memory_watched(
    vertex_name: str, settings: Settings, failure: Callable[[BaseException], BaseException]
) -> Generator[None]:
    """Watch this process's memory while the block, a subtask, runs. `failure` creates the exception for Spark."""
    watch = _Watch(vertex_name, settings, failure)
    start_thread("headrace-batch-memory", watch.run)
    try:
        yield
    finally:
        watch.end()


class _Watch:
    def __init__(
        self,
        vertex_name: str,
        settings: Settings,
        failure: Callable[[BaseException], BaseException],
    ) -> None:
        self._vertex_name: Final = vertex_name
        self._failure: Final = failure
        self._thread: Final = own_thread_ids().ident
        # The error must not be raised behind the subtask's end, in Spark's own code.
        self._lock: Final = threading.Lock()
        self._ended: Final = threading.Event()
        self._was_told = False
        self._next: tuple[float, Callable[[], None]] | None = None
        self._limit: Final = MemoryLimit(
            settings,
            SystemClock(),
            self._schedule,
            is_own=True,
            stop_tasks=self._stop,
            end=lambda _: None,
            exit_now=self._exit,
            advice=_ADVICE,
        )

    def run(self) -> None:
        """Check the memory periodically, on a thread of its own."""
        self._limit.watch()
        while self._next is not None:
            (delay_ms, action), self._next = self._next, None
            if self._ended.wait(delay_ms / 1000):
                return
            action()

    def end(self) -> None:
        """Stop checking; on the subtask's thread."""
        # First: an error that comes in this moment leaves nobody behind who looks.
        self._ended.set()
        with self._lock:
            forget_raised(self._thread)

    def _schedule(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._next = (delay_ms, action)

    def _stop(self, reason: str) -> bool:
        vertex_name = self._vertex_name

        class Raised(StageMemoryError):
            def __init__(self) -> None:
                super().__init__(vertex_name, reason)

        Raised.__name__ = Raised.__qualname__ = StageMemoryError.__name__
        with self._lock:
            if self._ended.is_set():
                return False
            if not self._was_told:
                self._was_told = True
                raise_in_thread(self._thread, Raised)
            return True

    def _exit(self, reason: str) -> None:
        error = StageMemoryError(self._vertex_name, reason)
        _LOG.error("this Python worker is ended: %s", error)
        folder = os.environ.get(_CRASH_FOLDER_VARIABLE)
        # Without it Spark says that the worker has crashed, and the line above says why.
        if folder:
            with suppress(OSError):
                path = Path(folder, str(os.getpid()))
                path.write_text(str(self._failure(error)), encoding="utf-8")
        os._exit(_EXIT_CODE)
