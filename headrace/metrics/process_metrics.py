"""Process metrics: the facts of the operating system and the interpreter about this process, under Flink's names.

`process_metrics` reads them, from any thread. Two of them need a watcher, which a TaskManager, a driver or a
MiniCluster starts once per process and stops at its end: how long a call to the control thread waits, and how long a
thread that could run waits for the interpreter's lock (and for a processor). The watcher sleeps for a tenth of a
second, measures how much later it woke up, and sends a call to the control thread. In a nearly idle process it sleeps
longer, up to a second, because hundreds of processes may share a host.
Source: Flink MetricUtils.instantiateStatusMetrics.
"""

import gc
import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headrace.core.clock import Clock, SystemClock
from headrace.core.process.process_memory import container_memory_bytes, resident_memory_bytes
from headrace.core.threads import Thread, start_thread
from headrace.metrics import cluster_names as names

_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_PERIOD_S: Final = 0.1
_PERIOD_MAX_S: Final = 1.0
_BUSY_SHARE: Final = 0.05
"""Share of one processor from which a process is sampled every `_PERIOD_S`."""
_KEPT_NS: Final = 60 * _NS_PER_S
_WINDOW_NS: Final = _NS_PER_S
_PROC: Final = Path("/proc/self")


class RecentWaits:
    """The waits of the last minute, ms. Written by one thread, read by any."""

    def __init__(self) -> None:
        self._waits: deque[tuple[int, float]] = deque()

    def add(self, wait_ms: float, now_ns: int) -> None:
        """Add a wait; a negative one, due to differing clocks, counts as none."""
        self._waits.append((now_ns, max(0.0, wait_ms)))
        while self._waits[0][0] < now_ns - _KEPT_NS:
            self._waits.popleft()

    def snapshot(self, mean: str, most: str, current_ms: float = 0.0) -> dict[str, float]:
        """Return mean and maximum under these names; empty before the first wait.

        `current_ms`: a wait that still lasts.
        """
        # A copy in one step: the other thread goes on.
        waits_ms = [wait_ms for _, wait_ms in self._waits.copy()]
        if current_ms > 0:
            waits_ms.append(current_ms)
        if not waits_ms:
            return {}
        return {mean: sum(waits_ms) / len(waits_ms), most: max(waits_ms)}


class LookPeriods:
    """Decides how long the watcher sleeps: longer while the process is nearly idle. Pure."""

    def __init__(self) -> None:
        self.period_s = _PERIOD_S

    def next_s(self, cpu_share: float) -> float:
        """Return how long to sleep; `cpu_share`: the process's share of a processor since the last time."""
        is_busy = cpu_share >= _BUSY_SHARE
        self.period_s = _PERIOD_S if is_busy else min(2 * self.period_s, _PERIOD_MAX_S)
        return self.period_s


class ProcessWatcher:
    """Measures the waits of this process on a thread of its own. `post` sends a call to the control thread.

    One call to the control thread is open at a time: until it is answered, its current wait is reported.
    """

    def __init__(self, clock: Clock, post: Callable[[Callable[[], None]], object]) -> None:
        self._clock: Final = clock
        self._post: Final = post
        self._lock_waits: Final = RecentWaits()
        self._lags: Final = RecentWaits()
        self._asked_ns: int | None = None
        self._is_stopped: Final = threading.Event()
        self._thread: Thread | None = None

    def start(self) -> "ProcessWatcher":
        """Start; of several watchers in a process the last one started is read."""
        _watchers.append(self)
        self._thread = start_thread("headrace-watcher", self._run)
        return self

    def stop(self) -> None:
        """Stop, and wait for the thread's end; from any other thread, idempotent."""
        self._is_stopped.set()
        with suppress(ValueError):
            _watchers.remove(self)
        if self._thread is not None:
            # It waits for nothing else: `post` only puts the call.
            self._thread.join()

    def snapshot(self) -> dict[str, float]:
        """Return the measured values, by name."""
        asked_ns = self._asked_ns
        lag_ms = 0.0
        if asked_ns is not None:
            lag_ms = (self._clock.monotonic_ns() - asked_ns) / _NS_PER_MS
        return self._lags.snapshot(
            names.CONTROL_THREAD_LAG.name, names.CONTROL_THREAD_LAG_MAX.name, lag_ms
        ) | self._lock_waits.snapshot(
            names.INTERPRETER_LOCK_WAIT.name, names.INTERPRETER_LOCK_WAIT_MAX.name
        )

    def _run(self) -> None:
        clock, periods = self._clock, LookPeriods()
        period_s, cpu_ns = periods.period_s, time.process_time_ns()
        while True:
            begun_ns = clock.monotonic_ns()
            if self._is_stopped.wait(period_s):
                return
            now_ns = clock.monotonic_ns()
            waited_ns = now_ns - begun_ns
            self._lock_waits.add(waited_ns / _NS_PER_MS - period_s * 1000, now_ns)
            self.ask()
            cpu_before_ns, cpu_ns = cpu_ns, time.process_time_ns()
            period_s = periods.next_s((cpu_ns - cpu_before_ns) / max(1, waited_ns))

    def ask(self) -> None:
        """Send a call to the control thread, unless the last one is still open."""
        if self._asked_ns is not None:
            return
        self._asked_ns = self._clock.monotonic_ns()
        try:
            self._post(self._answered)
        except RuntimeError:
            # Its loop is closed: the process ends.
            self._asked_ns = None

    def _answered(self) -> None:
        asked_ns = self._asked_ns
        if asked_ns is not None:
            now_ns = self._clock.monotonic_ns()
            self._lags.add((now_ns - asked_ns) / _NS_PER_MS, now_ns)
        self._asked_ns = None


class GarbageCollections:
    """Counts collections and adds up their time once started, which costs a microsecond per collection."""

    def __init__(self) -> None:
        self.total_count = 0
        self.total_ns = 0
        self._begun_ns = 0
        self._is_counting = False
        # Two threads may come first together, and a second callback would count everything twice.
        self._lock: Final = threading.Lock()

    def count(self) -> None:
        """Start counting, if not started yet."""
        with self._lock:
            if not self._is_counting:
                self._is_counting = True
                gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, Any]) -> None:
        now_ns = _CLOCK.monotonic_ns()
        if phase == "start":
            self._begun_ns = now_ns
        elif self._begun_ns:
            self.total_count += 1
            self.total_ns += now_ns - self._begun_ns


class RecentRates:
    """Shares of the time between two readings; readers within a second of each other get the same.

    `now_ns`, `cpu_ns`: the moment from which the first reading counts, and the processor time until then.
    """

    def __init__(self, now_ns: int, cpu_ns: int) -> None:
        self._read_ns = now_ns
        self._cpu_ns = cpu_ns
        self._gc_ns = 0
        self._load = 0.0
        self._gc_ms_per_s = 0.0
        # Several threads read, and what one of them notes belongs together.
        self._lock: Final = threading.Lock()

    def read(self, now_ns: int, cpu_ns: int, gc_ns: int) -> tuple[float, float]:
        """Return the share of all processors, and the milliseconds of collections per second."""
        with self._lock:
            passed_ns = now_ns - self._read_ns
            if passed_ns >= _WINDOW_NS:
                self._load = (cpu_ns - self._cpu_ns) / passed_ns / (os.cpu_count() or 1)
                self._gc_ms_per_s = 1000 * (gc_ns - self._gc_ns) / passed_ns
                self._read_ns, self._cpu_ns, self._gc_ns = now_ns, cpu_ns, gc_ns
            return self._load, self._gc_ms_per_s


_CLOCK: Final = SystemClock()
_watchers: Final[list[ProcessWatcher]] = []
_collections: Final = GarbageCollections()
_rates: Final = RecentRates(_CLOCK.monotonic_ns(), time.process_time_ns())


def process_metrics(memory_limit_bytes: int | None = None) -> dict[str, float]:
    """Return the metrics of this process by their full names. Any thread; a fraction of a millisecond.

    `memory_limit_bytes`: the memory available to the process, by default that of its container or machine.
    """
    _collections.count()
    cpu_ns = time.process_time_ns()
    load, gc_ms_per_s = _rates.read(_CLOCK.monotonic_ns(), cpu_ns, _collections.total_ns)
    used = resident_memory_bytes()
    limit = container_memory_bytes() if memory_limit_bytes is None else memory_limit_bytes
    values: dict[str, float] = {
        names.CPU_LOAD.name: load,
        names.CPU_TIME.name: cpu_ns,
        names.HEAP_USED.name: used,
        # The kernel counts the two at different moments.
        names.HEAP_COMMITTED.name: max(
            used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        ),
        names.HEAP_MAX.name: limit,
        names.THREADS_COUNT.name: _entry_count("task") or threading.active_count(),
        names.CLASSES_LOADED.name: len(sys.modules),
        names.GC_COUNT.name: _collections.total_count,
        names.GC_TIME.name: _collections.total_ns / _NS_PER_MS,
        names.GC_TIME_PER_SECOND.name: gc_ms_per_s,
        names.FILES_MAX.name: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    open_count = _entry_count("fd")
    if open_count is not None:
        values[names.FILES_OPEN.name] = open_count
    values |= _arrow_memory()
    if _watchers:
        values |= _watchers[-1].snapshot()
    return values


def _entry_count(folder: str) -> int | None:
    """Return the number of entries of a folder of the process; None if the kernel does not report it."""
    try:
        return len(os.listdir(_PROC / folder))
    except OSError:
        return None


def _arrow_memory() -> dict[str, float]:
    """Return the memory of Arrow's allocator if Arrow is loaded, without loading it."""
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is None:
        return {}
    pool = arrow.default_memory_pool()
    used, most = pool.bytes_allocated(), pool.max_memory() or 0
    return {
        names.NON_HEAP_USED.name: used,
        names.NON_HEAP_COMMITTED.name: most,
        names.NON_HEAP_MAX.name: -1,
        names.DIRECT_USED.name: used,
        names.DIRECT_CAPACITY.name: most,
    }
