"""PyFlink's `datastream.connectors.pulsar`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import (
    MessageDelayer,
    PulsarDeserializationSchema,
    PulsarSerializationSchema,
    PulsarSink,
    PulsarSinkBuilder,
    PulsarSource,
    PulsarSourceBuilder,
    RangeGenerator,
    StartCursor,
    StopCursor,
    SubscriptionType,
    TopicRoutingMode,
)

__all__ = [
    "PulsarDeserializationSchema",
    "PulsarSerializationSchema",
    "SubscriptionType",
    "PulsarSource",
    "PulsarSourceBuilder",
    "StartCursor",
    "StopCursor",
    "RangeGenerator",
    "PulsarSink",
    "PulsarSinkBuilder",
    "MessageDelayer",
    "TopicRoutingMode",
]
