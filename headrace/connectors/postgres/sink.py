"""JdbcSink: runs a PostgreSQL statement for each record.

Source: Flink JdbcSink, JdbcXaSinkFunction.
"""

from dataclasses import dataclass

import msgspec

from headrace.connectors.postgres.options import (
    POSTGRES_COMMITTER,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    JdbcPayload,
    Statement,
    parse_statement,
)
from headrace.connectors.postgres.writers import DirectWriter, StagingTableWriter
from headrace.connectors.prepared_output import commits_prepared_output
from headrace.core.errors import ProgramError
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DeliveryGuarantee, Sink, SinkWriter


@dataclass(frozen=True)
class JdbcSink(Sink):
    """Runs `statement` for each record, with a value for each of its columns. Made by `sink` and `exactly_once_sink`.

    Example:
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(
        ...     "jdbc:postgresql://localhost:5432/flights").build()
        >>> sink = JdbcSink.sink(
        ...     "INSERT INTO delays VALUES (?, ?) ON CONFLICT (origin) DO UPDATE SET delay = EXCLUDED.delay",
        ...     None, options)
        >>> sink.statement.parameter_count
        2
    """

    statement: Statement
    type_info: TypeInformation | None
    connection: JdbcConnectionOptions
    execution: JdbcExecutionOptions
    guarantee: DeliveryGuarantee

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> "JdbcSink":
        """Write records at once, at least once; an upsert as `sql` makes the effect exactly once.

        While a job repeats the records after its last checkpoint, readers may see values change back and forth.
        """
        return _make(
            sql,
            type_info,
            jdbc_connection_options,
            jdbc_execution_options,
            DeliveryGuarantee.AT_LEAST_ONCE,
        )

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: TypeInformation | None,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> "JdbcSink":
        """Write with each checkpoint all its rows in one transaction, exactly once.

        Rows wait in the table `headrace_staging` of the same database, and `headrace_commits` records the committed
        checkpoints; both are created if they are missing. The statement runs in the driver, row by row. In a job
        without checkpoints rows are written at once, at least once.
        """
        return _make(
            sql,
            type_info,
            jdbc_connection_options,
            jdbc_execution_options,
            DeliveryGuarantee.EXACTLY_ONCE,
        )

    def check_input(self, value_type: TypeInformation) -> None:
        if isinstance(value_type, PickledBytesTypeInfo):
            raise ProgramError(
                "JdbcSink needs records with columns, and this stream's records have no declared type: give it one, "
                "for example map(f, output_type=Types.ROW([...]))"
            )
        column_count = len(data_schema(value_type).names)
        if column_count != self.statement.parameter_count:
            raise ProgramError(
                f"the statement of JdbcSink takes {self.statement.parameter_count} values, but records have "
                f"{column_count} columns"
            )

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        is_staged = self.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if is_staged and commits_prepared_output(context.settings):
            return StagingTableWriter(self.connection, context)
        return DirectWriter(self.statement, self.connection, self.execution, context)

    def committer(self) -> tuple[str, bytes] | None:
        if self.guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        connection = self.connection
        payload = JdbcPayload(
            connection.url, connection.user_name, connection.password, self.statement.text
        )
        return POSTGRES_COMMITTER, msgspec.msgpack.encode(payload)


def _make(
    sql: str,
    type_info: TypeInformation | None,
    connection: JdbcConnectionOptions,
    execution: JdbcExecutionOptions | None,
    guarantee: DeliveryGuarantee,
) -> JdbcSink:
    statement = parse_statement(sql)
    sink = JdbcSink(
        statement, type_info, connection, execution or JdbcExecutionOptions.defaults(), guarantee
    )
    if type_info is not None:
        sink.check_input(type_info)
    return sink
