"""MemoryLimit: ends a TaskManager, or a Spark task, that exceeds its memory, and fails its tasks with the cause.

The cause names the operator with the largest columnar state, if such states are at least a tenth of the memory in use.
The kernel would kill any process of the host, without a message; and a limit of the address space would
count memory that is only reserved. Without a limit a TaskManager may use free memory: it ends once the host, or
the container, is short of memory and it holds more than its share.
"""

import logging
import os
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.ids import size_text
from headrace.core.process.memory_parts import (
    PROCESS_MEMORY,
    PROCESSES_PER_HOST,
    is_memory_total_set,
    process_memory_bytes,
)
from headrace.core.process.process_memory import (
    available_memory_bytes,
    container_memory_bytes,
    resident_memory_bytes,
)
from headrace.core.process.state_memory import columnar_state_bytes, columnar_state_text

MEMORY_LIMIT: Final = ConfigOption[SizeBytes | None](
    "headrace.taskmanager.memory.limit",
    SizeBytes,
    None,
    "Memory that a TaskManager's process may hold; one that holds more ends, and its tasks fail with that cause. If "
    "each TaskManager serves one job, a job that grows harms no other. Unset: on Spark "
    "`taskmanager.memory.process.size` if that is set, otherwise `headrace.taskmanager.memory.reserve` applies.",
)
MEMORY_RESERVE: Final = ConfigOption(
    "headrace.taskmanager.memory.reserve",
    float,
    0.05,
    "Part of the memory of a host, or of a container, that TaskManagers without a limit leave free, at least 256 mb. "
    "Once less is available, a TaskManager that holds more than its share ends, and its tasks fail with that cause. "
    "Its share is set by `taskmanager.memory.process.size` or `headrace.taskmanager.processes-per-host`, else it is "
    "half of that memory. 0: no TaskManager ends.",
    least=0.0,
    most=1.0,
)
INTERVAL_MS: Final = 500.0
QUICK_INTERVAL_MS: Final = 50.0
"""Interval in ms near the reserve, and while tasks end: an allocating loop takes a gigabyte in half a second."""
SLOW_INTERVAL_MS: Final = 5_000.0
"""Longest interval in ms between checks while plenty of memory is left; each check has a cost for every process."""
PATIENCE_MS: Final = 3_000.0
"""Time in ms for which tasks that must end may go on, while the process does not hold more memory."""
_LOG: Final = logging.getLogger(__name__)
_GROWTH: Final = 1.1
_NEAR: Final = 4
_TENTH: Final = 10
_TAKEN_PER_MS: Final = 4 << 20
"""Bytes per ms that one core can allocate; twice the measured rate."""
_CORE_COUNT: Final = os.cpu_count() or 1
_RESERVE_MIN_BYTES: Final = 256 << 20


class MemoryLimit:
    """Limits the memory of this process; used on the thread that runs the actions of `schedule`, after a delay in ms.

    `stop_tasks` is called with the exceeded limit, and returns whether a task goes on; then `end` or, if they do not
    stop, `exit_now` is called once. `is_own`: the process belongs to the TaskManager alone, so that its end frees the
    memory. `advice` is for the user; `measure_states` and `describe_states`: the columnar states of the process.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        schedule: Callable[[float, Callable[[], None]], object],
        *,
        is_own: bool,
        stop_tasks: Callable[[str], bool],
        end: Callable[[str], None],
        exit_now: Callable[[str], None],
        advice: str = "give the job more TaskManagers, or each of them more memory "
        f"('{PROCESS_MEMORY.key}')",
        measure: Callable[[], int] = resident_memory_bytes,
        measure_available: Callable[[], int] = available_memory_bytes,
        measure_states: Callable[[], int] = columnar_state_bytes,
        describe_states: Callable[[], str] = columnar_state_text,
    ) -> None:
        self._clock: Final = clock
        self._schedule: Final = schedule
        self._advice: Final = advice
        self._limit_bytes: Final = settings.get_option(MEMORY_LIMIT)
        self._reserve_bytes: Final = _reserve_bytes(settings) if is_own else 0
        self._share_bytes: Final = share_bytes(settings)
        self._stop_tasks: Final = stop_tasks
        self._end: Final = end
        self._exit_now: Final = exit_now
        self._measure: Final = measure
        self._measure_available: Final = measure_available
        self._measure_states: Final = measure_states
        self._describe_states: Final = describe_states
        self._was_short = False

    def start(self) -> None:
        """Log the limit, and start to watch the memory."""
        if self._limit_bytes is not None:
            _LOG.info(
                "this process ends once it holds more than %s of memory",
                size_text(self._limit_bytes),
            )
        elif self._reserve_bytes:
            _LOG.info(
                "this process ends once less than %s of memory are left on its host or in its container and it holds "
                "more than %s",
                size_text(self._reserve_bytes),
                size_text(self._share_bytes),
            )
        self.watch()

    def watch(self) -> None:
        """Check the memory now, and periodically."""
        if self._limit_bytes is not None:
            self._watch_limit(self._limit_bytes)
        elif self._reserve_bytes:
            self._watch_reserve()

    def _watch_limit(self, limit_bytes: int) -> None:
        held_bytes = self._measure()
        if held_bytes > limit_bytes:
            self._exceeded(
                held_bytes,
                f"its process holds {size_text(held_bytes)} of memory, but may hold only {size_text(limit_bytes)} "
                f"('{MEMORY_LIMIT.key}'); {self._states_text(held_bytes)}{self._advice}",
            )
        else:
            self._schedule(INTERVAL_MS, self.watch)

    def _watch_reserve(self) -> None:
        available_bytes = self._measure_available()
        was_short, self._was_short = self._was_short, available_bytes < self._reserve_bytes
        # Twice in a row: another process may have used much memory for a moment.
        if was_short and self._was_short:
            held_bytes = self._measure()
            if held_bytes > self._share_bytes:
                self._exceeded(
                    held_bytes,
                    f"its process holds {size_text(held_bytes)} of memory, more than its share of "
                    f"{size_text(self._share_bytes)}, and its host or container has only {size_text(available_bytes)} "
                    f"left ('{MEMORY_RESERVE.key}'); {self._states_text(held_bytes)}{self._advice}",
                )
                return
        # The next check comes before all cores together could allocate the rest.
        away_ms = (available_bytes - _NEAR * self._reserve_bytes) / (_TAKEN_PER_MS * _CORE_COUNT)
        delay_ms = min(max(QUICK_INTERVAL_MS, away_ms), SLOW_INTERVAL_MS)
        self._schedule(delay_ms, self.watch)

    def _states_text(self, held_bytes: int) -> str:
        """Return a description of columnar states, unless they are a small part of the memory in use."""
        is_much = self._measure_states() * _TENTH >= held_bytes
        return f"{self._describe_states()}; " if is_much else ""

    def _exceeded(self, first_bytes: int, reason: str) -> None:
        since_ms = self._clock.monotonic_ms()

        def look() -> None:
            if not self._stop_tasks(reason):
                self._end(reason)
            elif (
                self._measure() > first_bytes * _GROWTH
                or self._clock.monotonic_ms() > since_ms + PATIENCE_MS
            ):
                self._exit_now(reason)
            else:
                self._schedule(QUICK_INTERVAL_MS, look)

        look()


def share_bytes(settings: Settings) -> int:
    """Return the bytes that a TaskManager may hold while memory is short.

    Half of the memory if the number of processes is unknown.
    """
    if is_memory_total_set(settings) or settings.is_set(PROCESSES_PER_HOST):
        return process_memory_bytes(settings)
    return container_memory_bytes() // 2


def _reserve_bytes(settings: Settings) -> int:
    part = settings.get_option(MEMORY_RESERVE)
    return max(_RESERVE_MIN_BYTES, int(container_memory_bytes() * part)) if part else 0
