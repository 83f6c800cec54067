"""PyFlink's `datastream.connectors`: re-exports. What stood here until Flink 1.15 says where it is now."""

from headrace.connectors.pyflink_refusals import refuse_moved_name as __getattr__
from headrace.functions.sink import DeliveryGuarantee, Sink
from headrace.functions.source import Source

__all__ = [
    "Sink",
    "DeliveryGuarantee",
    "Source",
    "__getattr__",
]
