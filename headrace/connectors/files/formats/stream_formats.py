"""Formats that write records into a file: one after the other through an encoder, or in columns.

Source: Flink Encoder and BulkWriter.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.configuration import Configuration
from headrace.core.errors import ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, TypeInformation
from headrace.functions.serialization import Encoder

ROW_GROUP_ROW_COUNT: Final = 65_536
"""Rows that a Parquet part holds before it writes them as one row group."""


class PartContent(Protocol):
    """Writer of one file's content; its caller opens and closes the stream."""

    @property
    def size_bytes(self) -> int:
        """Return the approximate size of the file, if it were closed now."""
        ...

    def write(self, batch: RecordBatch) -> None:
        """Append the rows."""
        ...

    def finish(self) -> None:
        """Write buffered records and the end of the file."""
        ...

    def abandon(self) -> None:
        """Release all resources without finishing, while the stream is still open: the file is going to be deleted."""
        ...


class FileFormat(ABC):
    """Format of a file sink: picklable, and the same for all its files."""

    @abstractmethod
    def open(self, stream: Any, value_type: TypeInformation) -> PartContent:
        """Begin a file."""

    def check_input(self, value_type: TypeInformation) -> None:  # noqa: B027
        """Raise ProgramError if records of this type cannot be written."""


@dataclass(frozen=True)
class RowFormat(FileFormat):
    """Format that writes record by record."""

    encoder: Encoder

    def open(self, stream: Any, value_type: TypeInformation) -> PartContent:
        return _EncodedRows(stream, self.encoder, value_type)


class _EncodedRows:
    def __init__(self, stream: Any, encoder: Encoder, value_type: TypeInformation) -> None:
        self._stream = stream
        self._encode = encoder.encode
        self._value_type = value_type
        self.size_bytes = 0

    def write(self, batch: RecordBatch) -> None:
        encode, value_type = self._encode, self._value_type
        payload = b"".join([encode(row, value_type) for row in batch.rows()])
        self._stream.write(payload)
        self.size_bytes += len(payload)

    def finish(self) -> None:
        """Do nothing: no data is buffered."""

    def abandon(self) -> None:
        """Do nothing: no data is buffered."""


class BulkWriterFactory(FileFormat):
    """Base of formats in columns: `FileSink.for_bulk_format` takes one."""

    def check_input(self, value_type: TypeInformation) -> None:
        if isinstance(value_type, PickledBytesTypeInfo):
            raise ProgramError(
                "a bulk format needs records with columns, and this stream's records have no declared type: give it "
                "one, for example map(f, output_type=Types.ROW_NAMED([...], [...]))"
            )


@dataclass(frozen=True)
class ParquetWriterFactory(BulkWriterFactory):
    """Format of Parquet files with the columns of the stream, or of `schema`.

    `options` go to `pyarrow.parquet.ParquetWriter`.
    """

    schema: pa.Schema | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def check_input(self, value_type: TypeInformation) -> None:
        super().check_input(value_type)
        if self.schema is None:
            return
        missing = sorted(set(self.schema.names) - set(data_schema(value_type).names))
        if missing:
            raise ProgramError(
                f"the stream's records have no column '{missing[0]}', which the Parquet files need"
            )

    def open(self, stream: Any, value_type: TypeInformation) -> PartContent:
        return _ParquetRows(stream, self.schema or data_schema(value_type), self.options)


class _ParquetRows:
    """Collects batches until there are enough rows for a row group."""

    def __init__(self, stream: Any, schema: pa.Schema, options: dict[str, Any]) -> None:
        self._stream = stream
        self._schema = schema
        chosen: dict[str, Any] = {"compression": "zstd", **options}
        self._writer = pq.ParquetWriter(stream, schema, **chosen)
        self._held: list[pa.RecordBatch] = []
        self._held_row_count = 0
        self._held_size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._stream.tell() + self._held_size_bytes

    def write(self, batch: RecordBatch) -> None:
        columns = batch.columns()
        self._held.append(columns)
        self._held_row_count += columns.num_rows
        self._held_size_bytes += columns.nbytes
        if self._held_row_count >= ROW_GROUP_ROW_COUNT:
            self._write_held()

    def finish(self) -> None:
        self._write_held()
        self._writer.close()

    def abandon(self) -> None:
        self._held.clear()
        # Else it would end the file when it is collected, into a stream that is closed.
        self._writer.close()

    def _write_held(self) -> None:
        names, schema = self._schema.names, self._schema
        batches = [batch.select(names).cast(schema) for batch in self._held]
        self._writer.write_table(pa.Table.from_batches(batches, schema=schema))
        self._held.clear()
        self._held_row_count = self._held_size_bytes = 0


class ParquetBulkWriters:
    """Factory of Parquet formats for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: TypeInformation | pa.Schema | None = None,
        hadoop_config: Configuration | None = None,
        utc_timestamp: bool = False,
        **options: Any,
    ) -> BulkWriterFactory:
        """Write files with the columns of `row_type` (a row's type or an Arrow schema), by default those of the stream.

        Times are written unchanged, whatever `utc_timestamp` says. A Hadoop configuration with settings raises
        ProgramError. `options` are those of `pyarrow.parquet.ParquetWriter`, such as `compression="snappy"`.

        Example:
            >>> ParquetBulkWriters.for_row_type(pa.schema([("origin", pa.string())])).schema.names
            ['origin']
        """
        check_hadoop_config(hadoop_config)
        schema = data_schema(row_type) if isinstance(row_type, TypeInformation) else row_type
        return ParquetWriterFactory(schema, options)


def check_hadoop_config(hadoop_config: Configuration | None) -> None:
    """Raise ProgramError if Hadoop settings are given, because they would have no effect."""
    if hadoop_config is not None and hadoop_config.key_set():
        raise ProgramError(
            "hadoop_config: files are accessed through Arrow, which takes the settings of a store from the URI or "
            "from its usual environment variables: remove the argument"
        )
