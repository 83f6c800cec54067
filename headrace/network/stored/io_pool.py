"""IoPool: a few threads that read, write and delete files for the data plane, in place of the network thread.

Source: Flink BatchShuffleReadBufferPool's I/O executor.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from headrace.core.threads import start_thread

_LOG = logging.getLogger(__name__)

IO_THREADS_MAX: Final = 4


class IoExecutor(Protocol):
    """Runs jobs that may wait for a disk."""

    is_concurrent: bool
    """True if jobs run while their submitter waits; only then may it wait for a job."""

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` soon, on a thread that may block. Any thread; jobs handle their own errors."""
        ...

    def close(self) -> None:
        """Run all submitted jobs, then end. Later jobs run on the submitting thread. Idempotent."""
        ...


class ThreadIoPool:
    """Thread pool that starts with the first jobs and ends with `close`.

    `on_fatal_error` is called on a thread whose job failed without handling the error, because nobody learns of its
    result.
    """

    is_concurrent = True

    def __init__(
        self,
        name: str,
        thread_count: int = IO_THREADS_MAX,
        on_fatal_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._name = name
        self._thread_count = thread_count
        self._on_fatal_error = on_fatal_error
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Guards the fields below: any thread submits, the environment's owner closes.
        self._lock = threading.Lock()
        self._joins: list[Callable[[], None]] = []
        self._is_closed = False

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._jobs.put(job)
                if len(self._joins) < self._thread_count:
                    number = len(self._joins) + 1
                    self._joins.append(start_thread(f"{self._name} {number}", self._run).join)
        if is_closed:
            job()

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            joins = self._joins
            for _ in joins:
                self._jobs.put(None)
        for join in joins:
            join()

    def _run(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Wait for a job and run it; return False at the end of the pool.

        A function of its own, so that a waiting thread does not keep the last job and its references alive.
        """
        job = self._jobs.get()
        if job is None:
            return False
        try:
            job()
        except Exception as error:
            # Jobs report their own errors: this is a bug, which must not end the thread.
            _LOG.exception("a job of the I/O pool failed")
            if self._on_fatal_error is not None:
                self._on_fatal_error(error)
        return True


class InlineIo:
    """Runs jobs at once on the submitting thread; for code that runs on the I/O pool already."""

    is_concurrent = False

    def submit(self, job: Callable[[], None]) -> None:
        job()

    def close(self) -> None:
        """Do nothing: there are no threads."""


class SerialJobs:
    """Runs jobs of one owner on the I/O pool, one at a time and in order. Any thread."""

    def __init__(self, io: IoExecutor) -> None:
        self._io = io
        # Guards the queue: its owner's threads add, the I/O pool takes.
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_running = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` after the previous ones."""
        with self._lock:
            self._jobs.append(job)
            must_start = not self._is_running
            self._is_running = True
        if must_start:
            self._io.submit(self._run)

    def _run(self) -> None:
        with self._lock:
            job = self._jobs.popleft()
        try:
            job()
        finally:
            del job
            with self._lock:
                self._is_running = bool(self._jobs)
                must_go_on = self._is_running
            if must_go_on:
                # Other owners get a turn between two jobs.
                self._io.submit(self._run)
