"""PyFlink's `datastream.formats.parquet`: re-exports."""

from headrace.connectors.files.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats import ParquetBulkWriters

__all__ = [
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
