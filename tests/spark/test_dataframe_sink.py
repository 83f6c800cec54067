"""A result that real Spark commits, as `DataFrameSink` does without checkpoints."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.messages import SinkPayload
from headrace.connectors.dataframe.sink import DataFrameSink
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
)
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.spark.dataframes.sink_coordinator import SinkCommitError, SinkCoordinator
from headrace.spark.session.session import HostSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@dataclass
class WriterContext:
    """What a writer sees of its subtask."""

    types: OperatorTypes
    send_event: Callable[[bytes], None]
    subtask_index: int
    attempt_number: int = 0
    operator_name: str = "results"
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=SystemClock)


@pytest.fixture
def spark(session: HostSession) -> SparkSession:
    return session.spark


def committed(
    spark: SparkSession, sink: DataFrameSink, rows: list[list[tuple[Any, ...]]], ddl_type: Any
) -> SinkCoordinator:
    """A coordinator to which one writer per list of `rows` has reported."""
    types = OperatorTypes((BatchType(ddl_type),), BatchType(ddl_type))
    _, payload = sink.coordinator()
    context = CoordinatorContext(
        JobId(b"j" * 16),
        OperatorId(b"o" * 16),
        "results",
        len(rows),
        Settings(),
        lambda *_: None,
        lambda _: None,
        lambda _: None,
    )
    coordinator = SinkCoordinator(
        context, msgspec.msgpack.decode(payload, type=SinkPayload), lambda: spark
    )
    coordinator.start()
    for index, mine in enumerate(rows):
        reports: list[bytes] = []
        writer_context: Any = WriterContext(types, reports.append, index)
        writer = sink.create_writer(writer_context)
        if mine:
            writer.write_batch(RecordBatch.of_rows(types.inputs[0], mine))
        writer.flush(end_of_input=True)
        writer.close()
        vertex_id = ExecutionVertexId(JobVertexId(b"v" * 16), index)
        attempt = ExecutionAttemptId(JobId(b"j" * 16), vertex_id, 0)
        for report in reports:
            coordinator.handle_event(attempt, report)
    return coordinator


async def finish(coordinator: SinkCoordinator) -> None:
    try:
        await coordinator.job_finishing()
    finally:
        await coordinator.close()


def test_staged_rows_are_committed_by_spark_and_nothing_is_left_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    row_type = Types.ROW_NAMED(["origin", "delay"], [Types.STRING(), Types.DOUBLE()])
    sink = DataFrameSink(tmp_path / "out", mode="overwrite")
    asyncio.run(finish(committed(spark, sink, [[("EWR", 1.0)], []], row_type)))
    read = spark.read.parquet(str(tmp_path / "out"))
    assert [tuple(row) for row in read.collect()] == [("EWR", 1.0)]
    assert os.listdir(tmp_path) == ["out"]


def test_a_job_that_fails_leaves_neither_output_nor_staged_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = DataFrameSink(tmp_path / "out")
    coordinator = committed(spark, sink, [[(1,)]], Types.ROW_NAMED(["id"], [Types.LONG()]))
    asyncio.run(coordinator.close())
    assert os.listdir(tmp_path) == []


def test_a_write_that_spark_refuses_fails_the_job_and_names_sink_and_target(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    sink = DataFrameSink(tmp_path / "out", mode="error")
    coordinator = committed(spark, sink, [[(1,)]], Types.ROW_NAMED(["id"], [Types.LONG()]))
    with pytest.raises(SinkCommitError) as caught:
        asyncio.run(finish(coordinator))
    first_line = str(caught.value).split("\n", 1)[0]
    assert "already exists" in first_line
    assert "sink 'results'" in first_line
    assert os.listdir(tmp_path) == ["out"]
