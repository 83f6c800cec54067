"""Writers of a JdbcSink: DirectWriter commits each batch, StagingTableWriter keeps rows until their checkpoint.

DirectWriter writes at least once: rows that come twice after a failure are correct only if the statement is idempotent,
such as an upsert by a key. StagingTableWriter keeps rows in a table of the target's own database, from which the
committer moves them.

Source: Flink JdbcOutputFormat.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.checkpoint.storage.subtask_storage import digest_of
from headrace.connectors.postgres.options import (
    CREATE_TABLES,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    StagedRows,
    Statement,
    connect,
    is_connection_lost,
)
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch, stream_bytes
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import SinkWriter, owner_of_sink

PART_SIZE_BYTES: Final = 4 * 1024 * 1024
"""Size of the columns that a writer holds before it stages them, as one value of a row of the table."""


class DirectWriter(SinkWriter):
    """Writes the rows of one subtask with one connection, which is opened again if it is lost."""

    def __init__(
        self,
        statement: Statement,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
        context: SubtaskContext,
    ) -> None:
        self._statement = statement
        self._options = connection
        self._execution = execution
        self._context = context
        self._connection: Any = connect(connection)
        self._held: list[tuple[Any, ...]] = []
        self._is_flush_scheduled = False

    def write_batch(self, batch: RecordBatch) -> None:
        self._held += parameter_rows(batch.columns())
        while len(self._held) >= self._execution.batch_size:
            self._write(self._execution.batch_size)
        self._schedule_flush()

    def flush(self, end_of_input: bool) -> None:
        """Write all rows to the database; also at a checkpoint, so that none of its rows is missing."""
        while self._held:
            self._write(self._execution.batch_size)

    def close(self) -> None:
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, row_count: int) -> None:
        """Write the first rows in a transaction; they are kept until it has ended."""
        rows = self._held[:row_count]
        for retries_left in range(self._execution.max_retries, -1, -1):
            try:
                self._try_write(rows)
                break
            except Exception as error:
                if not retries_left or not is_connection_lost(error):
                    raise
        del self._held[:row_count]

    def _try_write(self, rows: list[tuple[Any, ...]]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._options)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(self._statement.text, rows)

    def _schedule_flush(self) -> None:
        interval_ms = self._execution.batch_interval_ms
        if interval_ms and self._held and not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            timers = self._context.timers
            timers.schedule(timers.now_ms() + interval_ms, self._flush_due)

    def _flush_due(self, _: int) -> None:
        self._is_flush_scheduled = False
        if self._connection is not None:
            self.flush(end_of_input=False)


def parameter_rows(columns: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of columns as tuples of Python values, as psycopg expects them."""
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


class StagingTableWriter(SinkWriter):
    """Stages the rows of one subtask. A part is complete once its transaction is, and is never changed."""

    def __init__(self, connection: JdbcConnectionOptions, context: SubtaskContext) -> None:
        self._context = context
        self._connection: Any = connect(connection)
        with self._connection.transaction():
            for statement in CREATE_TABLES:
                self._connection.execute(statement)
        self._owner = owner_of_sink(context)
        self._held: list[pa.RecordBatch] = []
        self._held_size_bytes = 0
        self._staged: list[StagedRows] = []
        self._part_count = 0

    def write_batch(self, batch: RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = batch.columns()
        self._held.append(columns)
        self._held_size_bytes += columns.nbytes
        if self._held_size_bytes >= PART_SIZE_BYTES:
            self._stage()

    def flush(self, end_of_input: bool) -> None:
        """Write all rows to the staging table."""
        if self._held:
            self._stage()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Hand over the complete parts."""
        self.flush(end_of_input=False)
        staged, self._staged = self._staged, []
        return [msgspec.msgpack.encode(part) for part in staged]

    def close(self) -> None:
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _stage(self) -> None:
        context = self._context
        content = stream_bytes(self._held[0].schema, self._held)
        part = StagedRows(
            system_random().randbytes(16).hex(),
            self._owner,
            context.subtask_index,
            context.attempt_number,
            digest_of(content),
        )
        with self._connection.transaction():
            self._connection.execute(
                "INSERT INTO headrace_staging VALUES (%s, %s, %s, %s, %s, %s)",
                (
                    part.part,
                    part.owner,
                    part.subtask_index,
                    part.attempt_number,
                    self._part_count,
                    content,
                ),
            )
        self._part_count += 1
        self._held.clear()
        self._held_size_bytes = 0
        self._staged.append(part)
