"""Results of a stream for the program that made it: as Arrow, pandas or polars, or as a preview of first records."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.api.html_text import paragraph, preformatted, short_text, table
from headrace.api.transformations import batch_type_of, is_bounded
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import HeadraceError, HostError, ProgramError
from headrace.core.record_batch import columns_of_one_schema
from headrace.core.types.arrow_types import VALUE_COLUMN, data_schema
from headrace.core.types.type_info import (
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from headrace.api.streams.data_stream import DataStream

RESULT_MEMORY_BYTES: Final = 64 << 20
"""Size of the records up to which a DataFrame of them is made in memory."""
_DATAFRAME_OUTPUTS: Final = "headrace.dataframe_outputs"
"""Entry points of functions that make Spark DataFrames of streams, so that programs need not import their host."""


def dataframe_output(name: str) -> Any:
    """Return the object installed under the entry point. HostError if there is none."""
    if name not in entry_point_names(_DATAFRAME_OUTPUTS):
        raise HostError(
            f"this installation of Headrace has no '{name}' in the entry points {_DATAFRAME_OUTPUTS}: install "
            f"Headrace again"
        )
    return load_entry_point(_DATAFRAME_OUTPUTS, name)


def columns_type(stream: "DataStream") -> TypeInformation:
    """Return the type of the stream's records. ProgramError if the type has no columns."""
    value_type = batch_type_of(stream.collected_stream().transformation).value_type
    if isinstance(value_type, PickledBytesTypeInfo):
        raise ProgramError(
            f"the records of {stream!r} have no declared type, so there are no columns: give their operator an "
            f"output_type, or use execute_and_collect"
        )
    return value_type


def spark_dataframe(
    stream: "DataStream", is_streaming: bool, path: str | None, memory_bytes: int
) -> Any:
    """Run the program and return the stream's records as a DataFrame of Spark."""
    value_type = columns_type(stream)
    if is_streaming:
        return dataframe_output("streaming")(stream, value_type, path)
    if path is not None:
        raise ProgramError("path can be given only for streaming DataFrames: pass streaming=True")
    if not is_bounded(stream.collected_stream().transformation):
        raise ProgramError(
            f"{stream!r} has no end, so it can only become a streaming DataFrame: pass streaming=True"
        )
    return dataframe_output("bounded")(stream, value_type, memory_bytes)


def collect_arrow(stream: "DataStream", limit: int | None) -> pa.Table:
    """Run the program and return the stream's records, at most `limit`."""
    value_type = columns_type(stream)
    if limit is None and not is_bounded(stream.collected_stream().transformation):
        raise ProgramError(
            f"{stream!r} has no end: pass the number of records to wait for as `limit`"
        )
    if limit is not None:
        check_count("limit", limit)
    environment = stream.get_execution_environment()
    with environment.execute_and_collect_stream(stream, None, limit) as results:
        batches = [batch.columns() for batch in results.take_batches(limit)]
    if not batches:
        return data_schema(value_type).empty_table()
    return pa.Table.from_batches(columns_of_one_schema(batches))


def collect_pandas(stream: "DataStream", limit: int | None) -> Any:
    """Return the stream's records, at most `limit`, as a DataFrame of pandas.

    ProgramError, before the program runs, if pandas is not installed.
    """
    require_library("pandas", "to_pandas")
    return collect_arrow(stream, limit).to_pandas()


def collect_polars(stream: "DataStream", limit: int | None) -> Any:
    """Return the stream's records, at most `limit`, as a DataFrame of polars.

    ProgramError, before the program runs, if polars is not installed.
    """
    require_library("polars", "to_polars")
    return import_module("polars").from_arrow(collect_arrow(stream, limit))


def require_library(library: str, method: str, instead: str = "to_arrow") -> None:
    """Raise ProgramError, which names the alternative `instead`, if a library is not installed."""
    if find_spec(library) is None:
        raise ProgramError(
            f"{method} needs {library}, which is not installed: pip install {library}, or use {instead}"
        )


def check_count(name: str, count: int) -> None:
    """Raise ValueError unless `count` is at least 1."""
    if count < 1:
        raise ValueError(f"'{name}' must be at least 1, but is {count}")


class StreamPreview:
    """The first records of a stream, as a table. `rows`: Python values of the stream's type."""

    def __init__(self, value_type: TypeInformation, rows: Sequence[Any]) -> None:
        self.rows = rows
        self._type = value_type

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __repr__(self) -> str:
        lines = [" | ".join(map(short_text, cells)) for cells in (self._heads(), *self._cells())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return table(self._heads(), self._cells())

    def _heads(self) -> Sequence[str]:
        return tuple(name for name, _ in shown_columns(self._type))

    def _cells(self) -> Sequence[Sequence[Any]]:
        if isinstance(self._type, RowTypeInfo | TupleTypeInfo):
            return [tuple(row) for row in self.rows]
        return [(row,) for row in self.rows]


def preview(stream: "DataStream", count: int, timeout_s: float) -> StreamPreview:
    """Run the producers of the stream until it has given `count` records, or `timeout_s` has passed."""
    check_count("n", count)
    value_type = stream.collected_stream().get_type()
    with stream.get_execution_environment().preview_stream(stream) as results:
        batches = results.take_batches(count, timeout_s)
    return StreamPreview(value_type, [row for batch in batches for row in batch.rows()])


def stream_html(stream: "DataStream") -> str:
    """Return HTML of the stream's type and plan; if the program has a mistake, its error replaces the plan."""
    try:
        plan = preformatted(stream.get_execution_environment().explain_stream(stream))
    except HeadraceError as error:
        plan = paragraph(f"The plan cannot be made: {error}")
    return (
        paragraph(repr(stream)) + table(("column", "type"), shown_columns(stream.get_type())) + plan
    )


def shown_columns(value_type: TypeInformation) -> Sequence[tuple[str, TypeInformation]]:
    """Return the columns of records of this type, as they are shown to people."""
    if isinstance(value_type, RowTypeInfo | TupleTypeInfo):
        return tuple(zip(value_type.field_names, value_type.field_types, strict=True))
    return ((VALUE_COLUMN, value_type),)
