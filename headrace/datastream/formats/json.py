"""PyFlink's `datastream.formats.json`, and lines of JSON in files: re-exports."""

from headrace.connectors.files.columnar_formats import JsonLinesFormat
from headrace.functions.json_rows import JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = [
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]
