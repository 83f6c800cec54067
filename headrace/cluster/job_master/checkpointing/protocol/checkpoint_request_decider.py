"""PeriodicSchedule and CheckpointRequestDecider: schedule checkpoints, and choose the next request. Pure.

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
"""First number of periodic requests, which distinguishes them from requests of callers."""
QUEUE_SIZE_MAX: Final = 1000


class PeriodicSchedule:
    """Schedules periodic checkpoints at a fixed rate: one is due a period after the previous one was due.

    While a source processes a backlog the period differs, or there is none. Only the timer that was armed last
    counts: earlier ones have an older generation.
    """

    def __init__(
        self, configuration: CheckpointCoordinatorConfiguration, random: SeededRandom
    ) -> None:
        self._configuration: Final = configuration
        self._random: Final = random
        self._is_backlog = False
        self._generation = 0
        self._next_nominal_ms: float | None = None
        self._next_number = FIRST_PERIODIC_NUMBER
        self.is_on = False

    def start(self, now_ms: float) -> list[ArmPeriodicTimer]:
        """Start the schedule, if the job takes periodic checkpoints."""
        if self._configuration.interval_ms is None or self.is_on:
            return []
        self.is_on = True
        period_ms = self._period_ms
        if period_ms is None:
            return []
        # A random delay, so that jobs that started together do not write together.
        return self._arm(now_ms, self._random.uniform(self._configuration.min_pause_ms, period_ms))

    def stop(self) -> None:
        """Stop the schedule."""
        self.is_on = False
        self._disarm()

    def put_off(self, now_ms: float, delay_ms: float) -> list[ArmPeriodicTimer]:
        """Delay the next checkpoint, and with it all later ones."""
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
        """Return the next timer and the request that is due; None if an outdated timer fired."""
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
        return (
            self._configuration.backlog_period_ms
            if self._is_backlog
            else self._configuration.period_ms
        )

    def _arm(self, now_ms: float, delay_ms: float) -> list[ArmPeriodicTimer]:
        self._generation += 1
        self._next_nominal_ms = now_ms + delay_ms
        return [ArmPeriodicTimer(self._generation, delay_ms)]

    def _disarm(self) -> None:
        self._generation += 1
        self._next_nominal_ms = None


@dataclass(frozen=True)
class TooEarly:
    """Result of `choose`: the first request would start before the minimum pause is over, and is dropped."""

    request: CheckpointRequest
    remaining_ms: float


class CheckpointRequestDecider:
    """Holds waiting requests in order, at most QUEUE_SIZE_MAX, and chooses the one that may start now."""

    def __init__(self, max_concurrent: int) -> None:
        self._max_concurrent = max_concurrent
        self._requests: list[CheckpointRequest] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no request waits."""
        return not self._requests

    def put(self, request: CheckpointRequest) -> CheckpointRequest | None:
        """Add a request; return the request that does not fit, if any.

        Requests of users are kept: a new request is refused if no periodic one waits.
        """
        if len(self._requests) >= QUEUE_SIZE_MAX and not self._requests[-1].is_periodic:
            return request
        bisect.insort(self._requests, request, key=lambda each: each.order)
        return self._requests.pop() if len(self._requests) > QUEUE_SIZE_MAX else None

    def choose(
        self, *, pending_count: int, cleaning_count: int, pause_left_ms: float
    ) -> CheckpointRequest | TooEarly | None:
        """Remove and return the first request if it may start now."""
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
        """Remove and return all requests."""
        taken, self._requests = self._requests, []
        return taken
