"""DataFrames as streams: keeps the program's DataFrames by name in the driver, and makes sources that refer to them."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.cluster.job_master.coordinators.operator_coordinator import (
    CoordinatorContext,
    CoordinatorFactory,
    OperatorCoordinator,
)
from headrace.connectors.dataframe.messages import SourcePayload
from headrace.connectors.dataframe.source import DataFrameSource, check_dataframe_schema
from headrace.core.errors import HostError, ProgramError
from headrace.core.types.arrow_types import type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.spark.dataframes.dataframe_coordinator import DataFrameCoordinator
from headrace.spark.dataframes.push import with_plain_names
from headrace.spark.session.authentication import TaskSecrets


@dataclass
class _Registry:
    """DataFrames by name, for as long as the process lives: a graph cannot carry them."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    frames: dict[str, DataFrame] = field(default_factory=dict[str, DataFrame])


_registry: Final = _Registry()


def dataframe_source(
    df: DataFrame, *, event_time_column: str | None = None
) -> tuple[DataFrameSource, TypeInformation]:
    """Return the source of a DataFrame's rows and their type. ProgramError where it has no such column or type."""
    if getattr(df, "isStreaming", False):
        raise ProgramError(
            "from_dataframe takes bounded DataFrames; this one is a streaming DataFrame"
        )
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
    return DataFrameSource(dataframe_id, row_type, event_time_column), row_type


def source_coordinator_factory(secrets: TaskSecrets) -> CoordinatorFactory:
    """Return the factory of a DataFrame source's coordinator in the JobMaster."""

    def create(context: CoordinatorContext, payload: bytes) -> OperatorCoordinator:
        dataframe_id = msgspec.msgpack.decode(payload, type=SourcePayload).dataframe_id
        df = _registry.frames.get(dataframe_id)
        if df is None:
            raise HostError(
                f"{context.place} reads {dataframe_id}, which this driver does not know: a job "
                "with DataFrames must be submitted by the process that made them"
            )
        return DataFrameCoordinator(context, df, secrets)

    return create
