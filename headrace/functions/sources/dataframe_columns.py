"""Columns of DataFrames of any library: checks that they can be a stream, and converts them to the stream's types."""

import pyarrow as pa

from headrace.core.errors import ProgramError
from headrace.core.types.arrow_types import cast_column


def check_dataframe_schema(schema: pa.Schema, event_time_column: str | None) -> None:
    """Raise ProgramError if a DataFrame with these columns cannot be a stream, before anything runs."""
    names = schema.names
    if not names:
        raise ProgramError("the DataFrame has no columns, so its rows hold nothing: select some")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ProgramError(
            f"the DataFrame has more than one column '{repeated[0]}': rename them, for example with toDF(...)"
        )
    if event_time_column is None:
        return
    if event_time_column not in names:
        raise ProgramError(
            f"the DataFrame has no column '{event_time_column}' for the event time; it has: {', '.join(names)}"
        )
    column_type = schema.field(event_time_column).type
    kinds = pa.types
    if not (
        kinds.is_timestamp(column_type)
        or kinds.is_date(column_type)
        or kinds.is_integer(column_type)
    ):
        raise ProgramError(
            f"the column '{event_time_column}' is of type {column_type}, which cannot be an event time: use a "
            "timestamp, a date, or epoch milliseconds as an integer"
        )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly the columns of `schema`, cast if its library chose another Arrow type."""
    if batch.schema == schema:
        return batch
    columns = [
        cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
