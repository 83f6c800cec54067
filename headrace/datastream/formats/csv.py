"""PyFlink's `datastream.formats.csv`: re-exports."""

from headrace.connectors.files.columnar_formats import CsvReaderFormat
from headrace.connectors.files.csv_schema import CsvSchema, CsvSchemaBuilder
from headrace.connectors.files.csv_writer import CsvBulkWriters
from headrace.connectors.jvm_formats import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)

__all__ = [
    "CsvReaderFormat",
    "CsvSchema",
    "CsvSchemaBuilder",
    "CsvBulkWriters",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
]
