"""PyFlink's `datastream.connectors.base`: re-exports."""

from headrace.functions.sink import (
    DeliveryGuarantee,
    Sink,
    StreamTransformer,
    SupportsPreprocessing,
)
from headrace.functions.source import Source

__all__ = [
    "Sink",
    "DeliveryGuarantee",
    "Source",
    "StreamTransformer",
    "SupportsPreprocessing",
]
