"""PyFlink's `datastream.connectors.kafka`: re-exports."""

from headrace.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from headrace.connectors.kafka.serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from headrace.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from headrace.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from headrace.connectors.pyflink_refusals import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from headrace.functions.sink import DeliveryGuarantee

__all__ = [
    "DeliveryGuarantee",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "Semantic",
]
