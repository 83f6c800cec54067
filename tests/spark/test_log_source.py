"""Logs of batches as DataFrames of a real Spark: offsets, limits, deletion, and errors where a batch is gone."""

import shutil
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.dataframe.batch_log import BATCH_LOG_FORMAT, BatchLog
from headrace.connectors.dataframe.messages import CommitPayload
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.core.types.type_info import TypeInformation, Types
from headrace.functions.sink import DeliveryGuarantee
from headrace.spark.dataframes.committer import DataFrameCommitter
from headrace.spark.session.session import HostSession
from tests.unit.connectors.sink_world import SinkWorld, key

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROW = Types.ROW_NAMED(["subtask", "number"], [Types.INT(), Types.INT()])


@pytest.fixture
def spark(session: HostSession) -> Iterator[SparkSession]:
    yield session.spark
    for query in session.spark.streams.active:
        query.stop()


def world_of(path: Path, value_type: TypeInformation = ROW, row_of: Any = None) -> SinkWorld:
    sink = DataFrameSink(path, BATCH_LOG_FORMAT, mode="append")
    assert sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE
    payload: Any = msgspec.msgpack.decode(sink.committer()[1], type=CommitPayload)

    def new_committer() -> DataFrameCommitter:
        return DataFrameCommitter("log", payload, _no_spark, key)

    return SinkWorld(sink, value_type, new_committer, row_of or (lambda s, n: (s, n)))


def _no_spark() -> SparkSession:
    raise AssertionError("a log is written without Spark")


def write_batches(world: SinkWorld, count: int) -> None:
    for _ in range(count):
        world.write(0, 2)
        world.write(1, 1)
        world.checkpoint()


class Taken:
    """Micro-batches that a query gave, by id. `fails_at`: the id whose function raises, once."""

    def __init__(self, df: DataFrame, location: Path, fails_at: int | None = None) -> None:
        self.df = df
        self.location = location
        self.fails_at = fails_at
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def run(self) -> None:
        """Take what is there now."""
        writer = self.df.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.location)).trigger(availableNow=True)
        writer.start().awaitTermination()

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = sorted(tuple(row) for row in rows.collect())
        if batch_id == self.fails_at:
            self.fails_at = None
            raise RuntimeError("the query dies here")


def test_a_query_takes_each_batch_once_and_deletes_what_it_has_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = world_of(tmp_path / "log")
    write_batches(world, 4)
    df = spark.readStream.format("headrace").option("maxRowsPerTrigger", 6)
    taken = Taken(df.load(str(tmp_path / "log")), tmp_path / "query", fails_at=1)
    with pytest.raises(Exception, match="the query dies here"):
        taken.run()
    died_with = taken.batches[1]
    assert [len(rows) for rows in taken.batches.values()] == [6, 6]
    # The micro-batch that was not committed comes again, with the same id and rows; the rest follows.
    write_batches(world, 1)
    taken.run()
    assert taken.batches[1] == died_with
    assert sorted(row for rows in taken.batches.values() for row in rows) == sorted(world.expected)
    taken.run()
    assert len(taken.batches) == 3
    # Spark tells the source with the next micro-batch only.
    log = BatchLog(str(tmp_path / "log"))
    assert (log.first_number, log.last_number) == (5, 5)


def test_a_bounded_read_sees_what_is_there_and_deletes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = world_of(tmp_path / "log")
    write_batches(world, 2)
    for _ in range(2):
        df = spark.read.format("headrace").load(str(tmp_path / "log"))
        assert sorted(tuple(row) for row in df.collect()) == sorted(world.expected)
    assert BatchLog(str(tmp_path / "log")).first_number == 1


def test_a_second_query_finds_that_rows_are_gone_unless_the_first_one_keeps_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = world_of(tmp_path / "log")
    write_batches(world, 2)
    log = BatchLog(str(tmp_path / "log"))
    stream = spark.readStream.format("headrace").option("maxRowsPerTrigger", 3)
    first = Taken(stream.option("cleanSource", "off").load(log.path), tmp_path / "first")
    first.run()
    assert log.first_number == 1
    limited = spark.readStream.format("headrace").option("maxRowsPerTrigger", 3)
    second = Taken(limited.load(log.path), tmp_path / "second", fails_at=1)
    with pytest.raises(Exception, match="the query dies here"):
        second.run()
    write_batches(world, 1)
    log.delete_up_to(2)
    with pytest.raises(Exception, match=r"batch 2 of the log .* was deleted"):
        second.run()
    begun_anew = Taken(spark.readStream.format("headrace").load(log.path), tmp_path / "third")
    begun_anew.run()
    assert len(begun_anew.batches[0]) == 3


def test_a_log_that_was_made_anew_and_a_failed_job_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    write_batches(world_of(path), 2)
    stream = spark.readStream.format("headrace")
    taken = Taken(stream.load(str(path)), tmp_path / "query")
    taken.run()
    BatchLog(str(path)).mark_failed("ValueError: no (in operator 'rows')")
    taken.run()  # what is there now is all that was wanted
    query = taken.df.writeStream.foreachBatch(lambda rows, n: None)
    with pytest.raises(Exception, match=r"ValueError: no .* job that writes the log .* has failed"):
        query.option("checkpointLocation", str(taken.location)).start().awaitTermination()
    shutil.rmtree(path)
    write_batches(world_of(path), 1)
    with pytest.raises(Exception, match=r"batch 2 is not in the log .* newest is 1"):
        taken.run()


def test_types_come_as_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    inner = Types.ROW_NAMED(["x", "y"], [Types.DOUBLE(), Types.STRING()])
    types = {
        "text": Types.STRING(),
        "at": Types.SQL_TIMESTAMP(),
        "amount": Types.BIG_DEC(),
        "names": Types.LIST(Types.STRING()),
        "counts": Types.MAP(Types.STRING(), Types.LONG()),
        "inner": inner,
        "flag": Types.BOOLEAN(),
    }
    at = datetime(2026, 1, 1, 12, 30, 0, 250_000)

    def row_of(subtask: int, number: int) -> tuple[Any, ...]:
        if number % 2:
            return (None,) * len(types)
        return ("é", at, Decimal("1.5"), ["a", "b"], {"k": 7}, (0.5, "z"), True)

    world = world_of(tmp_path / "log", Types.ROW_NAMED(list(types), list(types.values())), row_of)
    world.write(0, 2)
    world.checkpoint()
    df = spark.read.format("headrace").load(str(tmp_path / "log")).orderBy("text")
    assert df.schema.simpleString() == (
        "struct<text:string,at:timestamp_ntz,amount:string,names:array<string>,counts:map<string,bigint>,"
        "inner:struct<x:double,y:string>,flag:boolean>"
    )
    empty, full = (tuple(row) for row in df.collect())
    assert empty == (None,) * len(types)
    assert full == ("é", at, "1.5", ["a", "b"], {"k": 7}, (0.5, "z"), True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no job has written to it yet"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be a count of at least 1, not '0'"),
        ({"cleanSource": "archive"}, "cleanSource is 'archive'"),
        ({"color": "red"}, "no option 'color'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_remedy(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        spark.readStream.format("headrace").options(**options).load(str(tmp_path / "log"))
