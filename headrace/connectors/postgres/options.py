"""Options of a JdbcSink: the database's address, and the size of batches.

Also connects to PostgreSQL (the only import of psycopg), translates statements from JDBC's `?` to psycopg's form, and
defines the messages between the sink's writers and its committer, with the tables that they share:

    headrace_staging   rows that wait for their checkpoint, as Arrow IPC streams, one part per row of the table
    headrace_commits   per scope the highest id whose rows are in the target: written in the transaction that moves them

Source: Flink JdbcConnectionOptions, JdbcExecutionOptions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.core.errors import HostError
from headrace.core.redaction import shown_uri

_SCHEMES: Final = ("postgresql://", "postgres://")
_PIECES: Final = re.compile(
    r"""'(?:[^']|'')*'      # a string: a question mark in it is one
      | "(?:[^"]|"")*"      # a quoted name
      | --[^\n]*            # a comment to the end of the line
      | \?\?                # JDBC's way to write an operator with a question mark
      | \? | %""",
    re.VERBOSE,
)
POSTGRES_COMMITTER: Final = "postgres"
CREATE_TABLES: Final = (
    # Two sessions that create a table at once collide in the catalogue, `IF NOT EXISTS` or not.
    "SELECT pg_advisory_xact_lock(4733262906)",
    "CREATE TABLE IF NOT EXISTS headrace_staging (part text PRIMARY KEY, owner text NOT NULL, "
    "subtask_index int NOT NULL, attempt_number int NOT NULL, ordinal int NOT NULL, content bytea NOT NULL)",
    "CREATE TABLE IF NOT EXISTS headrace_commits (scope text PRIMARY KEY, last_id bigint NOT NULL, "
    "committed_at timestamptz NOT NULL DEFAULT now())",
)


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Address and credentials of the database. `url` is kept as given; `conninfo` translates it."""

    url: str
    user_name: str | None = None
    password: str | None = None
    driver_name: str | None = None

    def __repr__(self) -> str:
        user, driver = self.user_name, self.driver_name
        return f"JdbcConnectionOptions({shown_uri(self.url)!r}, user_name={user!r}, driver_name={driver!r})"

    def get_db_url(self) -> str:
        return self.url

    def get_driver_name(self) -> str | None:
        return self.driver_name

    def get_user_name(self) -> str | None:
        return self.user_name

    def get_password(self) -> str | None:
        return self.password

    @property
    def conninfo(self) -> str:
        """Return the URL in libpq's form."""
        return self.url.removeprefix("jdbc:")

    @property
    def parameters(self) -> Mapping[str, str]:
        """Return the connection parameters that are given apart from the URL."""
        given = {"user": self.user_name, "password": self.password}
        return {key: value for key, value in given.items() if value is not None}

    class JdbcConnectionOptionsBuilder:
        """Builds JdbcConnectionOptions."""

        def __init__(self) -> None:
            self._values: dict[str, Any] = {}

        def with_url(self, url: str) -> "JdbcConnectionOptions.JdbcConnectionOptionsBuilder":
            """Set the URL `jdbc:postgresql://host:5432/database`, with or without `jdbc:`.

            Libpq's parameters may follow a `?`.
            """
            if not url.removeprefix("jdbc:").startswith(_SCHEMES):
                raise ValueError(
                    f"JdbcSink writes to PostgreSQL, but '{shown_uri(url)}' is not a jdbc:postgresql:// URL"
                )
            self._values["url"] = url
            return self

        def with_driver_name(
            self, driver_name: str
        ) -> "JdbcConnectionOptions.JdbcConnectionOptionsBuilder":
            """Accept `org.postgresql.Driver`, which is not needed."""
            if driver_name != "org.postgresql.Driver":
                raise ValueError(f"JdbcSink writes to PostgreSQL, not through '{driver_name}'")
            self._values["driver_name"] = driver_name
            return self

        def with_user_name(
            self, user_name: str
        ) -> "JdbcConnectionOptions.JdbcConnectionOptionsBuilder":
            self._values["user_name"] = user_name
            return self

        def with_password(
            self, password: str
        ) -> "JdbcConnectionOptions.JdbcConnectionOptionsBuilder":
            self._values["password"] = password
            return self

        def build(self) -> "JdbcConnectionOptions":
            if "url" not in self._values:
                raise ValueError("the address of the database is missing: call with_url(...)")
            return JdbcConnectionOptions(**self._values)


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """Limits of one batch of rows: a number of rows, and an interval in ms (0: no limit in time)."""

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        return self.batch_size

    def get_max_retries(self) -> int:
        return self.max_retries

    @staticmethod
    def defaults() -> "JdbcExecutionOptions":
        """Return the defaults: 5000 rows, no interval, three retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> "JdbcExecutionOptions.Builder":
        """Return a builder with the defaults."""
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds JdbcExecutionOptions."""

        def __init__(self) -> None:
            self._values: dict[str, int] = {}

        def with_batch_size(self, size: int) -> "JdbcExecutionOptions.Builder":
            if size < 1:
                raise ValueError(f"the batch size must be at least 1 row, not {size}")
            self._values["batch_size"] = size
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> "JdbcExecutionOptions.Builder":
            if interval_ms < 0:
                raise ValueError(f"the interval must be 0 ms or more, not {interval_ms}")
            self._values["batch_interval_ms"] = interval_ms
            return self

        def with_max_retries(self, max_retries: int) -> "JdbcExecutionOptions.Builder":
            if max_retries < 0:
                raise ValueError(f"the number of retries must be 0 or more, not {max_retries}")
            self._values["max_retries"] = max_retries
            return self

        def build(self) -> "JdbcExecutionOptions":
            return JdbcExecutionOptions(**self._values)


class PostgresClientMissingError(HostError):
    """Raised if psycopg is needed but not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the PostgreSQL sink needs psycopg in the driver and on every worker: pip install 'headrace[postgres]'"
        )


def connect(options: JdbcConnectionOptions) -> Any:
    """Open a psycopg connection without autocommit."""
    return psycopg_client().connect(
        options.conninfo, application_name="headrace", **options.parameters
    )


def is_connection_lost(error: BaseException) -> bool:
    """Return whether another connection may succeed: the server went away, or could not be reached."""
    return isinstance(error, psycopg_client().OperationalError)


def psycopg_client() -> Any:
    """Return the module `psycopg`; PostgresClientMissingError if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise PostgresClientMissingError from error
    return psycopg


@dataclass(frozen=True)
class Statement:
    """A statement for psycopg, and the number of its values."""

    text: str
    parameter_count: int


def parse_statement(sql: str) -> Statement:
    """Turn each `?` that stands for a value into psycopg's `%s`.

    Example:
        >>> parse_statement("INSERT INTO t VALUES (?, '?', ?)")
        Statement(text="INSERT INTO t VALUES (%s, '?', %s)", parameter_count=2)
    """
    count = 0

    def translate(match: re.Match[str]) -> str:
        nonlocal count
        piece = match.group()
        if piece == "?":
            count += 1
            return "%s"
        if piece == "??":
            return "?"
        return piece.replace("%", "%%")

    return Statement(_PIECES.sub(translate, sql), count)


class StagedRows(msgspec.Struct, frozen=True):
    """Writer → committer: a part in the staging table. `owner` stands for job and operator.

    `digest` is the digest of the part's content, because others may write in that table; empty if an earlier version
    wrote it.
    """

    part: str
    owner: str
    subtask_index: int
    attempt_number: int
    digest: bytes = b""


class JdbcPayload(msgspec.Struct, frozen=True):
    """Configuration of the committer. `statement` is in psycopg's form."""

    url: str
    user_name: str | None
    password: str | None
    statement: str
