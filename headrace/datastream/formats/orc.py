"""PyFlink's `datastream.formats.orc`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import OrcBulkWriters

__all__ = [
    "OrcBulkWriters",
]
