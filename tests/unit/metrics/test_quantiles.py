"""Quantiles: interpolation between neighbours, and the ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metrics.instruments import interpolated_quantile

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40).map(sorted)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.25, 2.5), (0.5, 5.0), (0.9, 9.0), (1.0, 9.0)]
)
def test_quantiles_of_one_to_nine(share: float, expected: float) -> None:
    assert interpolated_quantile(range(1, 10), share) == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_single_value_is_every_quantile(share: float) -> None:
    assert interpolated_quantile([7.5], share) == 7.5


def test_without_values_a_quantile_is_no_number() -> None:
    assert math.isnan(interpolated_quantile([], 0.5))


@given(VALUES, st.floats(0, 1))
def test_a_quantile_lies_within_the_values(values: list[float], share: float) -> None:
    assert values[0] <= interpolated_quantile(values, share) <= values[-1]
