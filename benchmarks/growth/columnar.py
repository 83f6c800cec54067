"""Windows and a join over rows of a file, on a cluster in this process: processor seconds of the whole job."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import DataStream, StreamExecutionEnvironment, agg, col
from headrace.common import Duration, Time, Types, WatermarkStrategy
from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from headrace.functions.sink import DiscardingSink
from headrace.functions.watermarks import ColumnTimestampAssigner
from headrace.testing.minicluster_executor import MiniClusterExecutor

ROW_TYPE = Types.ROW_NAMED(["key", "time"], [Types.LONG(), Types.LONG()])
SLIDE_MS = 1_000
ROW_GROUP = 16_384


def write_rows(directory: Path, row_count: int, key_count: int, duration_ms: int) -> None:
    """Write rows whose keys come in random order, each as often as the others, and whose times rise evenly."""
    keys = np.random.default_rng(7).permutation(row_count) % key_count
    times = np.linspace(0, duration_ms - 1, row_count).astype(np.int64)
    table = pa.table({"key": keys, "time": times})
    pq.write_table(table, directory / "rows.parquet", row_group_size=ROW_GROUP)


def seconds_of(directory: Path, build: Callable[[DataStream], DataStream]) -> float:
    """Run what `build` makes of the rows, in one slot, and throw its results away; return processor seconds.

    All the work is in this process, and what else the machine does makes it no more.
    """
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        source = FileSource.for_bulk_file_format(
            ParquetColumnarRowInputFormat(ROW_TYPE), str(directory)
        )
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_millis(0)
        ).with_timestamp_assigner(ColumnTimestampAssigner("time"))
        build(env.from_source(source.build(), strategy, "rows")).sink_to(DiscardingSink())
        began = time.process_time()
        env.execute("growth")
        return time.process_time() - began


def count_in_one_window(rows: DataStream) -> DataStream:
    """Count per key, on columns, in one window that holds everything."""
    window = TumblingEventTimeWindows.of(Time.days(1))
    return rows.key_by("key").window(window).aggregate(agg.count().alias("rows"))


def count_in_sessions(gap_ms: int) -> Callable[[DataStream], DataStream]:
    """Count per key, on columns, in sessions that end after so long without a row."""
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(gap_ms))
    return lambda rows: rows.key_by("key").window(sessions).aggregate(agg.count().alias("rows"))


def pair_with_itself(rows: DataStream) -> DataStream:
    """Pair each row with those of its key, on columns."""
    again = rows.select("key", col("time").alias("again")).key_by("key")
    return rows.key_by("key").join_rows(again)


def count_in_panes(pane_count: int) -> Callable[[DataStream], DataStream]:
    """Count per key, on columns, in windows of so many panes, of which one begins every second."""
    window = SlidingEventTimeWindows.of(
        Time.milliseconds(pane_count * SLIDE_MS), Time.milliseconds(SLIDE_MS)
    )
    return lambda rows: rows.key_by("key").window(window).aggregate(agg.count().alias("rows"))


def reduce_in_panes(pane_count: int) -> Callable[[DataStream], DataStream]:
    """Keep the last row of each key in the same windows, record by record."""
    window = SlidingEventTimeWindows.of(
        Time.milliseconds(pane_count * SLIDE_MS), Time.milliseconds(SLIDE_MS)
    )
    return lambda rows: (
        rows.key_by(lambda row: row[0], key_type=Types.LONG())
        .window(window)
        .reduce(lambda one, other: other)
    )
