"""What JdbcSink's writers and its committer say to each other, and the tables that they share.

headrace_staging   rows that wait for their checkpoint, as Arrow IPC streams, one part per row of the table
headrace_commits   per scope the highest id whose rows are in the target: written in the transaction that moves them
"""

from typing import Final

import msgspec

POSTGRES_COMMITTER: Final = "postgres"
CREATE_TABLES: Final = (
    # Two sessions that create a table at once collide in the catalogue, `IF NOT EXISTS` or not.
    "SELECT pg_advisory_xact_lock(4733262906)",
    "CREATE TABLE IF NOT EXISTS headrace_staging (part text PRIMARY KEY, owner text NOT NULL, "
    "subtask_index int NOT NULL, attempt_number int NOT NULL, ordinal int NOT NULL, content bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS headrace_commits (scope text PRIMARY KEY, last_id bigint NOT NULL, "
    "committed_at timestamptz NOT NULL DEFAULT now())",
)


class StagedRows(msgspec.Struct, frozen=True):
    """Writer → committer: a part in the staging table. `owner` stands for job and operator.

    `digest` is of the part's content, as others may write in that table; empty where an earlier version wrote it.
    """

    part: str
    owner: str
    subtask_index: int
    attempt_number: int
    digest: bytes = b""


class JdbcPayload(msgspec.Struct, frozen=True):
    """What the committer is made from. `statement` is in psycopg's form."""

    url: str
    user_name: str | None
    password: str | None
    statement: str
