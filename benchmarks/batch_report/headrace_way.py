"""Headrace on Spark, in the mode that the variable MODE_VARIABLE names: columns where no function wants records.

STREAMING mode is as it is by default, without checkpoints. The time is that of `execute`, deployment included.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.batch_report.queries import (
    FIRST_ORDER_DAY,
    QUERIES,
    SHIPPED_UNTIL,
    in_euros,
    next_count,
)
from benchmarks.batch_report.way import way_main
from benchmarks.nexmark.queries import END_OF_INPUT
from benchmarks.nexmark.queries import QUERIES as NEXMARK
from benchmarks.nexmark.streams import EventStreams
from headrace import DataStream, StreamExecutionEnvironment, Types, WatermarkStrategy, agg, col
from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.sink import DiscardingSink

MODE_VARIABLE: Final = "HEADRACE_BATCH_REPORT_MODE"
PARALLELISM: Final = 2
LONG: Final = Types.LONG()
END_MS: Final = 2**62
"""A time that comes with the end of input."""


def table(env: StreamExecutionEnvironment, directory: Path, kind: str, *columns: str) -> DataStream:
    """Return some columns of a table, all of integers."""
    rows = Types.ROW_NAMED(list(columns), [LONG] * len(columns))
    files = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(rows), str(directory / kind)
    )
    return env.from_source(files.build(), WatermarkStrategy.no_watermarks(), kind)


def as_tuples(stream: DataStream, *columns: str) -> DataStream:
    """Return columns of integers as tuples, which cost a function of one record less than rows."""
    fields = Types.TUPLE([LONG] * len(columns))
    names = [f"f{index}" for index in range(len(columns))]
    return stream.map_batches(
        lambda rows: pa.RecordBatch.from_arrays([rows[one] for one in columns], names=names), fields
    )


class Expensive(KeyedProcessFunction):
    """Counts the high prices of a bidder."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        count = self._count.value()
        if count is None:
            ctx.timer_service().register_event_time_timer(END_MS)
            count = 0
        self._count.update(next_count(count, value[1]))
        return None

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[int, int]]:
        yield ctx.get_current_key(), self._count.value() or 0


def currency(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    columns = QUERIES["currency"].reads["bid"]
    bids = as_tuples(table(env, directory, "bid", *columns), *columns)
    euros = Types.TUPLE([LONG, LONG, Types.DOUBLE(), LONG])
    return bids.map(lambda bid: (bid[0], bid[1], in_euros(bid[2]), bid[3]), euros)


def expensive(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    bids = as_tuples(table(env, directory, "bid", "bidder", "price"), "bidder", "price")
    return bids.key_by("f0").process(Expensive(), Types.TUPLE([LONG, LONG]))


def highest(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    prices = NEXMARK["q7max"].build(EventStreams(env, directory))
    return prices.select("window_start", "price")


def newcomers(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    return NEXMARK["q8"].build(EventStreams(env, directory))


def pricing(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    items = table(env, directory, "item", *QUERIES["pricing"].reads["item"])
    shipped = items.filter(col("shipped") <= SHIPPED_UNTIL)
    priced = Types.ROW_NAMED(["status", "quantity", "base", "discounted", "charged"], [LONG] * 5)
    made = shipped.map_batches(with_prices, priced)
    names = priced.get_field_names()[1:]
    sums = [agg.sum(name).alias(name) for name in names]
    totals = made.key_by("status").window(END_OF_INPUT).aggregate(*sums, agg.count().alias("items"))
    return totals.select("status", *names, "items")


def with_prices(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return prices with discount, and with tax besides, of many items."""
    discounted = rows["price"].to_numpy() * (100 - rows["discount"].to_numpy())
    charged = discounted * (rows["tax"].to_numpy() + 100)
    arrays: list[Any] = [
        rows["status"],
        rows["quantity"],
        rows["price"],
        pa.array(discounted),
        pa.array(charged),
    ]
    return pa.RecordBatch.from_arrays(
        arrays, names=["status", "quantity", "base", "discounted", "charged"]
    )


def priorities(env: StreamExecutionEnvironment, directory: Path) -> DataStream:
    items = table(env, directory, "item", "order", "price", "discount")
    turnover = (col("price") * (100 - col("discount"))).alias("turnover")
    orders = table(env, directory, "order", "id", "day", "priority")
    early = orders.filter(col("day") < FIRST_ORDER_DAY).select("id", "priority")
    pairs = items.select("order", turnover).key_by("order").join_rows(early.key_by("id"))
    totals = pairs.key_by("priority").window(END_OF_INPUT)
    sums = totals.aggregate(agg.sum("turnover").alias("turnover"), agg.count().alias("items"))
    return sums.select("priority", "turnover", "items")


BUILDS: Final[dict[str, Callable[[StreamExecutionEnvironment, Path], DataStream]]] = {
    "currency": currency,
    "expensive": expensive,
    "highest": highest,
    "newcomers": newcomers,
    "pricing": pricing,
    "priorities": priorities,
}


def build(query: str, directory: Path) -> DataStream:
    """Return the stream of a query's results."""
    env = StreamExecutionEnvironment.get_execution_environment()
    mode = os.environ[MODE_VARIABLE]
    env.configure({"execution.runtime-mode": mode, "headrace.spark.master": "local[4]"})
    env.set_parallelism(PARALLELISM)
    return BUILDS[query](env, directory)


def collect(query: str, directory: Path) -> Iterable[tuple[Any, ...]]:
    """Return the results; times as milliseconds, and without the ends of windows."""
    with build(query, directory).execute_and_collect() as rows:
        for row in rows:
            yield tuple(map(in_milliseconds, row))


def in_milliseconds(value: Any) -> Any:
    """Return epoch milliseconds of an instant, and everything else as it is."""
    return int(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


def discard(query: str, directory: Path) -> None:
    """Run to the end."""
    stream = build(query, directory)
    stream.sink_to(DiscardingSink())
    stream.get_execution_environment().execute(query)


if __name__ == "__main__":
    way_main(collect, discard)
