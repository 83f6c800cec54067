"""PyFlink's `datastream.connectors`: re-exports.

Names that it had until Flink 1.15 raise an error with their new module.
"""

from headrace.connectors.pyflink_refusals import refuse_moved_name as __getattr__
from headrace.functions.sink import DeliveryGuarantee, Sink
from headrace.functions.source import Source

__all__ = [
    "Sink",
    "DeliveryGuarantee",
    "Source",
    "__getattr__",
]
