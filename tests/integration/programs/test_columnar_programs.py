"""Columnar keyed calls in whole programs: rows with the largest value of a window, joins of rows."""

from typing import Any

from headrace import DataStream, StreamExecutionEnvironment, agg, col
from headrace.common import Types
from headrace.datastream.window import GlobalWindows
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.unit.api.columnar_samples import WINDOWS, bids, persons_and_auctions

TO_THE_END = GlobalWindows.create_with_end_of_stream_trigger()


def rows_of(stream: DataStream) -> list[tuple[Any, ...]]:
    with MiniClusterExecutor(slot_count=2), stream.execute_and_collect() as results:
        return sorted(tuple(row) for row in results)


def test_conditions_and_different_values_are_counted_up_to_the_end_of_input() -> None:
    counts = (
        bids()
        .key_by("auction")
        .window(TO_THE_END)
        .aggregate(
            agg.count(),
            agg.count().where(col("price") > 5).alias("dear"),
            agg.sum("price").where(col("rate") < 0.3).alias("sum"),
            agg.count_distinct("price"),
            agg.count_distinct("time").where(col("price") > 100).alias("none"),
        )
    )
    assert rows_of(counts) == [("a", 2, 1, 9, 2, 0), ("b", 2, 1, 1, 2, 0)]


def test_a_stream_without_a_key_has_aggregates_of_each_window() -> None:
    highest = bids().window_all(WINDOWS).aggregate(agg.max("price"), agg.count_distinct("auction"))
    found = [(start.timestamp(), end.timestamp(), *rest) for start, end, *rest in rows_of(highest)]
    assert found == [(0.0, 10.0, 9, 2), (10.0, 20.0, 1, 1)]


def test_aggregates_of_aggregates_come_at_the_end_of_input_as_rows_without_times() -> None:
    most = bids().key_by("auction").window(TO_THE_END).aggregate(agg.max("price").alias("most"))
    mean = most.window_all(TO_THE_END).aggregate(agg.mean("most"), agg.count())
    assert rows_of(mean) == [(9.0, 2)]


def test_the_last_row_of_a_key_and_the_first_two_of_all() -> None:
    last = bids().key_by("auction").window(TO_THE_END).largest_rows(1, "time")
    assert rows_of(last) == [("a", 9, 0.1, 3_000), ("b", 1, 0.2, 11_000)]
    dearest = bids().window_all(TO_THE_END).largest_rows(2, "price", "rate")
    assert rows_of(dearest) == [("a", 9, 0.1, 3_000), ("b", 9, 0.5, 2_000)]


def test_the_largest_rows_of_each_window_come_whole() -> None:
    with MiniClusterExecutor(slot_count=2):
        largest = bids().window_all(WINDOWS).rows_with_max("price")
        with largest.execute_and_collect() as results:
            found = sorted(tuple(row) for row in results)
    assert found == [("a", 9, 0.1, 3_000), ("b", 1, 0.2, 11_000), ("b", 9, 0.5, 2_000)]


def test_with_keys_each_key_has_its_own_smallest_rows() -> None:
    with MiniClusterExecutor(slot_count=2):
        smallest = bids().key_by("auction").window(WINDOWS).rows_with_min("price")
        with smallest.execute_and_collect() as results:
            found = sorted(tuple(row)[:2] for row in results)
    assert found == [("a", 3), ("b", 1), ("b", 9)]


def test_every_pair_of_one_key_comes_with_the_columns_of_both() -> None:
    persons, auctions = persons_and_auctions()
    with MiniClusterExecutor(slot_count=2):
        joined = auctions.key_by("seller").join_rows(persons.key_by("person"))
        with joined.execute_and_collect() as results:
            found = sorted(tuple(row) for row in results)
    assert found == [(10, 1, 1, "ada"), (11, 2, 2, "bob"), (12, 1, 1, "ada")]


def test_keys_of_several_columns_join_under_one_name_and_under_two() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    prices = env.from_collection(
        [("a", 1, 10), ("a", 2, 20), ("b", 1, 30)],
        Types.ROW_NAMED(["shop", "article", "price"], [Types.STRING(), Types.LONG(), Types.LONG()]),
    )
    sales = env.from_collection(
        [("a", 2, 7), ("b", 1, 8), ("b", 2, 9)],
        Types.ROW_NAMED(["shop", "sold", "count"], [Types.STRING(), Types.LONG(), Types.LONG()]),
    )
    with MiniClusterExecutor(slot_count=2):
        joined = prices.key_by("shop", "article").join_rows(sales.key_by("shop", "sold"))
        with joined.execute_and_collect() as results:
            found = sorted(tuple(row) for row in results)
    assert found == [("a", 2, 20, 2, 7), ("b", 1, 30, 1, 8)]
