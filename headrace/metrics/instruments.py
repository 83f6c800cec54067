"""Instruments: counter, meter, gauge, distribution and histogram, all cheap for frequent events.

Only the owning thread writes; any thread may read, and may see a value that is one event old. An event costs one or two
additions; only readers read the clock.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from headrace.core.clock import Clock
from headrace.metrics.metric_name import MetricKind

Number = int | float
_NS_PER_SECOND: Final = 1_000_000_000
QUANTILES: Final = {
    "median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999,
}  # fmt: skip
"""Shares of a histogram's values below its quantiles, by the suffix of the quantile's name."""


def interpolated_quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of values in ascending order, interpolated between its two neighbours; NaN without values.

    `share`: the part of the values below the quantile, from 0 to 1. As in Flink: Commons Math's default estimation
    (LEGACY).
    """
    if not ordered:
        return math.nan
    position = share * (len(ordered) + 1)
    below = math.floor(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    return ordered[below - 1] + (position - below) * (ordered[below] - ordered[below - 1])


def plain_number(value: Any) -> Any:
    """Convert a number to Python's own type: numpy's wrap around, and messages cannot hold them.

    TypeError for other types.
    """
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, int | float):
        return number
    raise TypeError(f"a metric needs a number, not {value!r}")


class Metric(ABC):
    """Base of all instruments."""

    kind: ClassVar[MetricKind]

    @abstractmethod
    def snapshot(self, name: str) -> dict[str, Number]:
        """Return the values by their full names, which begin with `name`; empty if there is no value."""


class Counter(Metric):
    """A number of events, or of things that are added and removed."""

    kind = MetricKind.COUNTER

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n if type(n) is int else plain_number(n)

    def dec(self, n: int = 1) -> None:
        self._count -= n if type(n) is int else plain_number(n)

    def get_count(self) -> int:
        return self._count

    def snapshot(self, name: str) -> dict[str, Number]:
        return {name: self._count}


class Gauge(Metric):
    """A value that is read from a callable; it has no value if the call fails, or returns no number."""

    kind = MetricKind.GAUGE

    def __init__(self, read: Callable[[], Number]) -> None:
        self._read = read

    def get_value(self) -> Number:
        return self._read()

    def snapshot(self, name: str) -> dict[str, Number]:
        # Gauges are read by another thread, also while the object that they read is being closed.
        try:
            return {name: plain_number(self._read())}
        except Exception:
            return {}


class Meter(Metric):
    """Events per second over the last `time_span_in_seconds`.

    The span begins at the last reading that is at least this old, so readings that are further apart than the span give
    the rate between them. Source: Flink MeterView.
    """

    kind = MetricKind.METER

    def __init__(self, clock: Clock, time_span_in_seconds: int = 60) -> None:
        self._clock = clock
        self._span_ns: Final = time_span_in_seconds * _NS_PER_SECOND
        self._count = 0
        self._readings: deque[tuple[int, int]] = deque([(clock.monotonic_ns(), 0)])

    def mark_event(self, value: int = 1) -> None:
        self._count += value if type(value) is int else plain_number(value)

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        """Return events per second; 0.0 before any time has passed."""
        now_ns, count, readings = self._clock.monotonic_ns(), self._count, self._readings
        while len(readings) > 1 and readings[1][0] <= now_ns - self._span_ns:
            readings.popleft()
        since_ns, since_count = readings[0]
        # One reading per second is enough to find the begin of the span; more would only cost memory.
        if now_ns - readings[-1][0] >= _NS_PER_SECOND:
            readings.append((now_ns, count))
        if now_ns == since_ns:
            return 0.0
        return (count - since_count) * _NS_PER_SECOND / (now_ns - since_ns)

    def snapshot(self, name: str) -> dict[str, Number]:
        return {name: self.get_rate()}


class RateOf(Meter):
    """The rate of a count that another object keeps; a count that can no longer be read counts as constant."""

    def __init__(self, clock: Clock, read: Callable[[], int]) -> None:
        super().__init__(clock)
        self._read = read
        self._count = read()
        self._readings[0] = (self._readings[0][0], self._count)

    def get_rate(self) -> float:
        # As with gauges, the object that it reads may be closing.
        with suppress(Exception):
            self._count = self._read()
        return super().get_rate()


class Distribution(Metric):
    """Sum, count, minimum and maximum of integers."""

    kind = MetricKind.HISTOGRAM

    def __init__(self) -> None:
        self._sum = 0
        self._count = 0
        self._min = 0
        self._max = 0

    def update(self, value: int) -> None:
        value = value if type(value) is int else plain_number(value)
        self._min = min(self._min, value) if self._count else value
        self._max = max(self._max, value) if self._count else value
        self._sum += value
        self._count += 1

    def snapshot(self, name: str) -> dict[str, Number]:
        if not self._count:
            return {}
        values = {"sum": self._sum, "count": self._count, "min": self._min, "max": self._max}
        return {f"{name}_{key}": value for key, value in values.items()}


class Histogram(Metric):
    """The last `size` values: their extremes, mean, deviation and quantiles, and the count of all values so far.

    A concurrent reader may get values of two different moments.
    Source: Flink DescriptiveStatisticsHistogram; quantiles as Percentile of Apache Commons Math places them.
    """

    kind = MetricKind.HISTOGRAM

    def __init__(self, size: int) -> None:
        assert size > 0
        self._size: Final = size
        self._count = 0
        self._values: list[int] = []

    def update(self, value: int) -> None:
        value = value if type(value) is int else plain_number(value)
        if self._count < self._size:
            self._values.append(value)
        else:
            self._values[self._count % self._size] = value
        self._count += 1

    def get_count(self) -> int:
        return self._count

    def snapshot(self, name: str) -> dict[str, Number]:
        values = sorted(self._values)
        if not values:
            return {}
        mean = sum(values) / len(values)
        squares = sum((value - mean) ** 2 for value in values)
        found: dict[str, Number] = {
            "count": self._count,
            "min": values[0],
            "max": values[-1],
            "mean": mean,
            "stddev": (squares / (len(values) - 1)) ** 0.5 if len(values) > 1 else 0.0,
        }
        found |= {key: interpolated_quantile(values, share) for key, share in QUANTILES.items()}
        return {f"{name}_{key}": value for key, value in found.items()}
