"""Formats of JSON, beside PyFlink's `datastream.formats.json`: re-exports."""

from headrace.connectors.files.columnar_formats import JsonLinesFormat

__all__ = [
    "JsonLinesFormat",
]
