"""largest_rows and smallest_rows: what they refuse."""

from typing import Any

import pytest

from headrace.common import Time, Types
from headrace.core.errors import ProgramError
from headrace.datastream.window import GlobalWindows, SlidingEventTimeWindows
from tests.unit.api.columnar_samples import WINDOWS, bids


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_no_rows_or_part_of_one_are_refused(count: Any) -> None:
    with pytest.raises(ProgramError, match="at least 1"):
        bids().window_all(WINDOWS).largest_rows(count, "price")


@pytest.mark.parametrize(
    ("columns", "message"),
    [((), "a column to order by"), (("colour",), "no column 'colour'")],
    ids=["none", "unknown"],
)
def test_columns_that_are_not_there_are_refused(columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        bids().window_all(WINDOWS).smallest_rows(2, *columns)


@pytest.mark.parametrize(
    "windows",
    [SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)), GlobalWindows.create()],
    ids=["sliding", "never ending"],
)
def test_other_windows_are_refused(windows: Any) -> None:
    with pytest.raises(ProgramError, match="create_with_end_of_stream_trigger"):
        bids().key_by("auction").window(windows).largest_rows(2, "price")


def test_rows_within_rows_have_no_order() -> None:
    nested = bids().map(lambda row: row, Types.ROW_NAMED(["pairs"], [Types.LIST(Types.LONG())]))
    with pytest.raises(ProgramError, match="'pairs' is list"):
        nested.window_all(WINDOWS).largest_rows(1, "pairs")


def test_a_key_selector_and_lateness_are_refused() -> None:
    keyed = bids().key_by(lambda row: row["auction"], Types.STRING())
    with pytest.raises(ProgramError, match="names of its columns"):
        keyed.window(WINDOWS).largest_rows(1, "price")
    with pytest.raises(ProgramError, match="lateness"):
        bids().window_all(WINDOWS).allowed_lateness(5).largest_rows(1, "price")
