"""PyFlink's `datastream.formats.parquet`: re-exports."""

from headrace.connectors.files.formats import ParquetBulkWriters

__all__ = [
    "ParquetBulkWriters",
]
