"""KafkaSource: reads topics, from the offsets that the program gives or from those of the last checkpoint.

Source: Flink KafkaSource, KafkaSourceBuilder.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.connectors.kafka.enumerator import KafkaEnumeration
from headrace.connectors.kafka.offsets import (
    KAFKA_ENUMERATOR,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from headrace.connectors.kafka.reader import KafkaReader
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import TypeInformation
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.serialization import DeserializationSchema
from headrace.functions.source import Boundedness, SourceReader, SplitSource

DISCOVERY_INTERVAL: Final = "partition.discovery.interval.ms"
COMMIT_OFFSETS: Final = "commit.offsets.on.checkpoint"
CLIENT_ID_PREFIX: Final = "client.id.prefix"
_OWN_PROPERTIES: Final = (DISCOVERY_INTERVAL, COMMIT_OFFSETS, CLIENT_ID_PREFIX)
_DISCOVERY_INTERVAL_MS: Final = "300000"


class KafkaSource(SplitSource):
    """Reads topics; each partition is a split. Made by `builder`.

    Positions are kept in checkpoints; offsets committed to the consumer group are for people who watch it. Records have
    Kafka's timestamps. Only committed records are read, unless the property `isolation.level` says otherwise.

    Example:
        >>> from headrace.functions.serialization import SimpleStringSchema
        >>> source = (KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("delays")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_value_only_deserializer(SimpleStringSchema()).build())
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    def __init__(
        self,
        enumeration: KafkaEnumeration,
        schema: DeserializationSchema,
        boundedness: Boundedness,
        client_id_prefix: str,
        commits_offsets: bool,
    ) -> None:
        self._enumeration = enumeration
        self._schema = schema
        self._boundedness = boundedness
        self._client_id_prefix = client_id_prefix
        self._commits_offsets = commits_offsets

    @staticmethod
    def builder() -> "KafkaSourceBuilder":
        """Return a builder, which needs servers, topics and a deserializer."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        return self._boundedness

    @property
    def produced_type(self) -> TypeInformation:
        return self._schema.get_produced_type()

    def enumerator(self) -> tuple[str, bytes]:
        return KAFKA_ENUMERATOR, msgspec.msgpack.encode(self._enumeration)

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        config: dict[str, Any] = {
            **self._enumeration.config,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        if self._client_id_prefix:
            config["client.id"] = f"{self._client_id_prefix}-{context.subtask_index}"
        return KafkaReader(config, self._schema, context, commits_offsets=self._commits_offsets)


class KafkaSourceBuilder:
    """Builds a KafkaSource."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._topics: tuple[str, ...] = ()
        self._topic_pattern = ""
        self._partitions: tuple[KafkaTopicPartition, ...] = ()
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        self._schema: DeserializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> "KafkaSourceBuilder":
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> "KafkaSourceBuilder":
        """Set the group to which offsets are committed, and whose offsets `committed_offsets` uses."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> "KafkaSourceBuilder":
        self._topics = topics
        return self

    def set_topic_pattern(self, topic_pattern: str) -> "KafkaSourceBuilder":
        """Read the topics whose whole name matches a regular expression."""
        self._topic_pattern = topic_pattern
        return self

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> "KafkaSourceBuilder":
        self._partitions = tuple(sorted(partitions))
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """Set the offsets at which reading starts without a checkpoint; default: the earliest."""
        self._starting = starting_offsets_initializer
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """Stop at these offsets, although the source counts as unbounded."""
        self._stopping = stopping_offsets_initializer
        self._boundedness = Boundedness.CONTINUOUS_UNBOUNDED
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> "KafkaSourceBuilder":
        """Stop at these offsets, which are resolved when the source starts."""
        self._stopping = stopping_offsets_initializer
        self._boundedness = Boundedness.BOUNDED
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> "KafkaSourceBuilder":
        self._schema = deserialization_schema
        return self

    def set_client_id_prefix(self, prefix: str) -> "KafkaSourceBuilder":
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_property(self, key: str, value: str) -> "KafkaSourceBuilder":
        """Set an option of librdkafka, or `partition.discovery.interval.ms` or `commit.offsets.on.checkpoint`."""
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, str]) -> "KafkaSourceBuilder":
        """Set several options."""
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        properties = self._properties
        if "bootstrap.servers" not in properties:
            raise ProgramError("KafkaSource needs set_bootstrap_servers(...)")
        if sum(map(bool, (self._topics, self._topic_pattern, self._partitions))) != 1:
            raise ProgramError(
                "KafkaSource needs one of set_topics(...), set_topic_pattern(...) and set_partitions(...)"
            )
        if self._schema is None:
            raise ProgramError("KafkaSource needs set_value_only_deserializer(...)")
        has_group = "group.id" in properties
        config = {key: value for key, value in properties.items() if key not in _OWN_PROPERTIES}
        # The client wants a group even where none is used.
        config.setdefault("group.id", "headrace")
        enumeration = KafkaEnumeration(
            config,
            self._topics,
            self._topic_pattern,
            self._partitions,
            self._starting,
            self._stopping,
            self._discovery_interval_ms(),
        )
        commits = has_group and properties.get(COMMIT_OFFSETS, "true") == "true"
        prefix = properties.get(CLIENT_ID_PREFIX, "")
        return KafkaSource(enumeration, self._schema, self._boundedness, prefix, commits)

    def _discovery_interval_ms(self) -> int | None:
        """Return the interval.

        None for fixed partitions: stopping offsets, named partitions, or an interval below 1.
        """
        interval = int(self._properties.get(DISCOVERY_INTERVAL, _DISCOVERY_INTERVAL_MS))
        return None if self._stopping or self._partitions or interval < 1 else interval
