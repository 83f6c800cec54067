"""StagedRowsCommitter: moves a checkpoint's staged rows to their table, in one transaction with a note of its id.

So the database always shows whether an id was committed, even if the connection was lost.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.checkpoint.storage.subtask_storage import digest_of
from headrace.connectors.postgres.options import (
    CREATE_TABLES,
    JdbcConnectionOptions,
    JdbcPayload,
    StagedRows,
    connect,
    psycopg_client,
)
from headrace.connectors.postgres.writers import parameter_rows
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.functions.sink import CommitterContext, scope_of

_PART: Final = msgspec.msgpack.Decoder(StagedRows)


class StagedRowsLostError(HeadraceError):
    """Raised if the staging table and the note of commits contradict each other, after a change by somebody else."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class StagedRowsCommitter:
    """Commits for one JdbcSink. One connection, made at the first call and again after an error.

    Implements Committer.
    """

    def __init__(self, payload: JdbcPayload) -> None:
        self._statement: Final = payload.statement
        self._options: Final = JdbcConnectionOptions(
            payload.url, payload.user_name, payload.password
        )
        self._connection: Any = None

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        """Move a checkpoint's staged rows to the target. StagedRowsLostError if uncommitted rows are missing."""
        parts = [_PART.decode(content) for content in committables]
        if parts:
            self._in_transaction(lambda: self._move(scope_of(key), checkpoint_id, parts))

    def last_committed(self, scope: str) -> int | None:
        query = "SELECT last_id FROM headrace_commits WHERE scope = %s"
        row = self._in_transaction(lambda: self._connection.execute(query, (scope,)).fetchone())
        return None if row is None else row[0]

    def delete_leftovers(self, scope: str, owner: str) -> None:
        """Delete the rows that a sink's subtasks staged."""
        query = "DELETE FROM headrace_staging WHERE owner = %s"
        self._in_transaction(lambda: self._connection.execute(query, (owner,)))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _in_transaction(self, body: Callable[[], Any]) -> Any:
        if self._connection is None:
            self._connection = connect(self._options)
            with self._connection.transaction():
                for statement in CREATE_TABLES:
                    self._connection.execute(statement)
        try:
            with self._connection.transaction():
                return body()
        except BaseException:
            # What became of the transaction is asked of the next connection.
            self.close()
            raise

    def _move(self, scope: str, checkpoint_id: int, parts: Sequence[StagedRows]) -> None:
        execute = self._connection.execute
        # The row is locked until the end, so that of two drivers the second one sees the first one's commit.
        execute(
            "INSERT INTO headrace_commits (scope, last_id) VALUES (%s, -1) ON CONFLICT DO NOTHING",
            (scope,),
        )
        query = "SELECT last_id FROM headrace_commits WHERE scope = %s FOR UPDATE"
        (last_id,) = execute(query, (scope,)).fetchone()
        names = [part.part for part in parts]
        query = "SELECT part FROM headrace_staging WHERE part = ANY(%s)"
        staged = execute(query, (names,)).fetchall()
        if checkpoint_id <= last_id:
            self._check_committed(checkpoint_id, staged)
            return
        if len(staged) != len(set(names)):
            raise StagedRowsLostError(
                f"{len(set(names)) - len(staged)} of {len(names)} staged parts of checkpoint {checkpoint_id} are gone "
                f"from headrace_staging, and headrace_commits does not show that they were committed ('{scope}' is at "
                f"{last_id})"
            )
        digests = {part.part: part.digest for part in parts}
        query = (
            "SELECT part, content FROM headrace_staging WHERE part = ANY(%s) "
            "ORDER BY subtask_index, attempt_number, ordinal"
        )
        # A part at a time: they may be all that a job has written.
        with (
            self._connection.cursor() as cursor,
            self._connection.cursor(name="headrace_parts") as parts_read,
        ):
            parts_read.itersize = 1
            parts_read.execute(query, (names,))
            for name, content in parts_read:
                if digests[name] and digest_of(content) != digests[name]:
                    raise StagedRowsLostError(
                        f"part {name} of checkpoint {checkpoint_id} in headrace_staging was changed since it was "
                        "written: nothing was committed; check who has write access to that table"
                    )
                for batch in pa.ipc.open_stream(content):
                    batch.validate(full=True)
                    cursor.executemany(self._statement, parameter_rows(batch))
        execute(
            "UPDATE headrace_commits SET last_id = %s, committed_at = now() WHERE scope = %s",
            (checkpoint_id, scope),
        )
        execute("DELETE FROM headrace_staging WHERE part = ANY(%s)", (names,))
        self._sweep(parts)

    def _check_committed(self, checkpoint_id: int, staged: Sequence[Any]) -> None:
        if staged:
            raise StagedRowsLostError(
                f"checkpoint {checkpoint_id} was committed before, yet {len(staged)} of its parts still wait in "
                "headrace_staging: was the checkpoint's number used twice?"
            )

    def _sweep(self, parts: Sequence[StagedRows]) -> None:
        """Delete staged rows of attempts before those of `parts`: ids commit in order, so no checkpoint has them."""
        newest = {
            (one.owner, one.subtask_index): one.attempt_number
            for one in sorted(parts, key=_attempt)
        }
        for (owner, subtask_index), attempt_number in newest.items():
            if attempt_number > 0:
                self._connection.execute(
                    "DELETE FROM headrace_staging WHERE owner = %s AND subtask_index = %s AND attempt_number < %s",
                    (owner, subtask_index, attempt_number),
                )


def _attempt(part: StagedRows) -> int:
    return part.attempt_number


def create_postgres_committer(context: CommitterContext, payload: bytes) -> StagedRowsCommitter:
    """Make the committer of a JdbcSink; the entry point `postgres`."""
    decoded: Any = msgspec.msgpack.decode(payload, type=JdbcPayload)
    psycopg_client()  # whether it is there is better known before the first commit
    return StagedRowsCommitter(decoded)
