"""MemoryLimit: ends a TaskManager, or a task of Spark, that holds more memory than it may, and tells tasks the cause.

The cause names the operator whose columnar state is largest, where such states are a tenth of what is held or more.
The kernel would end whichever process of the host it likes, without a word; and a limit of the address space would
count what is only reserved. Without a limit a TaskManager may take what nobody else needs: it ends once the host, or
the container, is short of memory and it holds more than its share of it.
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
    "Memory that a TaskManager's process may hold; one that holds more ends, and its tasks fail with that cause. Where "
    "each TaskManager serves one job, a job that grows harms no other. Unset: on Spark "
    "`taskmanager.memory.process.size` where that is set, else `headrace.taskmanager.memory.reserve` decides.",
)
MEMORY_RESERVE: Final = ConfigOption(
    "headrace.taskmanager.memory.reserve",
    float,
    0.05,
    "Part of the memory of a host, or of a container, that TaskManagers without a limit leave free, at least 256 mb. "
    "Once less is available, a TaskManager that holds more than its share ends, and its tasks fail with that cause. "
    "Its share is what `taskmanager.memory.process.size` or `headrace.taskmanager.processes-per-host` says, else half "
    "of that memory. 0: none ends.",
    least=0.0,
    most=1.0,
)
INTERVAL_MS: Final = 500.0
QUICK_INTERVAL_MS: Final = 50.0
"""Interval near the reserve, and while tasks end: a loop that allocates takes a gigabyte in half a second."""
SLOW_INTERVAL_MS: Final = 5_000.0
"""The longest interval of looks at memory of which plenty is left: each costs, and a host may have hundreds of them."""
PATIENCE_MS: Final = 3_000.0
"""Time for which tasks may go on that are told to end, as long as they hold no more meanwhile."""
_LOG: Final = logging.getLogger(__name__)
_GROWTH: Final = 1.1
_NEAR: Final = 4
_TENTH: Final = 10
_TAKEN_PER_MS: Final = 4 << 20
"""Memory that one core takes that does nothing but allocate; twice as much as was measured."""
_CORE_COUNT: Final = os.cpu_count() or 1
_RESERVE_MIN_BYTES: Final = 256 << 20


class MemoryLimit:
    """Used on the thread on which `schedule` has actions run, after so many milliseconds.

    `stop_tasks` is told what was exceeded, and returns whether a task goes on; then `end` or, where they do not stop,
    `exit_now` is called once. `is_own`: the process is the TaskManager's alone, so that its end frees its memory.
    `advice` says what to do; `measure_states` and `describe_states`: the columnar states of the process.
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
        """Say in the log what is watched, and watch it."""
        if self._limit_bytes is not None:
            _LOG.info("ends once it holds more than %s of memory", size_text(self._limit_bytes))
        elif self._reserve_bytes:
            _LOG.info(
                "ends once less than %s of memory are left on its host or in its container and it holds more than %s",
                size_text(self._reserve_bytes),
                size_text(self._share_bytes),
            )
        self.watch()

    def watch(self) -> None:
        """Look now, and again and again."""
        if self._limit_bytes is not None:
            self._watch_limit(self._limit_bytes)
        elif self._reserve_bytes:
            self._watch_reserve()

    def _watch_limit(self, limit_bytes: int) -> None:
        held_bytes = self._measure()
        if held_bytes > limit_bytes:
            self._exceeded(
                held_bytes,
                f"its process holds {size_text(held_bytes)} of memory and may hold {size_text(limit_bytes)} "
                f"('{MEMORY_LIMIT.key}'); {self._states_text(held_bytes)}{self._advice}",
            )
        else:
            self._schedule(INTERVAL_MS, self.watch)

    def _watch_reserve(self) -> None:
        available_bytes = self._measure_available()
        was_short, self._was_short = self._was_short, available_bytes < self._reserve_bytes
        # Twice in a row: another process may have taken much for a moment.
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
        # All cores together take as long to what is near as the next look may wait.
        away_ms = (available_bytes - _NEAR * self._reserve_bytes) / (_TAKEN_PER_MS * _CORE_COUNT)
        delay_ms = min(max(QUICK_INTERVAL_MS, away_ms), SLOW_INTERVAL_MS)
        self._schedule(delay_ms, self.watch)

    def _states_text(self, held_bytes: int) -> str:
        """Say who holds columnar state, unless others hold almost everything."""
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
    """Return what a TaskManager may hold although memory is short; a half where nobody knows how many share it."""
    if is_memory_total_set(settings) or settings.is_set(PROCESSES_PER_HOST):
        return process_memory_bytes(settings)
    return container_memory_bytes() // 2


def _reserve_bytes(settings: Settings) -> int:
    part = settings.get_option(MEMORY_RESERVE)
    return max(_RESERVE_MIN_BYTES, int(container_memory_bytes() * part)) if part else 0
