"""A query of a real Spark writes a log of batches: each micro-batch once, whatever Spark runs again."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.connectors.dataframe.batch_log import BatchLog
from headrace.spark.session.session import HostSession
from testkit.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def spark(session: HostSession) -> Iterator[SparkSession]:
    yield session.spark
    for query in session.spark.streams.active:
        query.stop()


def files(spark: SparkSession, folder: Path, count: int, begin: int = 0) -> DataFrame:
    """A stream of files with ten numbers each, one of them per micro-batch."""
    (folder / "in").mkdir(exist_ok=True)
    for index in range(begin, begin + count):
        rows = pa.array(range(10 * index, 10 * index + 10), pa.int64())
        path = folder / "in" / f"{index:03d}.parquet"
        pq.write_table(pa.table({"number": rows}), path)
        # Spark takes files in the order of their age.
        os.utime(path, (1_000_000_000 + index, 1_000_000_000 + index))
    stream = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(folder / "in"))


def start(df: DataFrame, folder: Path, **options: Any) -> StreamingQuery:
    mode = options.pop("mode", "append")
    writer = df.writeStream.format("headrace").outputMode(mode).options(**options)
    writer = writer.option("checkpointLocation", str(folder / "query"))
    return writer.trigger(availableNow=True).start(str(folder / "log"))


def batches_of(folder: Path) -> list[list[int]]:
    log = BatchLog(str(folder / "log"))
    return [
        sorted(
            number
            for file in batch.files
            for number in pq.read_table(log.file_path(file)[1]).column("number").to_pylist()
        )
        for batch in log.batches(log.first_number - 1, log.last_number)
    ]


def numbers(count: int) -> list[list[int]]:
    return [list(range(10 * index, 10 * index + 10)) for index in range(count)]


def test_a_micro_batch_that_spark_has_not_noted_is_not_appended_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = files(spark, tmp_path, 3)
    start(df, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(3)
    # As if Spark had died between the log's commit and its own: it runs the last micro-batch again.
    for name in ("2", ".2.crc"):
        (tmp_path / "query" / "commits" / name).unlink()
    files(spark, tmp_path, 1, begin=3)
    start(df, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(4)
    assert not list((tmp_path / "log" / "_staged").iterdir())


def test_rows_of_a_micro_batch_that_fails_are_in_no_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = files(spark, tmp_path, 2)
    failing = df.selectExpr("if(number = 15, raise_error('no fifteen'), number) AS number")
    with pytest.raises(Exception, match="no fifteen"):
        start(failing, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(1)
    start(df, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(2)


def test_a_full_log_holds_the_query_back_until_a_reader_has_taken_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = start(files(spark, tmp_path, 4), tmp_path, maxBatches=2)
    log = BatchLog(str(tmp_path / "log"))
    staged = tmp_path / "log" / "_staged"
    wait_until(
        lambda: log.last_number == 2 and bool(list(staged.rglob("*.parquet"))), 100, "a full log"
    )
    assert query.isActive
    log.delete_up_to(1)
    wait_until(lambda: log.last_number == 3, 60, "a third batch")
    log.delete_up_to(2)
    query.awaitTermination()
    assert (log.first_number, log.last_number) == (3, 4)


def test_what_a_log_cannot_take_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    df = files(spark, tmp_path, 1)
    with pytest.raises(Exception, match="output mode is complete"):
        start(df.groupBy("number").count(), tmp_path, mode="complete").awaitTermination()
    with pytest.raises(Exception, match="headrace has no option 'jobs'"):
        start(df, tmp_path, jobs="fed").awaitTermination()
    with pytest.raises(Exception, match="maxBatches must be a count of at least 1, not 'none'"):
        start(df, tmp_path, maxBatches="none").awaitTermination()
    BatchLog(str(tmp_path / "log")).declare(pa.schema([("name", pa.string())]))
    with pytest.raises(Exception, match=r"the log .* has columns 'name' \(string\)"):
        start(df, tmp_path).awaitTermination()


def test_numbers_become_those_of_the_log_while_they_fit(
    spark: SparkSession, tmp_path: Path
) -> None:
    BatchLog(str(tmp_path / "log")).declare(pa.schema([("number", pa.int32())]))
    df = files(spark, tmp_path, 1)
    start(df, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(1)
    [file] = (tmp_path / "log").glob("*.parquet")
    assert pq.read_schema(file).field("number").type == pa.int32()
    files(spark, tmp_path, 1, begin=1)
    large = df.selectExpr("number + 3000000000 AS number")
    with pytest.raises(Exception, match="not in range"):
        start(large, tmp_path).awaitTermination()
    assert batches_of(tmp_path) == numbers(1)
