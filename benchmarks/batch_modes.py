"""How many records per second does a keyed function take in BATCH mode, against STREAMING and Spark's applyInPandas?

Every way counts the records of each key in Python. At equal work, `map_pandas` and Spark's `applyInPandas` call one and
the same function with a DataFrame of each key; a `KeyedProcessFunction` is called for each record. Records are numbers,
made in place, and their keys the remainders. Each turn runs all ways one after another in one Spark application, after
a small job of each that starts its workers; the figure is records over the time from `execute` to the last result,
median of `--repeats`. Results that do not add up are an error.

    python -m benchmarks.batch_modes [--records 1000000] [--keys 1000] [--parallelism 1] [--repeats 3] [--ways batch …]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.record import record_result
from headrace import col
from headrace.common import Types, WatermarkStrategy
from headrace.core.config import Settings
from headrace.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.spark.session.session import host_session

Counts = dict[int, int]
TOTALS = Types.ROW_NAMED(["key", "total"], [Types.LONG(), Types.LONG()])
COUNT = Types.TUPLE([Types.LONG(), Types.LONG()])
WARM_UP_RECORDS = 1_000


class Count(KeyedProcessFunction):
    """Counts the records of a key, and gives the number when event time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        count = self._count.value()
        if count is None:
            ctx.timer_service().register_event_time_timer(0)
            count = 0
        self._count.update(count + 1)
        return None

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[int, int | None]]:
        yield ctx.get_current_key(), self._count.value()


def environment(mode: str, parallelism: int) -> StreamExecutionEnvironment:
    """Return an environment for a job in a mode."""
    settings = {"execution.runtime-mode": mode, "headrace.spark.master": "local[4]"}
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(settings)
    env.set_parallelism(parallelism)
    return env


def numbers_of(env: StreamExecutionEnvironment, records: int) -> DataStream:
    """Return the numbers from 0 on."""
    source = NumberSequenceSource(0, records - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def headrace(mode: str, records: int, keys: int, parallelism: int) -> Counts:
    """Run the job in a mode of Headrace's."""
    numbers = numbers_of(environment(mode, parallelism), records)
    counted = numbers.key_by(lambda number: number % keys, Types.LONG()).process(Count(), COUNT)
    with counted.execute_and_collect() as rows:
        return dict(rows)


def count_rows(frame: Any) -> Any:
    """Count the rows of a key one by one."""
    key = frame["key"].iloc[0]
    total = 0
    for _ in frame["id"]:
        total += 1
    return frame.head(1).assign(key=key, total=total)[["key", "total"]]


def headrace_pandas(records: int, keys: int, parallelism: int) -> Counts:
    """Call the function of `spark` on the same columns in BATCH mode."""
    env = environment("BATCH", parallelism)
    counted = (
        numbers_of(env, records)
        .select(id=col("value"), key=col("value") % keys)
        .key_by("key")
        .full_window_partition()
        .map_pandas(count_rows, TOTALS)
    )
    with counted.execute_and_collect() as rows:
        return {row["key"]: row["total"] for row in rows}


def spark(records: int, keys: int, parallelism: int) -> Counts:
    """Run the same by groups of pandas."""
    session = host_session(Settings({"headrace.spark.master": "local[4]"})).spark
    numbers = session.range(0, records, 1, parallelism).selectExpr("id", f"id % {keys} as key")
    session.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    grouped = numbers.groupBy("key").applyInPandas(count_rows, "key long, total long")
    return {row["key"]: row["total"] for row in grouped.collect()}


def timed(run: Callable[[int], Counts], records: int, keys: int) -> float:
    """Return the seconds of a run; ValueError where it lost records."""
    started = time.monotonic()
    counts = run(records)
    took = time.monotonic() - started
    if sum(counts.values()) != records or len(counts) != min(keys, records):
        raise ValueError(f"{len(counts)} keys with {sum(counts.values())} of {records} records")
    return took


def main() -> None:
    """Take all ways in turn."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--keys", type=int, default=1_000, help="(%(default)s)")
    parser.add_argument("--parallelism", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--ways", nargs="*", default=[], help="(all, and their figures are kept)")
    asked = parser.parse_args()
    ways: dict[str, Callable[[int], Counts]] = {
        "batch": lambda count: headrace("BATCH", count, asked.keys, asked.parallelism),
        "streaming": lambda count: headrace("STREAMING", count, asked.keys, asked.parallelism),
        "batch_pandas": lambda count: headrace_pandas(count, asked.keys, asked.parallelism),
        "apply_in_pandas": lambda count: spark(count, asked.keys, asked.parallelism),
    }
    if asked.ways:
        ways = {name: ways[name] for name in asked.ways}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        timed(run, WARM_UP_RECORDS, asked.keys)
    for _ in range(asked.repeats):
        for name, run in ways.items():
            seconds[name].append(timed(run, asked.records, asked.keys))
    figures: dict[str, Any] = {
        f"{name}_records_per_second": asked.records / statistics.median(taken)
        for name, taken in seconds.items()
    }
    shape = {"records": asked.records, "keys": asked.keys, "parallelism": asked.parallelism}
    result = {**shape, "turns": asked.repeats, **figures}
    if asked.ways:
        print(result)
    else:
        record_result("batch_modes", result)


if __name__ == "__main__":
    main()
