"""A DataFrame pushed by real Spark tasks into source subtasks of this process."""

import asyncio
import importlib.util
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.connectors.dataframe.source import DataFrameSource
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobId,
    JobVertexId,
    OperatorId,
    ResourceId,
)
from headrace.core.operator_spec import OperatorTypes
from headrace.core.randomness import secret_token, system_random
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.functions.source import InputStatus, SourceReader
from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.spark.dataframes.dataframes import (
    dataframe_source,
    source_coordinator_factory,
    spark_watermark,
)
from headrace.spark.dataframes.push import plan_identity, unrepeatable_part
from headrace.spark.dataframes.streaming_dataframe_coordinator import computes_row_by_row
from headrace.spark.session.authentication import TaskSecrets
from headrace.spark.session.session import HostSession
from testkit.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

JOB = JobId(b"j" * 16)
OPERATOR = OperatorId(b"o" * 16)
SECRET = secret_token()


def attempt(subtask_index: int, number: int = 0) -> ExecutionAttemptId:
    return ExecutionAttemptId(JOB, ExecutionVertexId(JobVertexId(b"v" * 16), subtask_index), number)


@dataclass
class ReaderContext:
    """What a reader sees of its subtask."""

    subtask_index: int
    parallelism: int
    types: OperatorTypes
    ingest: Any
    operator_id: OperatorId = OPERATOR
    operator_name: str = "rows"
    attempt_number: int = 0
    settings: Settings = field(default_factory=Settings)
    clock: Any = None
    wake: Callable[[], None] = lambda: None
    send_event: Callable[[bytes], None] = lambda payload: None

    @property
    def attempt_id(self) -> ExecutionAttemptId:
        return attempt(self.subtask_index, self.attempt_number)


@dataclass
class Collected:
    """A source output that keeps what is emitted."""

    batches: list[RecordBatch] = field(default_factory=list)

    rows_wanted = 1 << 40

    def emit(self, batch: RecordBatch, split_id: str = "") -> None:
        self.batches.append(batch)

    def add_split(self, split_id: str) -> None:
        pass

    def release_split(self, split_id: str) -> None:
        pass


class Pipe:
    """Two source subtasks on one TaskManager's door, and their coordinator; all turned by the test's thread."""

    def __init__(
        self,
        df: DataFrame,
        *,
        event_time: str | None = None,
        parallelism: int = 2,
        settings: dict[str, str] | None = None,
        snapshot: tuple[bytes, list[bytes]] | None = None,
    ) -> None:
        source, row_type, _ = dataframe_source(df, event_time_column=event_time)
        self.source: DataFrameSource = source
        self.types = OperatorTypes((), BatchType(row_type))
        self.shuffle = CreditBasedShuffleEnvironment(
            resource_id=ResourceId("tm-1"),
            settings=Settings(),
            secret=SECRET,
            bind_host="127.0.0.1",
            advertised_host="127.0.0.1",
            clock=SystemClock(),
            random=system_random(),
            socket_directory=None,
        )
        self.location: TaskManagerLocation = self.shuffle.start()
        self.readers: list[SourceReader] = []
        self.outputs = [Collected() for _ in range(parallelism)]
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.failures: list[BaseException] = []
        self.parallelism = parallelism
        name, payload = source.coordinator()
        assert name == "dataframe-source"
        context = CoordinatorContext(
            JOB,
            OPERATOR,
            "rows",
            parallelism,
            Settings(settings),
            lambda index, event: self.readers[index].handle_event(event),
            self.posted.put,
            self.failures.append,
            location="program.py, line 20",
        )
        self.coordinator: Any = source_coordinator_factory(TaskSecrets(SECRET, None))(
            context, payload
        )
        if snapshot is not None:
            self.coordinator.reset(1, snapshot[0])
        self.start_readers(0, None if snapshot is None else snapshot[1])

    def start_readers(self, number: int, splits: list[bytes] | None = None) -> None:
        self.readers = []
        for index in range(self.parallelism):
            context = ReaderContext(
                index, self.parallelism, self.types, self.shuffle.ingest, attempt_number=number
            )
            context.send_event = self._sender(index, number)
            reader = self.source.create_reader(context)  # pyright: ignore
            if splits is not None:
                reader.restore_splits(splits[index :: self.parallelism])
            reader.start()
            self.readers.append(reader)
        for index in range(self.parallelism):
            self.coordinator.subtask_ready(attempt(index, number), self.location)

    def _sender(self, index: int, number: int) -> Callable[[bytes], None]:
        return lambda payload: self.coordinator.handle_event(attempt(index, number), payload)

    def checkpoint(self) -> tuple[bytes, list[bytes]]:
        """The coordinator's state and the readers' splits, and the rows so far are those that count."""
        state = self.coordinator.checkpoint(1)
        return state, [split for reader in self.readers for split in reader.snapshot_state(1)]

    def turn(self) -> bool:
        """One round of the mailbox; True once every reader has ended."""
        while not self.posted.empty():
            self.posted.get()()
        statuses = [
            reader.poll_next(output)
            for reader, output in zip(self.readers, self.outputs, strict=True)
        ]
        return all(status is InputStatus.END_OF_INPUT for status in statuses)

    def run(self, timeout_s: float = 60) -> None:
        end = time.monotonic() + timeout_s
        while not self.turn():
            assert not self.failures, self.failures
            assert time.monotonic() < end, "the DataFrame did not come through"
            if self.posted.empty():
                time.sleep(0.001)

    def rows(self, index: int) -> list[Any]:
        return [row for batch in self.outputs[index].batches for row in batch.rows()]

    def close(self) -> None:
        asyncio.run(self.coordinator.close())
        for reader in self.readers:
            reader.close()
        self.shuffle.close()


@pytest.fixture
def spark(session: HostSession) -> SparkSession:
    return session.spark


@pytest.fixture
def pipes() -> Iterator[list[Pipe]]:
    made: list[Pipe] = []
    yield made
    for one in made:
        one.close()


def test_every_row_comes_once_and_partition_i_goes_to_subtask_i(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    df = spark.range(0, 50_000, numPartitions=5).withColumn("partition", F.spark_partition_id())
    pipe = Pipe(df)
    pipes.append(pipe)
    pipe.run()
    assert {row["partition"] for row in pipe.rows(0)} == {0, 2, 4}
    assert {row["partition"] for row in pipe.rows(1)} == {1, 3}
    assert sorted(row["id"] for index in (0, 1) for row in pipe.rows(index)) == list(range(50_000))
    assert max(batch.num_rows for output in pipe.outputs for batch in output.batches) <= 8192


def test_typed_columns_nulls_and_event_time_come_through(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    df = spark.createDataFrame(
        [("EWR", 1.5, 1_000), ("JFK", None, 2_500)], "origin string, delay double, at long"
    ).withColumn("at", F.timestamp_millis("at"))
    pipe = Pipe(df.coalesce(1), event_time="at", parallelism=1)
    pipes.append(pipe)
    pipe.run()
    assert [(row["origin"], row["delay"]) for row in pipe.rows(0)] == [("EWR", 1.5), ("JFK", None)]
    (batch,) = pipe.outputs[0].batches
    assert batch.timestamps is not None
    assert batch.timestamps.tolist() == [1_000, 2_500]


@pytest.mark.parametrize("has_pandas", [True, False])
def test_columns_that_spark_does_not_find_by_name_come_through_by_position(
    spark: SparkSession, pipes: list[Pipe], monkeypatch: pytest.MonkeyPatch, has_pandas: bool
) -> None:
    if not has_pandas:
        found = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "pandas" else found(name)
        )
    checkpoints = {"execution.checkpointing.interval": "1 s"}
    columns = [1, 2, 3, 4]
    df = spark.createDataFrame([columns]).toDF("a.b", "a", "A", "`*`").coalesce(1)
    pipe = Pipe(df, parallelism=1, settings=checkpoints)
    pipes.append(pipe)
    pipe.run()
    (row,) = pipe.rows(0)
    assert row.as_dict() == {"a.b": 1, "a": 2, "A": 3, "`*`": 4}


def test_a_re_planned_shuffle_keeps_the_announced_partitions(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    # Re-planning would merge these small partitions into one.
    df = spark.range(1000).repartition(7, "id")
    pipe = Pipe(df)
    pipes.append(pipe)
    pipe.run()
    assert sorted(row["id"] for index in (0, 1) for row in pipe.rows(index)) == list(range(1000))
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"


def test_new_attempts_get_every_row_again_from_a_new_spark_job(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    pipe = Pipe(spark.range(0, 200_000, numPartitions=2))
    pipes.append(pipe)
    wait_until(lambda: pipe.turn() or bool(pipe.outputs[0].batches), 60, "the first rows")
    for index in (0, 1):
        pipe.coordinator.subtask_failed(attempt(index))
    for reader in pipe.readers:
        reader.close()
    pipe.outputs = [Collected(), Collected()]
    pipe.start_readers(1)
    pipe.run()
    assert sum(len(pipe.rows(index)) for index in (0, 1)) == 200_000
    assert pipe.failures == []


CHECKPOINTS = {"execution.checkpointing.interval": "1 s"}


def all_rows(pipe: Pipe) -> list[Any]:
    return [row for index in range(pipe.parallelism) for row in pipe.rows(index)]


def rows_over_a_restart(df: DataFrame, pipes: list[Pipe], settings: dict[str, str]) -> list[Any]:
    """Rows up to a checkpoint of two subtasks, and from there on three."""
    before = Pipe(df, settings=settings)
    pipes.append(before)
    wait_until(lambda: before.turn() or bool(before.outputs[0].batches), 60, "the first rows")
    snapshot, rows = before.checkpoint(), all_rows(before)
    assert rows
    for _ in range(3):
        before.turn()
    for index in (0, 1):
        before.coordinator.subtask_failed(attempt(index))
    after = Pipe(df, settings=settings, snapshot=snapshot, parallelism=3)
    pipes.append(after)
    after.run()
    assert after.failures == []
    return rows + all_rows(after)


def test_a_job_goes_on_behind_the_rows_of_its_checkpoint_at_another_parallelism(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    df = spark.range(0, 120_000, numPartitions=4).withColumn("square", F.col("id") * F.col("id"))
    rows = rows_over_a_restart(df, pipes, CHECKPOINTS)
    assert sorted(row["id"] for row in rows) == list(range(120_000))
    assert pipes[0].coordinator.checkpoint(2) != b""


def test_rows_that_would_come_out_otherwise_are_copied_once(
    spark: SparkSession, pipes: list[Pipe], tmp_path: Path
) -> None:
    df = spark.range(0, 60_000).repartition(4).withColumn("chance", F.rand())
    settings = {**CHECKPOINTS, "execution.checkpointing.dir": str(tmp_path)}
    rows = rows_over_a_restart(df, pipes, settings)
    (copy,) = (tmp_path / "dataframes").iterdir()
    assert copy.parent.stat().st_mode & 0o077 == 0
    copied = {row["id"]: row["chance"] for row in spark.read.parquet(str(copy)).collect()}
    assert {row["id"]: row["chance"] for row in rows} == copied
    assert len(rows) == 60_000
    asyncio.run(pipes[1].coordinator.job_finishing())
    asyncio.run(pipes[1].coordinator.close())
    wait_until(lambda: not copy.exists(), 20, "the copy of a finished job is deleted")


def test_a_dataframe_that_is_not_the_one_of_the_checkpoint_is_refused(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    before = Pipe(spark.range(0, 120_000, numPartitions=4), settings=CHECKPOINTS)
    pipes.append(before)
    wait_until(lambda: before.turn() or bool(before.outputs[0].batches), 60, "the first rows")
    other = spark.range(0, 120_000, numPartitions=5)
    after = Pipe(other, settings=CHECKPOINTS, snapshot=before.checkpoint())
    pipes.append(after)
    wait_until(lambda: after.turn() or bool(after.failures), 60, "the failure is reported")
    assert "had 4 partitions" in str(after.failures[0])
    assert "now has 5 partitions" in str(after.failures[0])


def test_only_scans_of_files_and_ranges_can_be_read_again_row_by_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers = spark.range(100)
    numbers.write.parquet(str(tmp_path / "numbers"))
    numbers.write.csv(str(tmp_path / "csv"))
    read = spark.read.parquet(str(tmp_path / "numbers"))
    same_each_time = [
        numbers,
        read.where("id > 3").select((F.col("id") + 1).alias("next")),
        spark.read.csv(str(tmp_path / "csv")),
        read.union(numbers),
        spark.sql("select 1 as one"),
    ]
    assert [unrepeatable_part(df) for df in same_each_time] == [None] * len(same_each_time)
    otherwise = [
        read.repartition(3),
        read.join(numbers, "id"),
        read.groupBy((F.col("id") % 3).alias("key")).count(),
        read.orderBy("id"),
        read.limit(5),
        read.withColumn("chance", F.rand()),
        spark.createDataFrame([(1,)], "id long"),
    ]
    assert None not in [unrepeatable_part(df) for df in otherwise]
    assert plan_identity(read, 2, 2) == plan_identity(
        spark.read.parquet(str(tmp_path / "numbers")), 2, 2
    )
    assert plan_identity(read, 2, 2) != plan_identity(read.where("id > 3"), 2, 2)


def test_a_dataframe_that_cannot_be_computed_fails_the_job_with_its_cause_first(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    broken = spark.range(10).select(F.raise_error(F.lit("no such flight")).cast("long").alias("id"))
    pipe = Pipe(broken)
    pipes.append(pipe)
    wait_until(lambda: pipe.turn() or bool(pipe.failures), 60, "the failure is reported")
    first_line = str(pipe.failures[0]).split("\n", 1)[0]
    assert "no such flight" in first_line
    assert "operator 'rows'" in first_line


def test_a_function_that_raises_inside_spark_is_told_with_its_own_line(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    halve = F.udf(lambda n: 1 // n, "int")
    pipe = Pipe(spark.range(3).select(halve("id").alias("half")))
    pipes.append(pipe)
    wait_until(lambda: pipe.turn() or bool(pipe.failures), 60, "the failure is reported")
    first_line = str(pipe.failures[0]).split("\n", 1)[0]
    assert first_line.startswith("ZeroDivisionError: ")
    assert f"({__file__}, line " in first_line
    assert first_line.endswith(
        "in the Spark job that reads the DataFrame of operator 'rows', program.py, line 20)"
    )


def test_closing_the_coordinator_cancels_the_spark_job(
    spark: SparkSession, pipes: list[Pipe]
) -> None:
    pipe = Pipe(spark.range(0, 50_000_000, numPartitions=2))
    pipes.append(pipe)
    wait_until(lambda: pipe.turn() or bool(pipe.outputs[0].batches), 60, "the first rows")
    tracker = spark.sparkContext.statusTracker()
    # Jobs of an earlier module may still be on their way to their end.
    wait_until(lambda: len(tracker.getActiveJobsIds()) == 1, 20, "the Spark job runs alone")
    asyncio.run(pipe.coordinator.close())
    wait_until(lambda: not tracker.getActiveJobsIds(), 20, "the Spark job is cancelled")
    assert pipe.failures == []


def test_an_unknown_event_time_column_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(ProgramError, match="no column 'when' for the event time; it has: id"):
        dataframe_source(spark.range(3), event_time_column="when")


def test_a_column_without_a_counterpart_is_named(spark: SparkSession) -> None:
    df = spark.sql("select INTERVAL '1' DAY as pause")
    with pytest.raises(ProgramError, match="column 'pause'"):
        dataframe_source(df)


def test_without_pandas_the_push_is_planned_all_the_same(
    spark: SparkSession, pipes: list[Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pandas" else found(name)
    )
    pipe = Pipe(spark.range(0, 1000, numPartitions=2))
    pipes.append(pipe)
    pipe.run()
    assert sum(len(pipe.rows(index)) for index in (0, 1)) == 1000


def test_the_watermark_of_a_streaming_dataframe_is_taken_over_while_its_column_is_there(
    spark: SparkSession,
) -> None:
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "10 seconds")
    source, _, delay_ms = dataframe_source(rate.filter("value > 3"))
    assert (source.event_time_column, delay_ms) == ("timestamp", 10_000)
    assert spark_watermark(rate.select("value")) == (None, None)
    _, _, delay_ms = dataframe_source(rate, event_time_column="value")
    assert delay_ms is None


def test_micro_batches_are_copied_unless_each_row_comes_out_of_its_input_again(
    spark: SparkSession,
) -> None:
    rate = spark.readStream.format("rate").load()
    same = rate.filter("value > 3").select("value").union(rate.select("value"))
    assert computes_row_by_row(same)
    assert not computes_row_by_row(rate.withColumn("draw", F.rand()))
    assert not computes_row_by_row(rate.groupBy("value").count())


def test_a_trigger_for_a_bounded_dataframe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ProgramError, match="this one is bounded"):
        dataframe_source(spark.range(3), trigger={"availableNow": True})
