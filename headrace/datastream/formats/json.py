"""PyFlink's `datastream.formats.json`, and lines of JSON in files: re-exports."""

from headrace.connectors.files.formats.columnar_formats import JsonLinesFormat
from headrace.connectors.json.json_rows import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = [
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
