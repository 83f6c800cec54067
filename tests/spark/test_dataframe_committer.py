"""Checkpoints' rows committed by a real Spark, and committed again after a crash."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.connectors.dataframe.messages import CommitPayload
from headrace.connectors.dataframe.sink import DataFrameSink, IdempotentForeachBatchSink
from headrace.core.types.type_info import Types
from headrace.functions.sink import Sink
from headrace.spark.dataframes.committer import DataFrameCommitter
from headrace.spark.session.session import HostSession
from tests.unit.connectors.sink_world import SinkWorld, key

pytestmark = pytest.mark.spark


@pytest.fixture
def spark(session: HostSession) -> SparkSession:
    return session.spark


ROW = Types.ROW_NAMED(["subtask", "number"], [Types.INT(), Types.INT()])


def world_of(sink: Sink, spark: SparkSession) -> SinkWorld:
    committer = sink.committer()
    assert committer is not None
    payload: Any = msgspec.msgpack.decode(committer[1], type=CommitPayload)
    return SinkWorld(
        sink,
        ROW,
        lambda: DataFrameCommitter("results", payload, lambda: spark, key),
        lambda s, n: (s, n),
    )


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_rows_of_checkpoints_and_of_crashes_between_are_there_once(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    target = tmp_path / "out"
    world = world_of(DataFrameSink(target, file_format), spark)
    world.write(0, 3)
    world.write(1, 2)
    world.checkpoint()
    world.write(0, 1)
    world.publish()
    world.crash()
    world.write(1, 2)
    world.abort()
    world.crash()
    world.write(1, 1)
    world.finish()
    read = spark.read.format(file_format).schema("subtask int, number int").load(str(target))
    assert Counter(tuple(row) for row in read.collect()) == Counter(world.expected)
    assert os.listdir(tmp_path) == ["out"]


def test_a_function_of_the_program_is_called_with_dataframes(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[int, list[tuple[int, int]]]] = []

    def keep(df: Any, checkpoint_id: int) -> None:
        calls.append((checkpoint_id, sorted(tuple(row) for row in df.collect())))

    world = world_of(IdempotentForeachBatchSink(keep, str(tmp_path)), spark)
    world.write(0, 2)
    world.publish()
    world.crash()
    world.finish()
    assert calls == [(1, [(0, 0), (0, 1)])]
