"""PyFlink's `datastream.connectors.jdbc`: re-exports."""

from headrace.connectors.postgres.options import JdbcConnectionOptions, JdbcExecutionOptions
from headrace.connectors.postgres.sink import JdbcSink

__all__ = [
    "JdbcSink",
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
]
