"""Schedule of periodic checkpoints and their requests. Pure; times are monotonic milliseconds.

Source: Flink CheckpointCoordinator.ScheduledTrigger, FLIP-309 for the backlog.
"""

from typing import Final

from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import ArmPeriodicTimer
from headrace.cluster.job_master.checkpointing.protocol.request_queue import CheckpointRequest
from headrace.core.barriers import SnapshotKind
from headrace.core.randomness import SeededRandom

FIRST_PERIODIC_NUMBER: Final = 1 << 40
"""Periodic requests are numbered from here, apart from those that somebody waits for."""


class PeriodicSchedule:
    """Fixed rate: the next one is due a period after the previous one was, however late that began.

    While a source works off a backlog the period is another one, or there is none. Only the timer that was armed last
    counts: earlier ones have another generation.
    """

    def __init__(self, rules: CheckpointCoordinatorConfiguration, random: SeededRandom) -> None:
        self._rules: Final = rules
        self._random: Final = random
        self._is_backlog = False
        self._generation = 0
        self._next_nominal_ms: float | None = None
        self._next_number = FIRST_PERIODIC_NUMBER
        self.is_on = False

    def start(self, now_ms: float) -> list[ArmPeriodicTimer]:
        """Switch on, where the job takes any."""
        if self._rules.interval_ms is None or self.is_on:
            return []
        self.is_on = True
        period_ms = self._period_ms
        if period_ms is None:
            return []
        # Drawn, so that jobs that started together do not write together.
        return self._arm(now_ms, self._random.uniform(self._rules.min_pause_ms, period_ms))

    def stop(self) -> None:
        """Switch off."""
        self.is_on = False
        self._disarm()

    def put_off(self, now_ms: float, delay_ms: float) -> list[ArmPeriodicTimer]:
        """Have the next one after a delay, and those after it with it."""
        return self._arm(now_ms, delay_ms) if self.is_on and self._period_ms is not None else []

    def backlog_changed(self, now_ms: float, is_backlog: bool) -> list[ArmPeriodicTimer]:
        """From now on the other period counts; what is due before one of it is over stays due."""
        self._is_backlog = is_backlog
        period_ms = self._period_ms
        if period_ms is None:
            self._disarm()
        elif self.is_on:
            due_ms = self._next_nominal_ms
            if due_ms is None or due_ms > now_ms + period_ms:
                return self._arm(now_ms, period_ms)
        return []

    def fired(
        self, now_ms: float, generation: int
    ) -> tuple[ArmPeriodicTimer, CheckpointRequest] | None:
        """A timer fired: that of the next one, and the request; None where it was not the one that counts."""
        period_ms, due_ms = self._period_ms, self._next_nominal_ms
        if not self.is_on or generation != self._generation or period_ms is None or due_ms is None:
            return None
        self._generation += 1
        self._next_nominal_ms = due_ms + period_ms
        number, self._next_number = self._next_number, self._next_number + 1
        delay_ms = max(0.0, self._next_nominal_ms - now_ms)
        return (
            ArmPeriodicTimer(self._generation, delay_ms),
            CheckpointRequest(number, SnapshotKind.CHECKPOINT, is_periodic=True),
        )

    @property
    def _period_ms(self) -> float | None:
        return self._rules.backlog_period_ms if self._is_backlog else self._rules.period_ms

    def _arm(self, now_ms: float, delay_ms: float) -> list[ArmPeriodicTimer]:
        self._generation += 1
        self._next_nominal_ms = now_ms + delay_ms
        return [ArmPeriodicTimer(self._generation, delay_ms)]

    def _disarm(self) -> None:
        self._generation += 1
        self._next_nominal_ms = None
