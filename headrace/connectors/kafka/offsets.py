"""Offsets between which a partition is read: the first record, and the end of reading if there is one.

Source: Flink OffsetsInitializer, KafkaPartitionSplit.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.functions.source import SourceSplit

KAFKA_ENUMERATOR: Final = "kafka"
_SPLIT: Final[Any] = msgspec.msgpack.Decoder(tuple[str, int, int, int | None])


class KafkaOffsetResetStrategy(enum.Enum):
    """Fallback for a partition without a valid offset to start from."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class KafkaTopicPartition(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def split_id(self) -> str:
        """Return the partition's name among the splits of a source."""
        return f"{self.topic}-{self.partition}"


class OffsetKind(enum.Enum):
    """Kinds of offsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    GIVEN = "given"


class KafkaOffsetsInitializer(msgspec.Struct, frozen=True):
    """Rule for the offset at which reading starts or stops, per partition. `reset`: fallback without an offset."""

    kind: OffsetKind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    timestamp_ms: int = 0
    given: tuple[tuple[KafkaTopicPartition, int], ...] = ()

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> "KafkaOffsetsInitializer":
        """Use the offsets that the consumer group has committed."""
        return KafkaOffsetsInitializer(OffsetKind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> "KafkaOffsetsInitializer":
        """Use the first record at or after an epoch millisecond; the end if there is none."""
        return KafkaOffsetsInitializer(
            OffsetKind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp
        )

    @staticmethod
    def earliest() -> "KafkaOffsetsInitializer":
        """Use the first record that still exists."""
        return KafkaOffsetsInitializer(OffsetKind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> "KafkaOffsetsInitializer":
        """Use the offset after the last record at the time a partition is found."""
        return KafkaOffsetsInitializer(OffsetKind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> "KafkaOffsetsInitializer":
        """Use these offsets, and `offset_reset_strategy` for other partitions."""
        return KafkaOffsetsInitializer(
            OffsetKind.GIVEN, offset_reset_strategy, given=tuple(sorted(offsets.items()))
        )


@dataclass(frozen=True)
class KafkaPartitionSplit:
    """Split of a Kafka source: a partition from `offset` to before `stopping_offset`, or without end."""

    partition: KafkaTopicPartition
    offset: int
    stopping_offset: int | None = None

    @property
    def is_at_end(self) -> bool:
        """Return whether nothing is left to read."""
        return self.stopping_offset is not None and self.offset >= self.stopping_offset

    def encoded(self) -> SourceSplit:
        """Return it as a split, with the offsets packed into its content."""
        one = self.partition
        content = msgspec.msgpack.encode(
            (one.topic, one.partition, self.offset, self.stopping_offset)
        )
        return SourceSplit(one.split_id, content)

    @staticmethod
    def decoded(split: SourceSplit) -> "KafkaPartitionSplit":
        """Decode the result of `encoded`."""
        topic, partition, offset, stopping_offset = _SPLIT.decode(split.content)
        return KafkaPartitionSplit(KafkaTopicPartition(topic, partition), offset, stopping_offset)


def owner_of(partition: KafkaTopicPartition, parallelism: int) -> int:
    """Return the reader of a partition: those of a topic are distributed round robin, beginning by the topic's name."""
    digest = 0
    for letter in partition.topic:
        digest = (digest * 31 + ord(letter)) & 0xFFFFFFFF
    return (((digest * 31) & 0x7FFFFFFF) + partition.partition) % parallelism
