"""PyFlink's `datastream.formats.csv`: re-exports."""

from headrace.connectors.files.columnar_formats import CsvReaderFormat

__all__ = [
    "CsvReaderFormat",
]
