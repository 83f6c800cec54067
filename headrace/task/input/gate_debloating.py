"""GateDebloating: measures a task's gates periodically and tells producers how many rows to have in flight.

It pauses while no rows arrive, so that an idle task is not woken.
Source: Flink StreamTask.scheduleBufferDebloater.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.config import Settings
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.network.flow.buffer_debloater import DEBLOAT_PERIOD, BufferDebloater, is_debloated
from headrace.network.gates.single_input_gate import SingleInputGate
from headrace.task.mailbox import MailboxTimers

_LOOKS_WHILE_GROWING: Final = 5
_ROUND_LOOK_MS: Final = 2
"""Delay in ms of the next measurement while a task takes in all allowed rows, because vectorised jobs are short."""


@dataclass
class _Watched:
    """A gate with its debloater.

    `taken_rows` and `active_ms` at the last look, `looked_ms` at the last one with rows.
    """

    gate: SingleInputGate
    debloater: BufferDebloater
    taken_rows: int = 0
    active_ms: float = 0.0
    looked_ms: int = 0

    @property
    def new_rows(self) -> int:
        """Rows taken in since the last look."""
        return self.gate.records_in - self.taken_rows


class GateDebloating:
    """Debloats the gates of one task on its mailbox thread.

    `active_ms` returns the total time that the task was not idle.
    """

    def __init__(
        self,
        gates: Sequence[SingleInputGate],
        settings: Settings,
        timers: MailboxTimers,
        active_ms: Callable[[], float],
    ) -> None:
        self._timers = timers
        self._active_ms = active_ms
        self._period_ms = max(1, round(settings.duration_ms(DEBLOAT_PERIOD)))
        self._growing_period_ms = max(1, self._period_ms // _LOOKS_WHILE_GROWING)
        self._watched = [
            _Watched(gate, BufferDebloater.from_settings(settings, max(1, gate.number_of_channels)))
            for gate in (gates if is_debloated(settings) else ())
        ]
        self.is_resting = False
        """True while no measurement is scheduled, because no rows came before the last one and none were queued."""

    @property
    def in_flight_bytes(self) -> int | None:
        """Wanted in-flight bytes of all gates together, by the size of their rows; None if no gate is debloated."""
        if not self._watched:
            return None
        return sum(map(_wanted_bytes, self._watched))

    @property
    def time_to_consume_ms(self) -> float:
        """Time that the task would take to consume the in-flight data of its slowest gate, in ms."""
        return max((each.debloater.time_to_consume_ms for each in self._watched), default=0.0)

    def start(self) -> None:
        """Start to measure periodically. Call before partitions are requested, so that the first limits apply."""
        for watched in self._watched:
            watched.gate.limit_in_flight(watched.debloater.announced_rows)
            watched.active_ms = self._active_ms()
        self.is_resting = bool(self._watched)

    def resume(self) -> None:
        """Schedule a measurement if rows have come during the pause. Call after each round of the task."""
        if any(each.new_rows for each in self._watched):
            self.is_resting = False
            # A whole period, however short later ones are: the time of the first batch is not known yet.
            self._schedule(is_first=True)

    def _schedule(self, is_first: bool = False) -> None:
        growing = [each for each in self._watched if each.debloater.is_growing]
        delay_ms = self._growing_period_ms if growing else self._period_ms
        if not is_first and any(
            each.new_rows or each.looked_ms == self._timers.now_ms() for each in growing
        ):
            delay_ms = min(delay_ms, _ROUND_LOOK_MS)
        self._timers.schedule(self._timers.now_ms() + delay_ms, self._look)

    def _look(self, _time_ms: int) -> None:
        now_ms, active_ms = self._timers.now_ms(), self._active_ms()
        if not any(each.new_rows or each.gate.queued_bytes for each in self._watched):
            self.is_resting = True
        for watched in self._watched:
            gate, taken_rows = watched.gate, watched.new_rows
            if not taken_rows and gate.queued_bytes:
                # The last batch is still being processed: its time counts with the next one.
                continue
            if (
                watched.debloater.is_growing
                and taken_rows < watched.debloater.announced_rows
                and now_ms - watched.looked_ms < self._growing_period_ms
            ):
                # The time of the current batch is not known yet: it matters little in a whole round.
                continue
            row_bytes = max(1.0, gate.bytes_in / max(1, gate.records_in))
            wanted = watched.debloater.recalculate(
                taken_rows,
                active_ms - watched.active_ms,
                gate.queued_bytes / row_bytes,
                gate.capacity_bytes / row_bytes,
            )
            watched.taken_rows, watched.active_ms = gate.records_in, active_ms
            if taken_rows:
                watched.looked_ms = now_ms
            if wanted is not None:
                gate.limit_in_flight(wanted)
        if not self.is_resting:
            self._schedule()


def _wanted_bytes(watched: _Watched) -> int:
    gate = watched.gate
    row_bytes = gate.bytes_in / max(1, gate.records_in)
    return round(min(watched.debloater.announced_rows * row_bytes, gate.capacity_bytes))


def register_debloating_metrics(group: MetricGroup, debloating: GateDebloating) -> None:
    """Register the metrics of debloating in the task's group; none if it is off."""
    if debloating.in_flight_bytes is not None:
        group.gauge(names.DEBLOATED_BUFFER_SIZE, lambda: debloating.in_flight_bytes or 0)
        group.gauge(names.ESTIMATED_TIME_TO_CONSUME, lambda: debloating.time_to_consume_ms)
