"""Connections to PostgreSQL: where psycopg is imported, and what of it is used."""

from typing import Any

from headrace.connectors.postgres.options import JdbcConnectionOptions
from headrace.core.errors import HostError


class PostgresClientMissingError(HostError):
    """psycopg is not installed where it is needed."""

    def __init__(self) -> None:
        super().__init__(
            "the PostgreSQL sink needs psycopg in the driver and on every worker: pip install 'headrace[postgres]'"
        )


def connect(options: JdbcConnectionOptions) -> Any:
    """Open a psycopg connection that commits when it is told to."""
    return psycopg_client().connect(
        options.conninfo, application_name="headrace", **options.parameters
    )


def is_connection_lost(error: BaseException) -> bool:
    """Whether another connection may do better: the server went away, or could not be reached."""
    return isinstance(error, psycopg_client().OperationalError)


def psycopg_client() -> Any:
    """Return the module `psycopg`; PostgresClientMissingError where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise PostgresClientMissingError from error
    return psycopg
