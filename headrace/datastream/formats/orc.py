"""PyFlink's `datastream.formats.orc`, whose names are refused when used: re-exports."""

from headrace.connectors.jvm_formats import (
    OrcBulkWriters,
)

__all__ = [
    "OrcBulkWriters",
]
