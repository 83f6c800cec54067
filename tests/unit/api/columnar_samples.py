"""Streams of rows that the tests of columnar keyed calls share."""

from headrace import DataStream, StreamExecutionEnvironment, WatermarkStrategy
from headrace.common import Time, Types
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.functions.watermarks import ColumnTimestampAssigner

WINDOWS = TumblingEventTimeWindows.of(Time.seconds(10))


def bids() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    row = Types.ROW_NAMED(
        ["auction", "price", "rate", "time"],
        [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.LONG()],
    )
    rows = [("a", 3, 0.5, 1_000), ("b", 9, 0.5, 2_000), ("a", 9, 0.1, 3_000), ("b", 1, 0.2, 11_000)]
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ColumnTimestampAssigner("time")
    )
    return env.from_collection(rows, row).assign_timestamps_and_watermarks(times)


def persons_and_auctions() -> tuple[DataStream, DataStream]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    persons = env.from_collection(
        [(1, "ada"), (2, "bob")],
        Types.ROW_NAMED(["person", "name"], [Types.LONG(), Types.STRING()]),
    )
    auctions = env.from_collection(
        [(10, 1), (11, 2), (12, 1), (13, 3)],
        Types.ROW_NAMED(["auction", "seller"], [Types.LONG(), Types.LONG()]),
    )
    return persons, auctions
