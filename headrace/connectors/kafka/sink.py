"""KafkaSink: writes records to topics. Source: Flink KafkaSink, KafkaSinkBuilder."""

from typing import Final

import msgspec

from headrace.connectors.kafka.serialization import KafkaRecordSerializationSchema
from headrace.connectors.kafka.staged_records import KAFKA_COMMITTER, KafkaPayload
from headrace.connectors.kafka.writers import DirectKafkaWriter, StagingKafkaWriter
from headrace.connectors.prepared_output import commits_prepared_output
from headrace.core.errors import ProgramError
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import (
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
)

CONTROL_TOPIC: Final = "headrace-commits"
# Equal keys go where the Java clients send them.
_DEFAULTS: Final = {"partitioner": "murmur2_random", "enable.idempotence": "true"}


class KafkaSink(Sink, SupportsPreprocessing):
    """Writes records to Kafka. Made by `builder`.

    EXACTLY_ONCE: records of a checkpoint appear when it is complete, all in one transaction, which the driver writes;
    readers need `isolation.level=read_committed`. A compacted topic, `headrace-commits`, records which checkpoints were
    written. Without checkpoints, and with AT_LEAST_ONCE, records appear at once, and may appear twice after a failure.
    NONE does not even wait for the brokers.

    Example:
        >>> from headrace.functions.serialization import SimpleStringSchema
        >>> schema = KafkaRecordSerializationSchema.builder().set_topic("delays")
        >>> sink = (KafkaSink.builder().set_bootstrap_servers("localhost:9092")
        ...     .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build()).build())
    """

    def __init__(
        self,
        config: dict[str, str],
        schema: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        transactional_id_prefix: str,
    ) -> None:
        self._config = config
        self._schema = schema
        self._guarantee = guarantee
        self._transactional_id_prefix = transactional_id_prefix

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: records need no preparation."""
        return None

    @staticmethod
    def builder() -> "KafkaSinkBuilder":
        """Return a builder, which needs servers and a serializer."""
        return KafkaSinkBuilder()

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        is_exact = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if is_exact and commits_prepared_output(context.settings):
            return StagingKafkaWriter(self._schema, context)
        waits = self._guarantee is not DeliveryGuarantee.NONE
        return DirectKafkaWriter(self._config, self._schema, waits=waits)

    def committer(self) -> tuple[str, bytes] | None:
        if self._guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
            return None
        payload = KafkaPayload(self._config, self._transactional_id_prefix, CONTROL_TOPIC)
        return KAFKA_COMMITTER, msgspec.msgpack.encode(payload)


class KafkaSinkBuilder:
    """Builds a KafkaSink."""

    def __init__(self) -> None:
        self._config: dict[str, str] = dict(_DEFAULTS)
        self._schema: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._transactional_id_prefix = ""

    def set_bootstrap_servers(self, bootstrap_servers: str) -> "KafkaSinkBuilder":
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> "KafkaSinkBuilder":
        """Set the guarantee; NONE by default, as in Flink."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> "KafkaSinkBuilder":
        """Set the prefix of transactional ids, which EXACTLY_ONCE needs; no other sink may use it."""
        self._transactional_id_prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> "KafkaSinkBuilder":
        self._schema = record_serializer
        return self

    def set_property(self, key: str, value: str) -> "KafkaSinkBuilder":
        """Set an option of librdkafka, which has most of the Java client's names."""
        if key == "transactional.id":
            raise ProgramError(
                "use set_transactional_id_prefix(...): each writer makes its own id from the prefix"
            )
        self._config[key] = value
        return self

    def build(self) -> KafkaSink:
        if "bootstrap.servers" not in self._config:
            raise ProgramError("KafkaSink needs set_bootstrap_servers(...)")
        if self._schema is None:
            raise ProgramError("KafkaSink needs set_record_serializer(...)")
        is_exact = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if is_exact and not self._transactional_id_prefix:
            raise ProgramError(
                "KafkaSink with EXACTLY_ONCE needs set_transactional_id_prefix(...), which no other sink uses"
            )
        return KafkaSink(self._config, self._schema, self._guarantee, self._transactional_id_prefix)
