"""PeriodicSchedule and CheckpointRequestDecider: when a checkpoint is due, and which request is next. Pure.

Times are monotonic milliseconds. Source: Flink CheckpointCoordinator.ScheduledTrigger, CheckpointRequestDecider, and
FLIP-309 for the backlog.
"""

import bisect
from dataclasses import dataclass
from typing import Final

from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    CheckpointCoordinatorConfiguration,
)
from headrace.cluster.job_master.checkpointing.protocol.events import ArmPeriodicTimer
from headrace.cluster.job_master.checkpointing.protocol.pending_checkpoint import CheckpointRequest
from headrace.core.barriers import SnapshotKind
from headrace.core.randomness import SeededRandom

FIRST_PERIODIC_NUMBER: Final = 1 << 40
"""Periodic requests are numbered from here, apart from those that somebody waits for."""
QUEUE_SIZE_MAX: Final = 1000


class PeriodicSchedule:
    """Schedules periodic checkpoints at a fixed rate: one is due a period after the previous one was due.

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
        """Switch on, if the job takes periodic checkpoints."""
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
        """Delay the next checkpoint, and those after it with it."""
        return self._arm(now_ms, delay_ms) if self.is_on and self._period_ms is not None else []

    def backlog_changed(self, now_ms: float, is_backlog: bool) -> list[ArmPeriodicTimer]:
        """Change the period; a checkpoint that is due earlier than one new period from now stays due."""
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
        """Return the next timer and the request that is due; None if the timer that fired is an earlier one."""
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


@dataclass(frozen=True)
class TooEarly:
    """The first request in order would start before the least pause is over: it is dropped."""

    request: CheckpointRequest
    remaining_ms: float


class CheckpointRequestDecider:
    """Holds waiting requests in order, at most QUEUE_SIZE_MAX, and chooses the one that may start now."""

    def __init__(self, max_concurrent: int) -> None:
        self._max_concurrent = max_concurrent
        self._requests: list[CheckpointRequest] = []

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not self._requests

    def put(self, request: CheckpointRequest) -> CheckpointRequest | None:
        """Add a request; return the one that there is no room for, if any.

        Requests of people are kept: a new request is turned away if no periodic one waits.
        """
        if len(self._requests) >= QUEUE_SIZE_MAX and not self._requests[-1].is_periodic:
            return request
        bisect.insort(self._requests, request, key=lambda each: each.order)
        return self._requests.pop() if len(self._requests) > QUEUE_SIZE_MAX else None

    def choose(
        self, *, pending_count: int, cleaning_count: int, pause_left_ms: float
    ) -> CheckpointRequest | TooEarly | None:
        """Take the first request out if it may start now."""
        if not self._requests or cleaning_count > self._max_concurrent:
            return None
        first = self._requests[0]
        if pending_count >= self._max_concurrent and not first.is_forced:
            return None
        del self._requests[0]
        if first.is_periodic and not first.is_forced and pause_left_ms > 0:
            return TooEarly(first, pause_left_ms)
        return first

    def clear(self) -> list[CheckpointRequest]:
        """Take all requests out."""
        taken, self._requests = self._requests, []
        return taken
