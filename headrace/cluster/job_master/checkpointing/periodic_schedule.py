"""PeriodicSchedule: when the next periodic checkpoint is due. Pure; times are monotonic milliseconds.

Source: Flink CheckpointCoordinator.ScheduledTrigger.
"""


class PeriodicSchedule:
    """Fixed rate: the next one is due a period after the previous one was, however late that began."""

    def __init__(self, period_ms: float) -> None:
        self._period_ms = period_ms
        self._generation = 0
        self._next_nominal_ms = 0.0
        self.is_on = False

    @property
    def generation(self) -> int:
        """The timer that counts; earlier ones have no effect any more."""
        return self._generation

    def start(self, first_delay_ms: float, now_ms: float) -> float:
        """Switch on; returns the delay of the first timer."""
        self.is_on = True
        return self.delay(first_delay_ms, now_ms)

    def stop(self) -> None:
        """Switch off."""
        self.is_on = False
        self._generation += 1

    def delay(self, delay_ms: float, now_ms: float) -> float:
        """Put the next one off, and those after it with it; returns the delay of the timer that does that."""
        self._generation += 1
        self._next_nominal_ms = now_ms + delay_ms
        return delay_ms

    def fired(self, generation: int, now_ms: float) -> float | None:
        """A timer fired: the delay of the next one, or None where it was not the one that counts."""
        if not self.is_on or generation != self._generation:
            return None
        self._generation += 1
        self._next_nominal_ms += self._period_ms
        return max(0.0, self._next_nominal_ms - now_ms)
