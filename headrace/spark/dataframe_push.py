"""What runs in the Spark tasks that push a DataFrame: each sends its partition to the subtask that has it."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from headrace.core.ids import JobId, OperatorId
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.ingest_sender import IngestSender
from headrace.spark.task_secrets import received_secrets

_RESULT_SCHEMA: Final = pa.schema([("partition", pa.int32()), ("row_count", pa.int64())])
RESULT_SCHEMA_TEXT: Final = "partition int, row_count bigint"
ATTEMPTS_PER_RUN: Final = 1000
"""More than Spark ever makes of one task: attempts of a later job must count as newer."""


@dataclass(frozen=True)
class PushTarget:
    """Where the rows of a DataFrame go; travels in the closure of the Spark job, and so holds no secret."""

    job_id: JobId
    operator_id: OperatorId
    locations: tuple[TaskManagerLocation, ...]
    run_number: int = 0
    open_partitions: Mapping[int, int] | None = None
    """Subtask by partition; None before they were given out: then i goes to subtask i modulo the number of subtasks."""

    def subtask_of(self, partition: int) -> int | None:
        """Who gets the partition; None for one that has ended already."""
        if self.open_partitions is None:
            return partition % len(self.locations)
        return self.open_partitions.get(partition)


def push_partition(
    target: PushTarget, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Body of the pushing Spark task: send this partition's rows to its subtask, skipping what was accepted before."""
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    attempt = target.run_number * ATTEMPTS_PER_RUN + context.attemptNumber()
    subtask_index = target.subtask_of(partition)
    if subtask_index is None:
        return
    secrets = received_secrets()
    sender = IngestSender(
        target.locations[subtask_index],
        secrets.secret,
        target.job_id,
        target.operator_id,
        subtask_index,
        partition,
        attempt,
        tls=secrets.tls,
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
