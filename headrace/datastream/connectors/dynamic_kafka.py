"""PyFlink's `datastream.connectors.dynamic_kafka`, whose names are refused when used: re-exports."""

from headrace.connectors.pyflink_refusals import (
    DynamicKafkaSource,
    DynamicKafkaSourceBuilder,
    KafkaMetadataService,
    KafkaRecordDeserializationSchema,
    KafkaStreamSetSubscriber,
    KafkaStreamSubscriber,
    SingleClusterTopicMetadataService,
    StreamPatternSubscriber,
)

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "SingleClusterTopicMetadataService",
    "KafkaStreamSubscriber",
    "KafkaStreamSetSubscriber",
    "StreamPatternSubscriber",
    "KafkaRecordDeserializationSchema",
]
