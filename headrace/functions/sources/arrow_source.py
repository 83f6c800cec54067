"""ArrowSource: a bounded source over columns that are shipped with the program, as an Arrow IPC stream.

Any object with Arrow's stream interface (`__arrow_c_stream__`) gives such columns: those of pandas, polars, DuckDB,
pyarrow. They are serialized once, in the client; a job's graph stores large payloads in a blob, which each TaskManager
fetches once. Subtask i of n reads the i-th part of the rows, in order; a row's number is its position in the whole.
Source: Arrow PyCapsule Interface.
"""

from typing import Any, Final

import pyarrow as pa

from headrace.core.errors import ProgramError
from headrace.core.ids import size_text
from headrace.core.record_batch import BatchType, RecordBatch, stream_bytes
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, Source, SourceOutput, SourceReader
from headrace.functions.sources.dataframe_columns import check_dataframe_schema, conform
from headrace.functions.sources.number_range_reader import NumberRangeReader, share_of
from headrace.functions.watermarks import ColumnTimestampAssigner

SIZE_MAX: Final = 1 << 30
"""Largest size in bytes, because every TaskManager that reads the columns has them in memory."""


class ArrowSource(Source):
    """Emits the rows of an Arrow stream. `event_time_column`: the column with the rows' event time.

    None for no event time.
    """

    def __init__(
        self,
        arrow_stream: bytes,
        row_count: int,
        row_type: TypeInformation,
        event_time_column: str | None = None,
    ) -> None:
        self._arrow_stream = arrow_stream
        self._row_count = row_count
        self._type = row_type
        self._event_time_column = event_time_column

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        share = share_of(range(self._row_count), context.subtask_index, context.parallelism)
        return ArrowReader(self._arrow_stream, self._event_time_column, share, context)

    def __repr__(self) -> str:
        return f"ArrowSource({self._row_count} rows, {self._type})"


class ArrowReader(NumberRangeReader):
    """Emits slices of the columns, which are in the source's bytes and are not copied."""

    def __init__(
        self,
        arrow_stream: bytes,
        event_time_column: str | None,
        share: range,
        context: SubtaskContext,
    ) -> None:
        super().__init__(share, context)
        self._assigner = (
            None if event_time_column is None else ColumnTimestampAssigner(event_time_column)
        )
        with pa.ipc.open_stream(pa.py_buffer(arrow_stream)) as stream:
            self._rows: pa.Table = stream.read_all()

    def emit_range(self, numbers: range, split_id: str, output: SourceOutput) -> None:
        for columns in self._rows.slice(numbers.start, len(numbers)).to_batches():
            batch = RecordBatch.of_columns(BatchType(self.context.types.output.value_type), columns)
            if self._assigner is not None:
                batch = batch.with_timestamps(self._assigner.extract_timestamps(columns))
            output.emit(batch, split_id)


def read_arrow(
    data: Any, event_time_column: str | None = None, size_bytes_max: int = SIZE_MAX
) -> ArrowSource:
    """Return a source of the rows of `data`, which are all read now. ProgramError if `data` has no Arrow stream.

    An object whose rows can be read once, such as a RecordBatchReader, is empty afterwards.
    """
    described = f"{type(data).__module__}.{type(data).__qualname__}"
    if not hasattr(data, "__arrow_c_stream__"):
        raise ProgramError(
            "from_arrow needs an object with Arrow's stream interface (pyarrow, pandas, polars, DuckDB), not "
            f"{described}"
        )
    try:
        reader = pa.RecordBatchReader.from_stream(data)
        schema = reader.schema
        check_dataframe_schema(schema, event_time_column)
        row_type = type_info_from_schema(schema)
        wanted = data_schema(row_type)
        batches: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in reader:
            # Readers of databases hand over many small batches.
            size_bytes += batch.nbytes
            if size_bytes > size_bytes_max:
                raise ProgramError(
                    f"the rows of {described} are more than {size_text(size_bytes_max)}, which every TaskManager would "
                    "hold in memory: write them to Parquet files and read these with a FileSource, or let Spark read "
                    "them and use from_dataframe"
                )
            batches.append(conform(batch, wanted))
    except (TypeError, pa.ArrowException) as error:
        raise ProgramError(f"the rows of {described} cannot be a stream: {error}") from error
    rows = pa.Table.from_batches(batches, wanted).combine_chunks()
    return ArrowSource(stream_bytes(wanted, [rows]), rows.num_rows, row_type, event_time_column)
