"""PyFlink's `datastream.connectors`: re-exports."""

from headrace.functions.sink import DeliveryGuarantee, Sink
from headrace.functions.source import Source

__all__ = [
    "Sink",
    "DeliveryGuarantee",
    "Source",
]
