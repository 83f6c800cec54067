"""DirectWriter: runs the statement for each record, in batches, and commits each batch: at least once.

What is written twice after a failure is right where the statement makes it so: an upsert by a key that records have.
Source: Flink JdbcOutputFormat.
"""

from typing import Any

import pyarrow as pa

from headrace.connectors.postgres.connections import connect, is_connection_lost
from headrace.connectors.postgres.options import JdbcConnectionOptions, JdbcExecutionOptions
from headrace.connectors.postgres.statements import Statement
from headrace.core.record_batch import RecordBatch
from headrace.functions.sink import SinkWriter
from headrace.functions.subtask_context import SubtaskContext


class DirectWriter(SinkWriter):
    """One subtask, one connection, which is made anew where it is lost."""

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
        """Bring every row to the database; at a checkpoint too, so that none of its rows is missing."""
        while self._held:
            self._write(self._execution.batch_size)

    def close(self) -> None:
        self._held.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, row_count: int) -> None:
        """Write the first rows in a transaction; they are held until it has ended."""
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
    """Return the rows of columns as tuples of Python values, as psycopg takes them."""
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))
