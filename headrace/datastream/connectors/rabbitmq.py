"""PyFlink's `datastream.connectors.rabbitmq`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import (
    RMQConnectionConfig,
    RMQSink,
    RMQSource,
)

__all__ = [
    "RMQConnectionConfig",
    "RMQSource",
    "RMQSink",
]
