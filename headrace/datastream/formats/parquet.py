"""PyFlink's `datastream.formats.parquet`: re-exports."""

from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats.stream_formats import ParquetBulkWriters
from headrace.connectors.pyflink_refusals import AvroParquetReaders, AvroParquetWriters

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
