"""TimerGauge: how many milliseconds of each second something lasts, from marks and a clock reading given with each.

Source: Flink TimerGauge.
"""

from typing import Final

_NS_PER_MS: Final = 1_000_000


class TimerGauge:
    """Milliseconds per second, averaged over the last `slot_count` update periods.

    Pure: all readings are monotonic nanoseconds. `update` is to be called about every 5 s, so that twelve slots make
    a minute. Between `mark_start` and `mark_end` the time counts, also across updates.
    """

    def __init__(self, now_ns: int, slot_count: int = 12) -> None:
        self._slot_count: Final = slot_count
        self._slots: list[tuple[int, int]] = []  # (measured ns, length ns) of the last periods
        self._period_start_ns = now_ns
        self._measured_ns = 0
        self._accumulated_ns = 0
        self._started_ns: int | None = None
        self._counted_until_ns = now_ns
        self._longest_ns = 0
        self._previous_longest_ns = 0

    def mark_start(self, now_ns: int) -> None:
        """It begins; a second start has no effect."""
        if self._started_ns is None:
            self._started_ns = self._counted_until_ns = now_ns

    def mark_end(self, now_ns: int) -> None:
        """It ends; an end without a start has no effect."""
        if self._started_ns is not None:
            self._count_until(now_ns)
            self._started_ns = None

    def update(self, now_ns: int) -> None:
        """Close the current period."""
        self._count_until(now_ns)
        self._slots.append((self._measured_ns, now_ns - self._period_start_ns))
        del self._slots[: -self._slot_count]
        self._period_start_ns = now_ns
        self._measured_ns = 0
        self._previous_longest_ns, self._longest_ns = self._longest_ns, 0

    def ms_per_second(self) -> float:
        """Share of the closed periods, in [0, 1000]; 0.0 before the first."""
        length_ns = sum(length for _, length in self._slots)
        if not length_ns:
            return 0.0
        measured_ns = sum(measured for measured, _ in self._slots)
        return min(1000.0, max(0.0, 1000 * measured_ns / length_ns))

    def accumulated_ms(self) -> float:
        """All time measured so far; never reset."""
        return self._accumulated_ns / _NS_PER_MS

    def longest_single_ms(self) -> float:
        """Longest single measurement, running ones included, of the last closed period."""
        return self._previous_longest_ns / _NS_PER_MS

    @property
    def is_measuring(self) -> bool:
        """Whether it lasts now."""
        return self._started_ns is not None

    def _count_until(self, now_ns: int) -> None:
        if self._started_ns is None:
            return
        elapsed_ns = now_ns - self._counted_until_ns
        self._measured_ns += elapsed_ns
        self._accumulated_ns += elapsed_ns
        self._counted_until_ns = now_ns
        self._longest_ns = max(self._longest_ns, now_ns - self._started_ns)


def busy_ms_per_second(idle: TimerGauge, back_pressured: TimerGauge) -> float:
    """What is left of each second after idle and back-pressured time."""
    return 1000.0 - min(1000.0, idle.ms_per_second() + back_pressured.ms_per_second())
