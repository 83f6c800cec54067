"""StatisticsHistogram: exact quantiles of the newest values, and bounds and average of all."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.job_master.checkpointing.checkpoint_statistics_tracker import (
    StatisticsHistogram,
)
from headrace.metrics.instruments import interpolated_quantile

VALUES = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40)


def of(values: list[int], window_size: int = 10_000) -> StatisticsHistogram:
    histogram = StatisticsHistogram(window_size)
    for value in values:
        histogram.add(value)
    return histogram


def test_without_values_quantiles_are_no_numbers() -> None:
    summary = StatisticsHistogram().summary
    assert (summary.minimum, summary.maximum, summary.average) == (0, 0, 0)
    assert math.isnan(summary.p50) and math.isnan(summary.p999)


def test_quantiles_lie_between_the_two_values_beside_them() -> None:
    summary = of([40, 10, 30, 20]).summary
    assert (summary.minimum, summary.maximum, summary.average) == (10, 40, 25)
    assert (summary.p50, summary.p90, summary.p99) == (25.0, 40.0, 40.0)


@given(VALUES, st.integers(1, 8))
def test_quantiles_are_of_the_newest_values_and_bounds_of_all(
    values: list[int], window_size: int
) -> None:
    summary = of(values, window_size).summary
    newest = sorted(values[-window_size:])
    assert summary.p50 == interpolated_quantile(
        newest, 0.5
    ) and summary.p999 == interpolated_quantile(newest, 0.999)
    assert (summary.minimum, summary.maximum) == (min(values), max(values))
    assert summary.average == sum(values) // len(values)


@given(VALUES)
def test_quantiles_never_fall_and_stay_within_the_values(values: list[int]) -> None:
    summary = of(values).summary
    quantiles = [summary.p50, summary.p90, summary.p95, summary.p99, summary.p999]
    assert quantiles == sorted(quantiles)
    assert summary.minimum <= quantiles[0] and quantiles[-1] <= summary.maximum
