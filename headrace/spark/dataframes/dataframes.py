"""DataFrames as streams: registers the program's DataFrames by name in the driver, and creates sources for them."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.cluster.job_master.coordinators.operator_coordinator import (
    CoordinatorContext,
    CoordinatorFactory,
    OperatorCoordinator,
)
from headrace.connectors.dataframe.messages import SourcePayload
from headrace.connectors.dataframe.source import DataFrameSource
from headrace.connectors.files.paths import fixed_place
from headrace.core.errors import HostError, ProgramError
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.sources.arrow_source import ArrowSource, read_arrow
from headrace.functions.sources.dataframe_columns import check_dataframe_schema
from headrace.spark.dataframes.dataframe_coordinator import DataFrameCoordinator
from headrace.spark.dataframes.push import is_of_connect, with_plain_names
from headrace.spark.dataframes.streaming_dataframe_coordinator import (
    QueryOptions,
    StreamingDataFrameCoordinator,
)
from headrace.spark.session.authentication import TaskSecrets


@dataclass
class _Registry:
    """The program's DataFrames by name, for the life of the process, as a graph cannot carry them."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    frames: dict[str, DataFrame] = field(default_factory=dict[str, DataFrame])
    queries: dict[str, QueryOptions] = field(default_factory=dict[str, QueryOptions])


_registry: Final = _Registry()
_DELAY: Final = "spark.watermarkDelayMs"
"""Metadata key of a column with the watermark's delay. Source: Spark, EventTimeWatermark.delayKey."""


def dataframe_source(
    df: DataFrame,
    *,
    event_time_column: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    checkpoint_location: str | None = None,
) -> tuple[DataFrameSource | ArrowSource, TypeInformation, int | None]:
    """Return the source of a DataFrame's rows, their type, and the delay in ms of the DataFrame's own watermark.

    A bounded DataFrame of Spark Connect is computed at once: its rows travel with the job. ProgramError if the event
    time column is missing or a type is not supported.
    """
    is_streaming = bool(df.isStreaming)
    if not is_streaming and (trigger or checkpoint_location):
        raise ProgramError(
            "trigger and checkpoint_location are only for streaming DataFrames, but this one is bounded"
        )
    if is_of_connect(df):
        rows = _source_of_connect(df, event_time_column)
        return rows, rows.produced_type, None
    delay_ms: int | None = None
    if is_streaming and event_time_column is None:
        event_time_column, delay_ms = spark_watermark(df)
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    try:
        schema = to_arrow_schema(df.schema, timezone=zone)
        check_dataframe_schema(schema, event_time_column)
        row_type = type_info_from_schema(schema)
    except TypeError as error:
        raise ProgramError(f"the DataFrame cannot be a stream: {error}") from error
    dataframe_id = f"dataframe-{next(_registry.numbers)}"
    # The stream's columns have their names from the type: whoever reads pushed rows takes them by position.
    _registry.frames[dataframe_id] = with_plain_names(df)
    if is_streaming:
        location = fixed_place(checkpoint_location) if checkpoint_location else ""
        _registry.queries[dataframe_id] = QueryOptions(dict(trigger or {}), location)
    source = DataFrameSource(dataframe_id, row_type, event_time_column, is_streaming)
    return source, row_type, delay_ms


def dataframe_named(dataframe_id: str, reader: str) -> DataFrame:
    """Return a DataFrame of the program, with plain column names, for an operator that reads it.

    HostError if this process has not created it.
    """
    df = _registry.frames.get(dataframe_id)
    if df is None:
        raise HostError(
            f"{reader} reads {dataframe_id}, which this driver does not know: a job with DataFrames must be submitted "
            "by the process that made them"
        )
    return df


def _source_of_connect(df: Any, event_time_column: str | None) -> ArrowSource:
    """Return a source of rows that the Connect server computes now, as this process could not do it later."""
    if df.isStreaming:
        raise ProgramError(
            "a streaming DataFrame of Spark Connect cannot be a source, as its client has no driver to push the "
            "rows: let the server write them to a log, "
            "df.writeStream.format('headrace').option('checkpointLocation', …).start(folder), and "
            "read that with BatchLogSource(folder, row_type); or write to Kafka, and read with a KafkaSource"
        )
    return read_arrow(df.toArrow(), event_time_column)


def spark_watermark(df: DataFrame) -> tuple[str | None, int | None]:
    """Return the column of `df.withWatermark(column, delay)` and the delay in ms, if a column still has it."""
    for column in df.schema.fields:
        delay_ms = column.metadata.get(_DELAY) if column.metadata else None
        if delay_ms is not None:
            return column.name, int(delay_ms)
    return None, None


def source_coordinator_factory(secrets: TaskSecrets) -> CoordinatorFactory:
    """Return the factory of a DataFrame source's coordinator in the JobMaster."""

    def create(context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        dataframe_id = msgspec.msgpack.decode(payload, type=SourcePayload).dataframe_id
        df = dataframe_named(dataframe_id, context.place)
        query = _registry.queries.get(dataframe_id)
        if query is not None:
            return StreamingDataFrameCoordinator(context, df, query, secrets)
        return DataFrameCoordinator(context, df, secrets)

    return create
