"""Which aggregations of a DataFrame Spark computes itself: those whose results cannot differ."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace import DataStream, StreamExecutionEnvironment, WatermarkStrategy, agg, col
from headrace.common import Time
from headrace.connectors.dataframe.source import DataFrameSource
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.datastream.window import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headrace.functions.column_conditions import And, Comparison, Or
from headrace.functions.watermarks import ColumnTimestampAssigner, TimestampAssigner
from headrace.spark.batch.spark_aggregates import (
    AggregatePlan,
    makes_connectors_scan,
    planned_aggregate,
)
from tests.unit.api.recording import recording

FIELDS: Final = [
    T.StructField("id", T.LongType()),
    T.StructField("small", T.ShortType()),
    T.StructField("half", T.DoubleType()),
    T.StructField("day", T.DateType()),
    T.StructField("name", T.StringType()),
    T.StructField("padded", T.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
    T.StructField("at", T.TimestampType()),
]
SECOND: Final = TumblingEventTimeWindows.of(Time.seconds(1))
END: Final = GlobalWindows.create_with_end_of_stream_trigger()
BY_DAY: Final = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    ColumnTimestampAssigner("day")
)
Program = Callable[[DataStream], Any]


class ById(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value["id"]


def plan_of(
    program: Program,
    *,
    event_time: str | None = "at",
    strategy: WatermarkStrategy | None = None,
    are_texts_bytes: bool = True,
) -> AggregatePlan | None:
    row_type = type_info_from_schema(to_arrow_schema(T.StructType(FIELDS), timezone="UTC"))
    source = DataFrameSource("dataframe-1", row_type, event_time)
    strategy = strategy or WatermarkStrategy.no_watermarks()
    with recording() as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        program(env.from_source(source, strategy, "DataFrame"))
        env.execute_async("aggregating")
    graph = executor.last
    vertex = next(one for one in graph.vertices if one.operators[0].kind == "source")
    return planned_aggregate(
        vertex,
        graph.edges_out_of(vertex.vertex_id),
        FIELDS,
        are_texts_bytes=are_texts_bytes,
    )


def summed(stream: DataStream, *keys: str) -> DataStream:
    return stream.key_by(*(keys or ("name",))).window(SECOND).aggregate(agg.sum("id"))


LOWERED: Final[dict[str, Program]] = {
    "tumbling": lambda s: summed(s).print(),
    "sliding": lambda s: (
        s.key_by("id", "name")
        .window(SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1)))
        .aggregate(agg.mean("small"), agg.min("id"), agg.max("id"), agg.count("half"))
        .print()
    ),
    "until the end": lambda s: s.key_by("name").window(END).aggregate(agg.count()).print(),
    "without keys": lambda s: s.window_all(SECOND).aggregate(agg.max("id")).print(),
    "one of several": lambda s: summed(
        s.filter(col("id").is_in([1, 2]) & (col("name") == "x"))
    ).print(),
}
KEPT: Final[dict[str, Program]] = {
    "a function of Python": lambda s: summed(s.filter(lambda row: row["id"] > 3)).print(),
    "computed columns": lambda s: summed(s.select("name", "id", x=col("id") + 1)).print(),
    "a condition of an aggregate": lambda s: (
        s.key_by("name").window(SECOND).aggregate(agg.count().where(col("id") > 3)).print()
    ),
    "a floating comparison": lambda s: summed(s.filter(col("half") > 3.0)).print(),
    "an integer with a fraction": lambda s: summed(s.filter(col("id") > 3.5)).print(),
    "more than comparisons": lambda s: summed(
        s.filter((col("id") > 3) & (col("name") != "x"))
    ).print(),
    "more than comparisons on one side": lambda s: summed(
        s.filter(((col("id") > 3) & (col("name") != "x")) | (col("id") == 1))
    ).print(),
    "padded texts": lambda s: summed(s.filter(col("padded") == "x")).print(),
    "a padded key": lambda s: summed(s, "padded").print(),
    "distinct values": lambda s: (
        s.key_by("name").window(SECOND).aggregate(agg.count_distinct("id")).print()
    ),
    "floating sums": lambda s: s.key_by("name").window(SECOND).aggregate(agg.sum("half")).print(),
    "floating keys": lambda s: summed(s, "half").print(),
    "sessions": lambda s: (
        s.key_by("name")
        .window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
        .aggregate(agg.sum("id"))
        .print()
    ),
    "lateness": lambda s: (
        s.key_by("name").window(SECOND).allowed_lateness(1_000).aggregate(agg.sum("id")).print()
    ),
}


@pytest.mark.parametrize("shape", LOWERED)
def test_spark_computes_what_merges_to_the_same(shape: str) -> None:
    assert plan_of(LOWERED[shape]) is not None


@pytest.mark.parametrize("shape", KEPT)
def test_spark_leaves_alone_what_could_differ(shape: str) -> None:
    assert plan_of(KEPT[shape]) is None


def test_rows_that_others_read_too_come_to_python() -> None:
    def program(stream: DataStream) -> None:
        kept = stream.filter(col("id") > 3)
        summed(kept).print()
        kept.print()

    assert plan_of(program) is None


def test_event_time_that_python_makes_or_nobody_does_leaves_windows_to_the_operator() -> None:
    assert plan_of(LOWERED["tumbling"], event_time=None) is None
    assert plan_of(LOWERED["until the end"], event_time=None) is not None
    by_function = WatermarkStrategy.no_watermarks().with_timestamp_assigner(ById())
    assert plan_of(LOWERED["tumbling"], strategy=by_function) is None


def test_one_column_gives_the_event_time_wherever_it_is_assigned() -> None:
    def program(stream: DataStream) -> None:
        summed(stream.assign_timestamps_and_watermarks(BY_DAY)).print()

    plan = plan_of(program, event_time=None)
    assert plan is not None
    assert plan.time == ("day", "day")
    assert plan_of(program, event_time="at") is None, "a null in the first column fails the job too"


def test_filters_and_picked_columns_are_followed_to_those_of_the_dataframe() -> None:
    def program(stream: DataStream) -> None:
        kept = stream.filter((col("id") >= 3) & (col("name") < "m"))
        picked = kept.select(key=col("small"), id=col("name"), n=col("id"))
        narrow = picked.filter((col("key") == 1) | (col("id") == "a"))
        narrow.key_by("id").window(SECOND).aggregate(agg.sum("n")).print()

    plan = plan_of(program)
    assert plan is not None
    assert [one for one, _ in plan.conditions] == [
        And((Comparison("id", ">=", 3), Comparison("name", "<", "m"))),
        Or((Comparison("key", "==", 1), Comparison("id", "==", "a"))),
    ]
    picks = {"key": "small", "id": "name", "n": "id"}
    assert [columns["id"] for _, columns in plan.conditions] == ["id", "name"]
    assert plan.conditions[1][1] == plan.columns == picks
    assert plan.time == ("at", "at")


@pytest.mark.parametrize("name", ["tumbling", "one of several", "until the end"])
def test_texts_that_a_database_may_compare_by_its_collation_are_left_to_the_operator(
    name: str,
) -> None:
    assert plan_of(LOWERED[name], are_texts_bytes=False) is None


def test_integers_of_a_database_are_aggregated_by_spark() -> None:
    assert plan_of(LOWERED["without keys"], are_texts_bytes=False) is not None


@pytest.mark.parametrize(
    ("scan", "is_foreign"),
    [
        ("*(1) Scan JDBCRelation(people) [numPartitions=1] [ID#0]", True),
        ("BatchScan iceberg.people[id#1L]", True),
        ("FileScan parquet [id#1L] Batched: true", False),
        ("LocalTableScan [id#1L]", False),
        ("InMemoryTableScan [id#1L]", False),
        ("*(1) Scan ExistingRDD[id#1L]", False),
        ("*(1) Range (0, 10, step=1, splits=4)", False),
    ],
)
def test_scans_of_connectors_are_told_from_spark_s_own(scan: str, is_foreign: bool) -> None:
    assert makes_connectors_scan(scan) is is_foreign
