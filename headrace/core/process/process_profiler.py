"""ProcessProfiler: profiles all threads of this process, or its memory allocations, for some seconds.

The result of a profile is a flame graph, and the newest few are kept in memory. One profile is taken at a time. Nothing
runs between profiles. Source: Flink ProfilingService, which writes files of async-profiler.
"""

import logging
import threading
import tracemalloc
from collections import Counter, deque
from datetime import timedelta
from enum import Enum
from typing import Any, Final

import msgspec

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption
from headrace.core.errors import HeadraceError
from headrace.core.process.flame_graph import FlameGraphNode, Stack, flame_graph, merged
from headrace.core.process.stack_sampler import StackSampler
from headrace.core.threads import ThreadIds, start_thread

PROFILING_ENABLED: Final = ConfigOption(
    "rest.profiling.enabled",
    bool,
    False,
    "Whether clients of REST may profile the driver's process and TaskManagers. A profile shows names of functions "
    "and lines of all running code, and takes some per cent of the processor; ALLOC takes much more.",
)
PROFILING_DURATION_MAX: Final = ConfigOption(
    "rest.profiling.duration-max",
    timedelta,
    timedelta(minutes=5),
    "Maximum duration of one profile.",
    least=timedelta(seconds=1),
    most=timedelta(hours=1),
)
PROFILING_HISTORY_SIZE: Final = ConfigOption(
    "rest.profiling.history-size",
    int,
    10,
    "Number of profiles of a process that are kept; the oldest is deleted for each further one.",
    least=1,
    most=100,
)
PROFILING_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    PROFILING_ENABLED,
    PROFILING_DURATION_MAX,
    PROFILING_HISTORY_SIZE,
)
"""All options of profiling, which are checked before a cluster starts."""
_LOG: Final = logging.getLogger(__name__)
_DELAY_MS: Final = 20
_DEPTH_MAX: Final = 100
_ALLOCATION_DEPTH: Final = 25
"""Number of frames stored with each allocation while it exists."""


class ProfilingMode(Enum):
    """Kinds of profiles: samples of computing threads (CPU, ITIMER), samples of all threads (WALL), or bytes (ALLOC).

    ALLOC counts the bytes that were allocated during the profile and not released before its end. LOCK (waits for
    locks) is refused, because such waits cannot be told apart from others: WALL shows both.
    """

    CPU = "CPU"
    ALLOC = "ALLOC"
    LOCK = "LOCK"
    WALL = "WALL"
    ITIMER = "ITIMER"

    @property
    def unit(self) -> str:
        """Return the unit of the numbers in a profile."""
        return "bytes" if self is ProfilingMode.ALLOC else "samples"


class ProfilingStatus(Enum):
    """States of a profile."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class ProfilingInfo(msgspec.Struct, frozen=True):
    """A profile of a process. Times are milliseconds since the epoch; `file_name` is empty until it has FINISHED."""

    mode: ProfilingMode
    duration_s: int
    trigger_ms: int
    status: ProfilingStatus = ProfilingStatus.RUNNING
    finished_ms: int | None = None
    message: str = ""
    file_name: str = ""


class ProfilerBusyError(HeadraceError):
    """Raised if the process is being profiled already."""

    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process

    def __str__(self) -> str:
        return f"{self.process} is still under profiling: try again when that profile has ended"


class ProfileNotFoundError(HeadraceError):
    """Raised if there is no such profile, or it was deleted."""

    def __init__(self, file_name: str) -> None:
        super().__init__(file_name)
        self.file_name = file_name

    def __str__(self) -> str:
        return f"there is no profile '{self.file_name}': only the newest are kept"


class ProcessProfiler:
    """Takes profiles; one per process, or per TaskManager if several share a process. Callable from any thread.

    `process` is the name of the process in errors and names of files; `history_size` profiles are kept.
    """

    def __init__(self, process: str, clock: Clock, history_size: int) -> None:
        self._process: Final = process
        self._clock: Final = clock
        self._infos: Final[deque[ProfilingInfo]] = deque(maxlen=history_size)
        self._graphs: Final[dict[str, FlameGraphNode]] = {}
        self._lock: Final = threading.Lock()

    def start(self, mode: ProfilingMode, duration_s: int) -> ProfilingInfo:
        """Start a profile, which ends by itself. ProfilerBusyError."""
        with self._lock:
            if self._infos and self._infos[0].status is ProfilingStatus.RUNNING:
                raise ProfilerBusyError(self._process)
            info = ProfilingInfo(mode, duration_s, self._clock.now_ms())
            if (reason := _cannot(mode)) is not None:
                info = self._ended(info, ProfilingStatus.FAILED, reason)
            self._infos.appendleft(info)
            kept = {each.file_name for each in self._infos}
            for name in [name for name in self._graphs if name not in kept]:
                del self._graphs[name]
        if info.status is ProfilingStatus.RUNNING:
            start_thread("headrace-profiler", lambda: self._run(info))
        return info

    def profiles(self) -> tuple[ProfilingInfo, ...]:
        """Return all kept profiles, the newest first."""
        with self._lock:
            return tuple(self._infos)

    def profile(self, file_name: str) -> FlameGraphNode:
        """Return the graph of a profile that has FINISHED, by its name. ProfileNotFoundError."""
        with self._lock:
            found = self._graphs.get(file_name)
        if found is None:
            raise ProfileNotFoundError(file_name)
        return found

    def _run(self, info: ProfilingInfo) -> None:
        try:
            graph = self._take(info.mode, info.duration_s)
        except Exception as error:
            # Whatever it is: a profile that did not end would keep all others waiting.
            _LOG.exception("a profile of %s has failed", self._process)
            ended = self._ended(info, ProfilingStatus.FAILED, f"Profiling failed: {error!r}")
            graph = None
        else:
            ended = self._ended(info, ProfilingStatus.FINISHED, "Profiling Successful")
        with self._lock:
            self._infos[0] = ended
            if graph is not None:
                self._graphs[ended.file_name] = graph

    def _ended(self, info: ProfilingInfo, status: ProfilingStatus, message: str) -> ProfilingInfo:
        name = ""
        if status is ProfilingStatus.FINISHED:
            name = f"{self._process}_{info.mode.value}_{info.trigger_ms}.html"
        return msgspec.structs.replace(
            info, status=status, finished_ms=self._clock.now_ms(), message=message, file_name=name
        )

    def _take(self, mode: ProfilingMode, duration_s: int) -> FlameGraphNode:
        if mode is ProfilingMode.ALLOC:
            return _allocations(duration_s)
        sampler = StackSampler(self._clock, _DEPTH_MAX, duration_max_ms=duration_s * 1_000)
        on_cpu, off_cpu, _ = sampler.sample(
            _other_threads, duration_s * 1_000 // _DELAY_MS, _DELAY_MS
        )
        return merged((on_cpu, off_cpu)) if mode is ProfilingMode.WALL else on_cpu


def _cannot(mode: ProfilingMode) -> str | None:
    """Return the reason for which no profile of this kind can be taken now, or None."""
    if mode is ProfilingMode.LOCK:
        return "Start profiler failed. Waits for locks cannot be told apart from other waits: WALL shows both."
    if mode is ProfilingMode.ALLOC and tracemalloc.is_tracing():
        return "Start profiler failed. Something in this process traces allocations already (tracemalloc)."
    return None


def _other_threads() -> list[ThreadIds]:
    own = threading.get_ident()
    return [
        ThreadIds(ident, native_id)
        for thread in threading.enumerate()
        if (ident := thread.ident) not in (None, own)
        and (native_id := thread.native_id) is not None
    ]


def _allocations(duration_s: int) -> FlameGraphNode:
    tracemalloc.start(_ALLOCATION_DEPTH)
    try:
        threading.Event().wait(duration_s)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    stacks: Counter[Stack] = Counter()
    for each in snapshot.statistics("traceback"):
        stacks[tuple(f"{frame.filename}:{frame.lineno}" for frame in each.traceback)] += each.size
    return flame_graph(stacks)
