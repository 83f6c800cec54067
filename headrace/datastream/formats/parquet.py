"""PyFlink's `datastream.formats.parquet`: re-exports."""

from headrace.connectors.files.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats import ParquetBulkWriters
from headrace.connectors.jvm_formats import AvroParquetReaders, AvroParquetWriters

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
