"""Built-in aggregates with conditions, of different values, without a key, up to the end: their types and refusals."""

import re
from typing import Any

import pytest

from headrace import OutputTag, agg, col
from headrace.api.columns import aggregates
from headrace.common import Time, Types
from headrace.core.errors import ProgramError
from headrace.datastream.window import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headrace.functions.specs.columnar_specs import MERGEABLE_AGGREGATES, MERGEABLE_KEYS
from tests.unit.api.columnar_samples import WINDOWS, bids

TO_THE_END = GlobalWindows.create_with_end_of_stream_trigger()


def test_a_condition_shows_in_the_plan_and_joins_one_that_was_there() -> None:
    dear = agg.count().where(col("price") > 5).where(col("rate") < 1).alias("dear")
    assert repr(dear) == "count() where ((price > 5) and (rate < 1)) as dear"


@pytest.mark.parametrize("function", [agg.first, agg.last])
def test_first_and_last_take_no_condition(function: Any) -> None:
    with pytest.raises(TypeError, match="filter the stream before"):
        function("price").where(col("price") > 1)


def test_a_condition_must_be_a_truth_value_over_columns_that_are_there() -> None:
    with pytest.raises(TypeError, match="where needs a condition"):
        agg.count().where(True)  # type: ignore[arg-type]
    windows = bids().key_by("auction").window(WINDOWS)
    wrong = col("price") + 1
    columns = "auction: string, price: int64, rate: double, time: int64"
    for condition, message in (
        (wrong, f"where needs a condition, but {wrong} is of type int64"),
        (
            col("x") > 1,
            f"where((x > 1)) does not fit the columns {columns}: there is no column 'x'",
        ),
    ):
        with pytest.raises(ProgramError, match=f"^{re.escape(message)}$"):
            windows.aggregate(agg.count().where(condition))
    with pytest.raises(ProgramError, match="no column 'y'"):
        windows.aggregate(agg.sum("y").where(col("price") > 1))


def test_there_are_no_window_columns_at_the_end_of_input() -> None:
    made = bids().key_by("auction").window(TO_THE_END).aggregate(agg.count_distinct("price"))
    assert made.get_type() == Types.ROW_NAMED(
        ["auction", "count_distinct_price"], [Types.STRING(), Types.LONG()]
    )


def test_without_a_key_there_are_only_the_window_and_the_aggregates() -> None:
    made = bids().window_all(WINDOWS).aggregate(agg.max("price").where(col("rate") < 0.3))
    utc = aggregates.WINDOW_TYPE
    assert made.get_type() == Types.ROW_NAMED(
        ["window_start", "window_end", "max_price"], [utc, utc, Types.LONG()]
    )


@pytest.mark.parametrize(
    "windows",
    [
        SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)),
        GlobalWindows.create(),
        TumblingProcessingTimeWindows.of(Time.seconds(10)),
    ],
    ids=["sliding", "never ending", "processing time"],
)
def test_without_a_key_other_windows_are_refused(windows: Any) -> None:
    with pytest.raises(ProgramError, match="create_with_end_of_stream_trigger"):
        bids().window_all(windows).aggregate(agg.count())


def test_aggregates_that_have_no_halves_are_refused_where_only_halves_will_do() -> None:
    by_auction = bids().key_by("auction")
    sessions = EventTimeSessionWindows.with_gap(Time.seconds(5))
    for windowed, message in (
        (
            bids().window_all(WINDOWS),
            f"built-in aggregates without a key cannot take mean(rate) of type double: they are "
            f"{MERGEABLE_AGGREGATES}; "
            "pass an AggregateFunction for others",
        ),
        (
            by_auction.window(TO_THE_END),
            "built-in aggregates up to the end of input cannot take mean(rate) of type double: "
            f"they are {MERGEABLE_AGGREGATES}, {MERGEABLE_KEYS}, without lateness or side output",
        ),
        (
            by_auction.window(sessions),
            "built-in aggregates of sessions cannot take mean(rate) of type double: "
            f"they are {MERGEABLE_AGGREGATES}, {MERGEABLE_KEYS}; pass an AggregateFunction for others",
        ),
    ):
        with pytest.raises(ProgramError, match=f"^{re.escape(message)}$"):
            windowed.aggregate(agg.mean("rate"))
        # One of those that the message names.
        windowed.aggregate(agg.count_distinct("auction"))


def test_distinct_counts_name_what_keeps_them_from_being_computed() -> None:
    by_auction = bids().key_by("auction")
    distinct = agg.count_distinct("price")
    late = OutputTag("late", bids().get_type())
    gaps = SlidingEventTimeWindows.of(Time.seconds(5), Time.seconds(10))
    for windowed, chosen, cause in (
        (
            by_auction.window(WINDOWS),
            [agg.count_distinct("rate")],
            "count_distinct(rate) of type double",
        ),
        (by_auction.window(WINDOWS), [distinct, agg.sum("rate")], "sum(rate) of type double"),
        (bids().key_by("rate").window(WINDOWS), [distinct], "the key column 'rate' of type double"),
        (by_auction.window(gaps), [distinct], "windows with gaps between them"),
        (
            by_auction.window(WINDOWS).side_output_late_data(late),
            [distinct],
            "lateness or side output",
        ),
        (by_auction.window(WINDOWS).allowed_lateness(5), [distinct], "lateness or side output"),
    ):
        message = (
            f"{chosen[0]!r} cannot be computed, because of {cause}: with distinct counts a window takes only "
            f"{MERGEABLE_AGGREGATES}, {MERGEABLE_KEYS}, without gaps between windows, lateness or side output"
        )
        with pytest.raises(ProgramError, match=f"^{re.escape(message)}$"):
            windowed.aggregate(*chosen)
