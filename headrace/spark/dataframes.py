"""DataFrames as streams: the registry in the driver, and the Spark job that pushes a DataFrame into source subtasks.

    all subtasks ready ──► plan the DataFrame, announce its partitions ──► Spark job: each task pushes its partition
    a subtask failed ───► cancel the job, wait for new attempts        job failed ───► the Headrace job fails

Source: the measurements of `JVM → Python` in docs/adr; Flink SourceCoordinator.
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.cluster.job_master.operator_coordinator import (
    CoordinatorContext,
    CoordinatorFactory,
    OperatorCoordinator,
)
from headrace.connectors.dataframe.messages import PartitionsAnnounced, SourcePayload
from headrace.connectors.dataframe.source import DataFrameSource, check_dataframe_schema
from headrace.core.errors import HostError, ProgramError
from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.core.threads import start_thread
from headrace.core.tls import TlsIdentity
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.network.ingest_sender import IngestSender
from headrace.spark.dataframe_plan import plan_push
from headrace.spark.spark_errors import root_message

_RESULT_SCHEMA: Final = pa.schema([("partition", pa.int32()), ("row_count", pa.int64())])
RESULT_SCHEMA_TEXT: Final = "partition int, row_count bigint"


class DataFramePushError(HostError):
    """The Spark job that pushes a DataFrame has failed."""

    def __init__(self, operator_name: str, reason: str) -> None:
        super().__init__(
            f"{reason.splitlines()[0]} (in the Spark job that reads the DataFrame of operator '{operator_name}')\n"
            f"{reason}"
        )


@dataclass
class _Registry:
    """DataFrames by name, for as long as the process lives: a graph cannot carry them."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    frames: dict[str, DataFrame] = field(default_factory=dict[str, DataFrame])


_registry: Final = _Registry()


def dataframe_source(
    df: DataFrame, *, event_time_column: str | None = None
) -> tuple[DataFrameSource, TypeInformation]:
    """Return the source of a DataFrame's rows and their type. ProgramError where it has no such column or type."""
    if getattr(df, "isStreaming", False):
        raise ProgramError(
            "from_dataframe takes bounded DataFrames; this one is a streaming DataFrame"
        )
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        schema = to_arrow_schema(df.schema, timezone=zone)
        check_dataframe_schema(schema, event_time_column)
        row_type = type_info_from_schema(schema)
    except TypeError as error:
        raise ProgramError(f"the DataFrame cannot be a stream: {error}") from error
    dataframe_id = f"dataframe-{next(_registry.numbers)}"
    _registry.frames[dataframe_id] = df
    return DataFrameSource(dataframe_id, row_type, event_time_column), row_type


@dataclass(frozen=True)
class PushTarget:
    """Where the rows of a DataFrame go; travels in the closure of the Spark job, so no secret is in anybody's log."""

    job_id: JobId
    operator_id: OperatorId
    locations: tuple[TaskManagerLocation, ...]
    secret: bytes
    tls: TlsIdentity | None


def push_partition(
    target: PushTarget, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Body of the pushing Spark task: send this partition's rows to its subtask, skipping what was accepted before."""
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.attemptNumber()
    subtask_index = partition % len(target.locations)
    sender = IngestSender(
        target.locations[subtask_index],
        target.secret,
        target.job_id,
        target.operator_id,
        subtask_index,
        partition,
        attempt,
        tls=target.tls,
    )
    try:
        row_count = 0
        for batch in batches:
            new = max(0, min(batch.num_rows, sender.accepted_row_count - row_count))
            if new < batch.num_rows:
                sender.send(batch.slice(new), row_count + new)
            row_count += batch.num_rows
        sender.finish(row_count)
    finally:
        sender.close()
    yield pa.RecordBatch.from_pydict(
        {"partition": [partition], "row_count": [row_count]}, schema=_RESULT_SCHEMA
    )


@dataclass
class _Pushing:
    """One run of the Spark job."""

    group: str
    is_cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)


class DataFrameCoordinator:
    """Starts the pushing job once all subtasks are ready, and cancels it with the Headrace job."""

    def __init__(
        self, context: CoordinatorContext, df: DataFrame, secret: bytes, tls: TlsIdentity | None
    ) -> None:
        self._context = context
        self._df = df
        self._secret = secret
        self._tls = tls
        self._ready: dict[int, tuple[ExecutionAttemptId, TaskManagerLocation]] = {}
        self._pushing: _Pushing | None = None
        self._runs = itertools.count(1)

    def start(self) -> None:
        """Nothing to do before subtasks are ready."""

    def subtask_ready(self, attempt_id: ExecutionAttemptId, location: TaskManagerLocation) -> None:
        """Note where a subtask runs; the last one starts the job."""
        self._ready[attempt_id.subtask_index] = (attempt_id, location)
        if len(self._ready) == self._context.parallelism and self._pushing is None:
            self._start_pushing()

    def subtask_failed(self, attempt_id: ExecutionAttemptId) -> None:
        """Stop pushing: all subtasks of the region start again, and all rows with them."""
        known = self._ready.get(attempt_id.subtask_index)
        if known is not None and known[0] == attempt_id:
            del self._ready[attempt_id.subtask_index]
            self._cancel()

    def handle_event(self, attempt_id: ExecutionAttemptId, payload: bytes) -> None:
        """Readers say nothing."""
        raise AssertionError(f"unexpected event of {attempt_id}")

    async def job_finishing(self) -> None:
        """Readers end only after every partition's end: nothing is open."""

    async def close(self) -> None:
        """Cancel the Spark job if it runs."""
        self._cancel()

    def _cancel(self) -> None:
        pushing, self._pushing = self._pushing, None
        if pushing is None or pushing.ended.is_set():
            return
        pushing.is_cancelled = True
        # Speaks to the JVM, hence not on the JobMaster's thread.
        start_thread(f"cancel-{pushing.group}", lambda: self._cancel_until_ended(pushing))

    def _cancel_until_ended(self, pushing: _Pushing) -> None:
        while not pushing.ended.is_set():
            # A cancellation that comes before Spark has taken the job has no effect, so it is repeated.
            try:
                self._df.sparkSession.sparkContext.cancelJobGroup(pushing.group)
            except Exception:
                return
            pushing.ended.wait(0.5)

    def _start_pushing(self) -> None:
        context = self._context
        target = PushTarget(
            context.job_id,
            context.operator_id,
            tuple(self._ready[index][1] for index in range(context.parallelism)),
            self._secret,
            self._tls,
        )
        group = f"headrace-{context.job_id.hex()[:8]}-{context.operator_id.hex()[:8]}-{next(self._runs)}"
        pushing = self._pushing = _Pushing(group)
        start_thread(f"push-{context.operator_name}", lambda: self._push(pushing, target))

    def _push(self, pushing: _Pushing, target: PushTarget) -> None:
        """Run the Spark job; on a thread of its own, which the job group belongs to."""
        spark_context = self._df.sparkSession.sparkContext
        try:
            spark_context.setJobGroup(
                pushing.group, f"rows of '{self._context.operator_name}'", interruptOnCancel=True
            )
            plan = plan_push(self._df, push_body(target), RESULT_SCHEMA_TEXT)
            announced = msgspec.msgpack.encode(PartitionsAnnounced(plan.partition_count))
            self._context.run_async(lambda: self._announce(pushing, announced))
            plan.run()
        except Exception as error:
            if not pushing.is_cancelled:
                failure = DataFramePushError(self._context.operator_name, root_message(error))
                self._context.run_async(lambda: self._failed(pushing, failure))
        finally:
            pushing.ended.set()

    def _announce(self, pushing: _Pushing, announced: bytes) -> None:
        if pushing is self._pushing:
            for subtask_index in range(self._context.parallelism):
                self._context.send_event(subtask_index, announced)

    def _failed(self, pushing: _Pushing, failure: DataFramePushError) -> None:
        if pushing is self._pushing:
            self._context.fail_job(failure)


def push_body(target: PushTarget) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what each Spark task runs over the batches of its partition."""

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from push_partition(target, batches)
        except Exception:
            _close_standard_error()
            raise

    return push


def _close_standard_error() -> None:
    """Let the worker's process, which ends with the failure of its task, print no more.

    The failure itself goes to Spark through the worker's socket. Where Spark has cancelled the task, because a stream
    was closed before its last row, nobody reads there any more: all that Spark's daemon would print in this process is
    that the pipe is broken.
    """
    # It stays open for the rest of the process.
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def source_coordinator_factory(secret: bytes, tls: TlsIdentity | None = None) -> CoordinatorFactory:
    """Return what makes a DataFrame source's coordinator in the JobMaster."""

    def create(context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        dataframe_id = msgspec.msgpack.decode(payload, type=SourcePayload).dataframe_id
        df = _registry.frames.get(dataframe_id)
        if df is None:
            raise HostError(
                f"operator '{context.operator_name}' reads {dataframe_id}, which this driver does not know: a job "
                "with DataFrames must be submitted by the process that made them"
            )
        return DataFrameCoordinator(context, df, secret, tls)

    return create
