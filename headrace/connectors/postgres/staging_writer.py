"""StagingTableWriter: rows wait in a table of the target's own database until their checkpoint is complete."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.checkpoint.storage import digest_of
from headrace.connectors.postgres.connections import connect
from headrace.connectors.postgres.messages import CREATE_TABLES, StagedRows
from headrace.connectors.postgres.options import JdbcConnectionOptions
from headrace.connectors.sink_owner import owner_of_sink
from headrace.core.arrow_streams import stream_bytes
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.functions.sink import SinkWriter
from headrace.functions.subtask_context import SubtaskContext

PART_SIZE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of columns that a writer holds before it stages them, as one value of a row of the table."""


class StagingTableWriter(SinkWriter):
    """Stages the rows of one subtask. A part is complete once its transaction is; none is ever changed."""

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
        """Bring every row to the staging table."""
        if self._held:
            self._stage()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Hand over the parts that are complete."""
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
