"""rows_with_max and rows_with_min: what they refuse."""

from typing import Any

import pytest

from headrace.common import Time, Types
from headrace.core.errors import ProgramError
from headrace.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from headrace.functions.windowing.assigners import WindowStagger
from tests.unit.api.columnar_samples import WINDOWS, bids


@pytest.mark.parametrize(
    "windows",
    [
        SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)),
        TumblingEventTimeWindows.of(Time.seconds(10), None, WindowStagger.NATURAL),
    ],
    ids=["sliding", "staggered"],
)
def test_windows_that_are_not_tumbling_and_aligned_are_refused(windows: Any) -> None:
    with pytest.raises(
        ProgramError, match=r"rows_with_max needs tumbling .* aligned, or Global.*, not"
    ):
        bids().window_all(windows).rows_with_max("price")


def test_a_column_without_whole_numbers_is_refused() -> None:
    with pytest.raises(ProgramError, match="'rate' is double"):
        bids().window_all(WINDOWS).rows_with_max("rate")


def test_a_key_selector_is_refused() -> None:
    keyed = bids().key_by(lambda row: row["auction"], Types.STRING())
    with pytest.raises(ProgramError, match="names of its columns"):
        keyed.window(WINDOWS).rows_with_max("price")


def test_lateness_is_refused() -> None:
    with pytest.raises(ProgramError, match="lateness"):
        bids().window_all(WINDOWS).allowed_lateness(5).rows_with_max("price")
