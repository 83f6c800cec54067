"""Growth of memory under back pressure is told from its settled ends, not from single moments."""

import pytest

from benchmarks.back_pressure_memory import growth_percent


@pytest.mark.parametrize(
    ("first", "middle", "last", "growth"),
    [
        ([100.0] * 3, [500.0] * 3, [100.0] * 3, 0.0),
        ([100.0, 90.0, 400.0], [0.0] * 3, [150.0] * 3, 50.0),
    ],
)
def test_peaks_and_what_lies_between_do_not_count(
    first: list[float], middle: list[float], last: list[float], growth: float
) -> None:
    assert growth_percent(first + middle + last) == growth
