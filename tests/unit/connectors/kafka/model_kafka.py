"""Brokers without transactions, as a list per partition, and the client that a source sees of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from headrace.connectors.kafka.offsets import KafkaTopicPartition


@dataclass(frozen=True)
class ModelMessage:
    """A record, or the end of a partition where `code` is set."""

    where: KafkaTopicPartition
    at: int
    content: bytes = b""
    time_ms: int = 0
    code: int | None = None

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms

    def error(self) -> Any:
        return None if self.code is None else SimpleNamespace(code=lambda: self.code)


@dataclass
class ModelLog:
    """Records by partition; an offset may be missing, as marks of transactions are. `consumed`: how far a look goes."""

    partitions: dict[KafkaTopicPartition, list[ModelMessage]] = field(
        default_factory=dict[KafkaTopicPartition, list[ModelMessage]]
    )
    ends: dict[KafkaTopicPartition, int] = field(default_factory=dict[KafkaTopicPartition, int])
    committed: dict[KafkaTopicPartition, int] = field(
        default_factory=dict[KafkaTopicPartition, int]
    )
    at_a_time: int = 2

    def create(self, topic: str, count: int) -> None:
        for number in range(count):
            self.partitions.setdefault(KafkaTopicPartition(topic, number), [])

    def append(self, topic: str, partition: int, *values: str, gap: int = 0) -> None:
        """Add records, and `gap` offsets behind them that have none."""
        where = KafkaTopicPartition(topic, partition)
        for value in values:
            at = self.end_of(where)
            message = ModelMessage(where, at, value.encode(), time_ms=1000 + at)
            self.partitions[where].append(message)
            self.ends[where] = at + 1
        self.ends[where] = self.end_of(where) + gap

    def end_of(self, where: KafkaTopicPartition) -> int:
        return self.ends.get(where, 0)


@dataclass
class ModelConsumer:
    log: ModelLog
    positions: dict[KafkaTopicPartition, int] = field(
        default_factory=dict[KafkaTopicPartition, int]
    )
    paused: set[KafkaTopicPartition] = field(default_factory=set[KafkaTopicPartition])
    told_end: dict[KafkaTopicPartition, int] = field(default_factory=dict[KafkaTopicPartition, int])

    def incremental_assign(self, wanted: Sequence[Any]) -> None:
        for one in wanted:
            assert one.offset >= 0
            self.positions[_key(one)] = one.offset

    def incremental_unassign(self, wanted: Sequence[Any]) -> None:
        for one in wanted:
            del self.positions[_key(one)]

    def consume(self, count: int, timeout: float) -> list[ModelMessage]:
        assert timeout == 0
        taken: list[ModelMessage] = []
        for where, position in self.positions.items():
            if where in self.paused:
                continue
            room = min(self.log.at_a_time, count - len(taken))
            if not room:
                break
            new = [one for one in self.log.partitions[where] if one.at >= position][:room]
            taken += new
            end = self.log.end_of(where)
            if new:
                self.positions[where] = new[-1].at + 1
            elif self.told_end.get(where) != end:
                self.told_end[where] = end
                taken.append(ModelMessage(where, end, code=KafkaError._PARTITION_EOF))
        return taken

    def pause(self, wanted: Sequence[Any]) -> None:
        self.paused |= {_key(one) for one in wanted}

    def resume(self, wanted: Sequence[Any]) -> None:
        self.paused -= {_key(one) for one in wanted}

    def commit(self, offsets: Sequence[Any], asynchronous: bool) -> None:
        assert asynchronous
        self.log.committed.update({_key(one): one.offset for one in offsets})

    def close(self) -> None:
        self.positions.clear()

    # What is asked while partitions are looked for.

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        found: dict[str, Any] = {}
        for where in self.log.partitions:
            entry = found.setdefault(where.topic, SimpleNamespace(error=None, partitions={}))
            entry.partitions[where.partition] = where
        if topic is not None and topic not in found:
            found[topic] = SimpleNamespace(error="unknown topic", partitions={})
        return SimpleNamespace(topics=found)

    def get_watermark_offsets(
        self, one: Any, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        return 0, self.log.end_of(_key(one))

    def committed(self, wanted: Sequence[Any], timeout: float) -> list[Any]:
        return [_answer(one, self.log.committed.get(_key(one), OFFSET_INVALID)) for one in wanted]

    def offsets_for_times(self, wanted: Sequence[Any], timeout: float) -> list[Any]:
        answers: list[Any] = []
        for one in wanted:
            later = [m.at for m in self.log.partitions[_key(one)] if m.time_ms >= one.offset]
            answers.append(_answer(one, min(later, default=-1)))
        return answers


def creating(log: ModelLog) -> Any:
    """What stands in for `create_consumer`."""

    def create(config: Mapping[str, Any]) -> ModelConsumer:
        assert config["enable.auto.commit"] is False
        return ModelConsumer(log)

    return create


def _key(one: Any) -> KafkaTopicPartition:
    return KafkaTopicPartition(one.topic, one.partition)


def _answer(one: Any, offset: int) -> Any:
    return TopicPartition(one.topic, one.partition, offset)
