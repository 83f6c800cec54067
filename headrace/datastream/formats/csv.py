"""PyFlink's `datastream.formats.csv`: re-exports."""

from headrace.connectors.files.columnar_formats import CsvReaderFormat
from headrace.connectors.jvm_formats import (
    CsvBulkWriters,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
    CsvSchemaBuilder,
)

__all__ = [
    "CsvReaderFormat",
    "CsvSchema",
    "CsvSchemaBuilder",
    "CsvBulkWriters",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
]
