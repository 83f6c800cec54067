"""How many records per second does a keyed function take in BATCH mode, against STREAMING and Spark's applyInPandas?

Every way counts the records of each key in Python, one call per record for Headrace's `KeyedProcessFunction` and one
call per key for Spark; records are numbers, made in place, and their keys the remainders. Each turn runs all ways one
after another in one Spark application, after a small job of each that starts its workers; the figure is records over
the time from `execute` to the last result, median of `--repeats`. Results that do not add up are an error.

    python -m benchmarks.batch_modes [--records 1000000] [--keys 1000] [--parallelism 1] [--repeats 3]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.record import record_result
from headrace.common import Types, WatermarkStrategy
from headrace.core.config import Settings
from headrace.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.state import ValueStateDescriptor
from headrace.spark.session.session import host_session

Counts = dict[int, int]
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


def headrace(mode: str, records: int, keys: int, parallelism: int) -> Counts:
    """Run the job in a mode of Headrace's."""
    settings = {"execution.runtime-mode": mode, "headrace.spark.master": "local[4]"}
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(settings)
    env.set_parallelism(parallelism)
    numbers = env.from_source(
        NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    counted = numbers.key_by(lambda number: number % keys, Types.LONG()).process(Count(), COUNT)
    with counted.execute_and_collect() as rows:
        return dict(rows)


def spark(records: int, keys: int, parallelism: int) -> Counts:
    """Run the same by groups of pandas."""
    session = host_session(Settings({"headrace.spark.master": "local[4]"})).spark

    def count(frame: Any) -> Any:
        key = frame["key"].iloc[0]
        total = 0
        for _ in frame["id"]:
            total += 1
        return frame.head(1).assign(key=key, total=total)[["key", "total"]]

    numbers = session.range(0, records, 1, parallelism).selectExpr("id", f"id % {keys} as key")
    session.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    grouped = numbers.groupBy("key").applyInPandas(count, "key long, total long")
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
    asked = parser.parse_args()
    ways: dict[str, Callable[[int], Counts]] = {
        "batch": lambda count: headrace("BATCH", count, asked.keys, asked.parallelism),
        "streaming": lambda count: headrace("STREAMING", count, asked.keys, asked.parallelism),
        "apply_in_pandas": lambda count: spark(count, asked.keys, asked.parallelism),
    }
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
    record_result("batch_modes", {**shape, "turns": asked.repeats, **figures})


if __name__ == "__main__":
    main()
