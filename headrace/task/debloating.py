"""GateDebloating: looks at a task's gates every so often and tells producers how many bytes to have in flight.

Source: Flink StreamTask.scheduleBufferDebloater.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.config import Settings
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.network.debloat import DEBLOAT_ENABLED, DEBLOAT_PERIOD, BufferDebloater
from headrace.network.latency_governor import LATENCY_TARGET
from headrace.network.single_input_gate import SingleInputGate
from headrace.task.mailbox import MailboxTimers

_BYTES_MIN: Final = 256


@dataclass
class _Watched:
    gate: SingleInputGate
    debloater: BufferDebloater
    taken_bytes: int = 0


class GateDebloating:
    """Of one task; everything runs on its mailbox thread. `idle_ms` is how long the task has been idle in all."""

    def __init__(
        self,
        gates: Sequence[SingleInputGate],
        settings: Settings,
        timers: MailboxTimers,
        idle_ms: Callable[[], float],
    ) -> None:
        self._timers = timers
        self._idle_ms = idle_ms
        self._period_ms = round(settings.duration_ms(DEBLOAT_PERIOD))
        is_enabled = (
            settings.get_option(DEBLOAT_ENABLED) or settings.duration_ms(LATENCY_TARGET) > 0
        )
        self._watched = [
            _Watched(gate, BufferDebloater.from_settings(settings, *_bounds(gate)))
            for gate in (gates if is_enabled else ())
        ]
        self._last_ms = self._last_idle_ms = 0.0

    @property
    def in_flight_bytes(self) -> int | None:
        """What is wanted in flight to all gates together; None where nothing is debloated."""
        if not self._watched:
            return None
        return sum(watched.debloater.announced_bytes for watched in self._watched)

    @property
    def time_to_consume_ms(self) -> float:
        """How long the task would take for what is in flight to its slowest gate."""
        return max((each.debloater.time_to_consume_ms for each in self._watched), default=0.0)

    def start(self) -> None:
        """Begin to look."""
        if self._watched:
            self._last_ms, self._last_idle_ms = self._timers.now_ms(), self._idle_ms()
            self._schedule()

    def _schedule(self) -> None:
        self._timers.schedule(self._timers.now_ms() + self._period_ms, self._look)

    def _look(self, _time_ms: int) -> None:
        now_ms, idle_ms = self._timers.now_ms(), self._idle_ms()
        active_ms = now_ms - self._last_ms - (idle_ms - self._last_idle_ms)
        self._last_ms, self._last_idle_ms = now_ms, idle_ms
        for watched in self._watched:
            taken_bytes = watched.gate.bytes_in
            wanted = watched.debloater.recalculate(
                taken_bytes - watched.taken_bytes, active_ms, watched.gate.queued_bytes
            )
            watched.taken_bytes = taken_bytes
            if wanted is not None:
                watched.gate.limit_in_flight(wanted)
        self._schedule()


def _bounds(gate: SingleInputGate) -> tuple[int, int]:
    """The least that lets every channel go on, and what the gate's memory holds at most."""
    least = _BYTES_MIN * gate.number_of_channels
    return least, max(least, gate.capacity_bytes)


def register_debloating_metrics(group: MetricGroup, debloating: GateDebloating) -> None:
    """Register what debloating wants and expects, in the group of the task; nothing where it is off."""
    if debloating.in_flight_bytes is not None:
        group.gauge(names.DEBLOATED_BUFFER_SIZE, lambda: debloating.in_flight_bytes or 0)
        group.gauge(names.ESTIMATED_TIME_TO_CONSUME, lambda: debloating.time_to_consume_ms)
