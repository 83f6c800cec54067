"""join_rows: what it refuses, and which columns it gives."""

from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, col
from headrace.common import Time, Types
from headrace.core.errors import ProgramError
from headrace.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from headrace.functions.windowing.assigners import WindowStagger
from tests.unit.api.columnar_samples import persons_and_auctions


def test_columns_of_one_name_are_refused_with_a_way_out() -> None:
    persons, auctions = persons_and_auctions()
    other = persons.select("person", seller=col("name"))
    with pytest.raises(ProgramError, match="the join would have two columns 'seller'"):
        auctions.key_by("seller").join_rows(other.key_by("person"))
    swapped = auctions.key_by("seller", "auction")
    with pytest.raises(ProgramError, match="the join would have two columns 'auction'"):
        auctions.key_by("auction", "seller").join_rows(swapped)


def test_key_columns_of_one_name_stand_once() -> None:
    persons, auctions = persons_and_auctions()
    other = persons.select(col("person").alias("seller"), "name")
    joined = auctions.key_by("seller").join_rows(other.key_by("seller"))
    assert joined.get_type() == Types.ROW_NAMED(
        ["auction", "seller", "name"], [Types.LONG(), Types.LONG(), Types.STRING()]
    )


def test_keys_of_several_columns_are_paired_by_position_whatever_their_names() -> None:
    persons, auctions = persons_and_auctions()
    named = auctions.select("auction", "seller", title=col("seller") + 1)
    other = named.select(col("auction").alias("lot"), "seller", rank=col("title"))
    joined = named.key_by("auction", "seller").join_rows(other.key_by("lot", "seller"))
    assert joined.get_type() == Types.ROW_NAMED(
        ["auction", "seller", "title", "lot", "rank"], [Types.LONG()] * 5
    )
    with pytest.raises(ProgramError, match="keys of one type"):
        auctions.key_by("auction", "seller").join_rows(persons.key_by("person", "name"))
    with pytest.raises(ProgramError, match="keys of one type"):
        auctions.key_by("auction", "seller").join_rows(persons.key_by("person"))


def test_keys_that_are_rows_themselves_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    pair = Types.ROW_NAMED(["x", "y"], [Types.LONG(), Types.LONG()])
    nested = [
        env.from_collection([((1, 2), 3)], Types.ROW_NAMED([name, name * 2], [pair, Types.LONG()]))
        for name in ("a", "b")
    ]
    with pytest.raises(ProgramError, match="cannot compare the column 'a'"):
        nested[0].key_by("a").join_rows(nested[1].key_by("b"))


def test_keys_by_selector_are_refused() -> None:
    persons, auctions = persons_and_auctions()
    selected = persons.key_by(lambda row: row["person"], Types.LONG())
    with pytest.raises(ProgramError, match="names of their columns"):
        auctions.key_by("seller").join_rows(selected)


def test_keys_of_two_types_are_refused() -> None:
    persons, auctions = persons_and_auctions()
    with pytest.raises(ProgramError, match="keys of one type"):
        auctions.key_by("seller").join_rows(persons.key_by("name"))


@pytest.mark.parametrize(
    "windows",
    [
        SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)),
        TumblingEventTimeWindows.of(Time.seconds(10), None, WindowStagger.NATURAL),
    ],
    ids=["sliding", "staggered"],
)
def test_windows_that_are_not_tumbling_and_aligned_are_refused(windows: Any) -> None:
    persons, auctions = persons_and_auctions()
    with pytest.raises(ProgramError, match=r"join_rows needs tumbling .* aligned, or none, not"):
        auctions.key_by("seller").join_rows(persons.key_by("person"), windows)
