"""StatisticsHistogram: minimum, maximum, average and quantiles of one measure, in bounded memory. Pure.

Source: Flink StatsSummary, DescriptiveStatisticsHistogram.
"""

from array import array
from typing import Final

from headrace.core.quantiles import interpolated_quantile
from headrace.gateways.checkpoint_statistics import StatisticsSummary

WINDOW_SIZE: Final = 10_000
"""Number of values whose quantiles are told, the newest ones."""
_QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)


class StatisticsHistogram:
    """Takes integers; minimum, maximum and average are of all, quantiles of the `window_size` newest."""

    def __init__(self, window_size: int = WINDOW_SIZE) -> None:
        assert window_size >= 1
        self._window_size: Final = window_size
        self._newest: Final = array("q")
        self._count = 0
        self._sum = 0
        self._minimum = 0
        self._maximum = 0

    def add(self, value: int) -> None:
        """Take one value."""
        self._minimum = value if not self._count else min(self._minimum, value)
        self._maximum = value if not self._count else max(self._maximum, value)
        if len(self._newest) < self._window_size:
            self._newest.append(value)
        else:
            self._newest[self._count % self._window_size] = value
        self._count += 1
        self._sum += value

    @property
    def summary(self) -> StatisticsSummary:
        """Return the values so far."""
        if not self._count:
            return StatisticsSummary()
        ordered = sorted(self._newest)
        p50, p90, p95, p99, p999 = (interpolated_quantile(ordered, each) for each in _QUANTILES)
        average = self._sum // self._count
        return StatisticsSummary(self._minimum, self._maximum, average, p50, p90, p95, p99, p999)
