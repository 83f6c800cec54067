"""KafkaEnumerator: finds partitions, sets where reading begins and ends in them, and assigns each to its reader.

Source: Flink KafkaSourceEnumerator.
"""

import contextlib
import logging
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.connectors.kafka.clients import (
    REQUEST_TIMEOUT_S,
    ClientLog,
    KafkaError,
    client_partition,
    create_consumer,
    kafka_client,
)
from headrace.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaPartitionSplit,
    KafkaTopicPartition,
    OffsetKind,
    owner_of,
)
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.functions.source import (
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from headrace.metrics.cluster_names import UNASSIGNED_SPLITS

_LOG = logging.getLogger(__name__)


class KafkaEnumeration(msgspec.Struct, frozen=True):
    """Configuration of the enumerator. One of `topics`, `topic_pattern` and `partitions` is set.

    `discovery_interval_ms`: the interval at which it looks for new partitions, which are read from their beginning;
    None: once.
    """

    config: dict[str, str]
    topics: tuple[str, ...]
    topic_pattern: str
    partitions: tuple[KafkaTopicPartition, ...]
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    discovery_interval_ms: int | None


class KafkaEnumeratorState(msgspec.Struct, frozen=True):
    """Unassigned splits, and all partitions found so far; None before the first look-up."""

    splits: tuple[SourceSplit, ...]
    known: tuple[KafkaTopicPartition, ...] | None


class NoOffsetError(HeadraceError):
    """Raised if a partition has no offset to begin with, and the program names no fallback."""

    domain, recoverable = ErrorDomain.USER, False


class KafkaEnumerator(SplitEnumerator):
    """Assigns partitions to readers by their names, as soon as the readers are registered."""

    def __init__(
        self,
        context: SplitEnumeratorContext,
        enumeration: KafkaEnumeration,
        lookup: "BrokerLookup",
    ) -> None:
        self._context: Final = context
        self._enumeration: Final = enumeration
        self._lookup: Final = lookup
        self._waiting: dict[KafkaTopicPartition, SourceSplit] = {}
        self._is_failure_logged = False
        self._known: set[KafkaTopicPartition] | None = None
        context.metric_group.gauge(UNASSIGNED_SPLITS.name, lambda: len(self._waiting))

    def restore(self, state: bytes) -> None:
        restored = msgspec.msgpack.decode(state, type=KafkaEnumeratorState)
        self._keep(restored.splits)
        self._known = None if restored.known is None else set(restored.known)

    def start(self) -> None:
        if self._known is None or self._enumeration.discovery_interval_ms is not None:
            self._look(0)

    def handle_split_request(self, subtask_index: int, host: str) -> None:
        """Do nothing: readers get their partitions without asking."""

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self._keep(splits)
        self._assign([subtask_index])

    def add_reader(self, subtask_index: int) -> None:
        self._assign([subtask_index])

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        known = None if self._known is None else tuple(sorted(self._known))
        return msgspec.msgpack.encode(KafkaEnumeratorState(tuple(self._waiting.values()), known))

    def _look(self, delay_ms: float) -> None:
        known = None if self._known is None else frozenset(self._known)
        self._context.call_async(lambda: self._new_splits(known), self._found, delay_ms=delay_ms)

    def _new_splits(
        self, known: frozenset[KafkaTopicPartition] | None
    ) -> Sequence[KafkaPartitionSplit]:
        """Ask the brokers for new partitions, on a thread that may block."""
        new = [one for one in self._lookup.partitions() if known is None or one not in known]
        # What is found later came into being while the job ran, and is read whole.
        starting = KafkaOffsetsInitializer.earliest() if known else self._enumeration.starting
        begins = self._lookup.offsets(new, starting) if new else {}
        stopping = self._enumeration.stopping
        ends = self._lookup.offsets(new, stopping) if new and stopping else {}
        return [KafkaPartitionSplit(one, begins[one], ends.get(one)) for one in new]

    def _found(
        self, splits: Sequence[KafkaPartitionSplit] | None, error: BaseException | None
    ) -> None:
        if splits is None:
            assert error is not None
            if self._known is None:
                raise error
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _LOG.warning("looking for new partitions failed and will be repeated: %s", error)
        else:
            self._is_failure_logged = False
            self._known = (self._known or set()) | {split.partition for split in splits}
            self._keep(split.encoded() for split in splits)
            self._assign(self._context.registered_readers)
        if self._enumeration.discovery_interval_ms is not None:
            self._look(self._enumeration.discovery_interval_ms)

    def _keep(self, splits: Iterable[SourceSplit]) -> None:
        for split in splits:
            self._waiting[KafkaPartitionSplit.decoded(split).partition] = split

    def _assign(self, readers: Sequence[int]) -> None:
        """Assign partitions to their readers; tell them that there are no more unless discovery goes on."""
        registered = self._context.registered_readers
        for reader in readers:
            if reader not in registered:
                continue
            mine = [
                one
                for one in sorted(self._waiting)
                if owner_of(one, self._context.parallelism) == reader
            ]
            if mine:
                self._context.assign_splits(reader, [self._waiting.pop(one) for one in mine])
            if self._known is not None and self._enumeration.discovery_interval_ms is None:
                self._context.signal_no_more_splits(reader)


class BrokerLookup:
    """Looks partitions and offsets up at the brokers. Makes a consumer for each question: they are rare. May block."""

    def __init__(self, enumeration: KafkaEnumeration) -> None:
        self._enumeration = enumeration

    def partitions(self) -> Sequence[KafkaTopicPartition]:
        """Return the existing partitions of the source's topics."""
        wanted = self._enumeration
        if wanted.partitions:
            return wanted.partitions
        with _asking(wanted.config) as consumer:
            topics = consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics
            names = wanted.topics or sorted(
                name for name in topics if re.fullmatch(wanted.topic_pattern, name)
            )
            missing = [name for name in names if name not in topics]
            for name in missing:
                # Asked for by name, a topic is made by brokers that make topics on demand.
                topics |= consumer.list_topics(name, timeout=REQUEST_TIMEOUT_S).topics
            for name in names:
                if topics[name].error is not None:
                    raise KafkaError(f"Kafka: {topics[name].error} (topic '{name}')")
            return [
                KafkaTopicPartition(name, one) for name in names for one in topics[name].partitions
            ]

    def offsets(
        self, partitions: Sequence[KafkaTopicPartition], which: KafkaOffsetsInitializer
    ) -> Mapping[KafkaTopicPartition, int]:
        """Resolve the initializer to current offsets."""
        with _asking(self._enumeration.config) as consumer:
            return OffsetQuestions(consumer, partitions).ask(which)


class OffsetQuestions:
    """Asks a consumer for the offsets of some partitions."""

    def __init__(self, consumer: Any, partitions: Sequence[KafkaTopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = partitions

    def ask(self, which: KafkaOffsetsInitializer) -> dict[KafkaTopicPartition, int]:
        """Return an offset for every partition; NoOffsetError if there is none, and `reset` is NONE."""
        found: dict[KafkaTopicPartition, int] = {}
        if which.kind is OffsetKind.COMMITTED:
            found = self._committed()
        elif which.kind is OffsetKind.TIMESTAMP:
            found = self._at_time(which.timestamp_ms)
        elif which.kind is OffsetKind.GIVEN:
            found = dict(which.given)
        return {
            one: found[one] if found.get(one, -1) >= 0 else self._reset(one, which.reset)
            for one in self._partitions
        }

    def _reset(self, partition: KafkaTopicPartition, reset: KafkaOffsetResetStrategy) -> int:
        if reset is KafkaOffsetResetStrategy.NONE:
            raise NoOffsetError(
                f"the consumer group has committed no offset for partition {partition.partition} of "
                f"'{partition.topic}': use committed_offsets(KafkaOffsetResetStrategy.EARLIEST) or LATEST"
            )
        low, high = self._consumer.get_watermark_offsets(
            client_partition(partition), timeout=REQUEST_TIMEOUT_S
        )
        return low if reset is KafkaOffsetResetStrategy.EARLIEST else high

    def _committed(self) -> dict[KafkaTopicPartition, int]:
        wanted = [client_partition(one) for one in self._partitions]
        return _offsets(self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S))

    def _at_time(self, timestamp_ms: int) -> dict[KafkaTopicPartition, int]:
        wanted = [client_partition(one, timestamp_ms) for one in self._partitions]
        return _offsets(self._consumer.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT_S))


@contextlib.contextmanager
def _asking(config: Mapping[str, str]) -> Generator[Any, None, None]:
    """Yield a consumer for a few requests. KafkaError, KafkaUnreachableError."""
    log = ClientLog()
    consumer = create_consumer({**config, "enable.auto.commit": False, "logger": log.logger})
    try:
        yield consumer
    except kafka_client().KafkaException as error:
        raise log.error_of(consumer, config, error.args[0]) from error
    finally:
        consumer.close()


def _offsets(answers: Sequence[Any]) -> dict[KafkaTopicPartition, int]:
    for answer in answers:
        if answer.error is not None:
            raise KafkaError(f"Kafka: {answer.error} ({answer.topic}-{answer.partition})")
    return {KafkaTopicPartition(one.topic, one.partition): one.offset for one in answers}


def create_kafka_enumerator(context: SplitEnumeratorContext, payload: bytes) -> KafkaEnumerator:
    """Make the enumerator of a KafkaSource; the entry point of KAFKA_ENUMERATOR."""
    enumeration = msgspec.msgpack.decode(payload, type=KafkaEnumeration)
    return KafkaEnumerator(context, enumeration, BrokerLookup(enumeration))
