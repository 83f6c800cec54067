"""PyFlink's `datastream.formats.csv`: re-exports."""

from headrace.connectors.files.formats.columnar_formats import CsvReaderFormat
from headrace.connectors.files.formats.csv_schema import CsvSchema, CsvSchemaBuilder
from headrace.connectors.files.formats.csv_writer import CsvBulkWriters
from headrace.connectors.pyflink_refusals import (
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
