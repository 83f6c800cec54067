"""KafkaRecordSerializationSchema: makes a record's topic, key and value. Source: Flink's class of that name."""

from collections.abc import Callable
from typing import Any

from headrace.connectors.kafka.clients import KafkaRecord
from headrace.core.errors import ProgramError
from headrace.functions.serialization import SerializationSchema


class KafkaTopicSelector:
    """Chooses the topic of a record: pass a subclass or a plain function."""

    def apply(self, data: Any) -> str:
        """Return the topic."""
        raise NotImplementedError


class KafkaRecordSerializationSchema:
    """Makes Kafka records; made by `builder`. Records with equal keys go to the same partition as with Java clients."""

    def __init__(
        self,
        topic: str | None,
        selector: Callable[[Any], str] | None,
        key: SerializationSchema | None,
        value: SerializationSchema,
    ) -> None:
        self._topic = topic
        self._selector = selector
        self._key = key
        self._value = value

    @staticmethod
    def builder() -> "KafkaRecordSerializationSchemaBuilder":
        """Return a builder, which needs a topic or topic selector, and a schema for values."""
        return KafkaRecordSerializationSchemaBuilder()

    def serialize(self, element: Any, timestamp_ms: int | None = None) -> KafkaRecord:
        """Return the Kafka record for a record of the stream."""
        topic = self._selector(element) if self._selector else self._topic
        assert topic is not None
        key = self._key.serialize(element) if self._key else None
        return KafkaRecord(topic, key, self._value.serialize(element), None, timestamp_ms)


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def set_topic(self, topic: str) -> "KafkaRecordSerializationSchemaBuilder":
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> "KafkaRecordSerializationSchemaBuilder":
        is_selector = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if is_selector else topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> "KafkaRecordSerializationSchemaBuilder":
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> "KafkaRecordSerializationSchemaBuilder":
        self._value = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        if (self._topic is None) == (self._selector is None):
            raise ProgramError("records for Kafka need either a topic or a topic selector")
        if self._value is None:
            raise ProgramError("records for Kafka need set_value_serialization_schema(...)")
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value)
