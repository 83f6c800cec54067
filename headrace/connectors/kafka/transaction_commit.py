"""KafkaCommitter: writes the records of a checkpoint in one transaction, together with a record of its id.

A transaction is open only while it is written: none stays open while a job is down, so none can time out and lose data,
and readers of committed records do not wait. A transaction that an earlier driver left open is aborted when the
producer is made. The record is written to the sink's control topic, which `Brokers` creates if it is missing and reads
from beginning to end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from headrace.connectors.files.sink.note_file import digest_of_scope
from headrace.connectors.kafka.clients import (
    REQUEST_TIMEOUT_S,
    ClientLog,
    ControlRecordError,
    KafkaRecord,
    RecordsExpiredError,
    create_consumer,
    kafka_client,
)
from headrace.connectors.kafka.staged_records import (
    STAGED,
    KafkaPayload,
    StagedRecords,
    delete_all_staged,
    delete_older_attempts,
    delete_staged,
    staged_records,
    staging_folder,
)
from headrace.connectors.kafka.writers import TransactionalProducer
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.functions.sink import CommitterContext, scope_of

CONTROL_PARTITION: Final = 0
_PRODUCER_DEFAULTS: Final = {"transaction.timeout.ms": "900000"}
"""The longest transaction timeout that brokers allow by default, because a transaction holds a whole checkpoint."""
_PRODUCER_ONLY: Final = ("acks", "linger.ms", "batch.", "compression.", "enable.idempotence",
                         "transaction.", "partitioner", "message.", "queue.buffering.")  # fmt: skip


def read_to_end(config: Mapping[str, Any], topic: str, partition: int) -> list[KafkaRecord]:
    """Return the committed records of a partition, from its beginning to its current end.

    RecordsExpiredError if the topic has lost its first records; KafkaError.
    """
    library = kafka_client()
    log = ClientLog()
    consumer = create_consumer(
        {
            **config,
            "logger": log.logger,
            "group.id": "headrace-control",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[KafkaRecord] = []
    try:
        where = library.TopicPartition(topic, partition, library.OFFSET_BEGINNING)
        begin, _ = consumer.get_watermark_offsets(where, timeout=REQUEST_TIMEOUT_S)
        if begin > 0:
            # Compaction does not change the beginning of a partition.
            raise RecordsExpiredError(
                f"the topic '{topic}' has dropped its records before {begin}, so it no longer shows what was written: "
                "its cleanup.policy must be compact"
            )
        consumer.assign([where])
        while True:
            message = consumer.poll(REQUEST_TIMEOUT_S)
            if message is None:
                reason = f"the end of '{topic}' was not reached"
                raise log.silence_of(consumer, config, reason, REQUEST_TIMEOUT_S)
            error = message.error()
            if error is None:
                found.append(
                    KafkaRecord(
                        topic, message.key(), message.value(), partition, None, message.offset()
                    )
                )
            elif error.code() == library.KafkaError._PARTITION_EOF:
                return found
            elif error.code() != library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise log.error_of(consumer, config, error)
    except library.KafkaException as error:
        raise log.error_of(consumer, config, error.args[0]) from error
    finally:
        consumer.close()


def ensure_compacted_topic(config: Mapping[str, Any], topic: str) -> None:
    """Create a topic of one partition that keeps the last record of each key, unless it exists. KafkaError."""
    library = kafka_client()
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    log = ClientLog()
    settings: dict[str, Any] = {**config, "logger": log.logger}
    admin = AdminClient(settings)
    try:
        if topic in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
            return
        wanted = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})
        admin.create_topics([wanted])[topic].result(REQUEST_TIMEOUT_S)
    except TimeoutError as error:
        reason = f"the topic '{topic}' was not created"
        raise log.silence_of(admin, config, reason, REQUEST_TIMEOUT_S) from error
    except library.KafkaException as error:
        cause = error.args[0]
        if cause.code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
            raise log.error_of(admin, config, cause) from error


class StagedRecordsLostError(HeadraceError):
    """Raised if records of a checkpoint are missing, and the control topic does not show that they were written."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class Producer(Protocol):
    """The used methods of a TransactionalProducer."""

    def write(self, records: Iterable[KafkaRecord]) -> None:
        """Write all of them in one transaction."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class KafkaCluster(Protocol):
    """The Kafka cluster as the committer uses it."""

    def producer(self, transactional_id: str) -> Producer:
        """Make a producer; every earlier one of the id is fenced off."""
        ...

    def control_records(self, topic: str) -> Sequence[KafkaRecord]:
        """Create the control topic if needed, and return the committed records of its only partition in order."""
        ...


class Brokers:
    """KafkaCluster with real brokers."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def producer(self, transactional_id: str) -> Producer:
        return TransactionalProducer({**_PRODUCER_DEFAULTS, **self._config}, transactional_id)

    def control_records(self, topic: str) -> Sequence[KafkaRecord]:
        ensure_compacted_topic(_without_producer_settings(self._config), topic)
        return read_to_end(_without_producer_settings(self._config), topic, CONTROL_PARTITION)


class KafkaCommitter:
    """Commits for one KafkaSink. Implements Committer.

    The producer and the content of the control topic are kept between calls until an error: then the result of the
    transaction is unknown, and the next call reads the topic again.
    """

    def __init__(
        self, payload: KafkaPayload, cluster: KafkaCluster, settings: Settings | None = None
    ) -> None:
        """`settings`: the job's settings, with the folder for staged records."""
        self._payload: Final = payload
        self._cluster: Final = cluster
        self._settings: Final = settings or Settings()
        self._is_in_doubt = False
        self._producer: Producer | None = None
        self._last_ids: dict[str, int] = {}
        self._scope = ""
        self._swept: set[tuple[int, int]] = set()

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        """Write a checkpoint's staged records in one transaction, unless they were committed before.

        Raises KafkaFencedError if another driver commits, or StagedRecordsLostError.
        """
        staged = [STAGED.decode(content) for content in committables]
        if not staged:
            return
        scope = scope_of(key)
        try:
            producer = self._connected(scope)
            if checkpoint_id > self._last_ids.get(scope, -1):
                self._is_in_doubt = True
                producer.write(self._records(scope, checkpoint_id, staged))
                self._last_ids[scope] = checkpoint_id
            self._is_in_doubt = False
        except BaseException:
            self.close()
            raise
        delete_staged(staged)
        self._sweep(staged)

    def last_committed(self, scope: str) -> int | None:
        """Return a scope's highest committed checkpoint id, or None. Fences off earlier drivers, as a commit does."""
        try:
            self._connected(scope)
        except BaseException:
            self.close()
            raise
        return self._last_ids.get(scope)

    def delete_leftovers(self, scope: str, owner: str) -> None:
        """Delete files of staged records, and abort the transaction that a failed commit may have left open."""
        try:
            folder = staging_folder(self._settings, owner)
            if folder:
                delete_all_staged(folder)
        finally:
            if self._is_in_doubt:
                self.last_committed(scope)  # a new producer aborts it
                self._is_in_doubt = False

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _connected(self, scope: str) -> Producer:
        """Return a producer of this scope's transactional id.

        Afterwards no other producer can write under the scope.
        """
        if self._producer is None or self._scope != scope:
            self.close()
            prefix = self._payload.transactional_id_prefix
            self._producer = self._cluster.producer(f"{prefix}-{digest_of_scope(scope)}")
            self._scope = scope
            # Read after earlier producers were fenced off, so that the content cannot change any more.
            self._last_ids = last_ids(self._cluster.control_records(self._payload.control_topic))
        return self._producer

    def _records(
        self, scope: str, checkpoint_id: int, staged: Sequence[StagedRecords]
    ) -> Iterator[KafkaRecord]:
        """Yield the records of a transaction: those of the checkpoint in order, and the marker."""
        for one in staged:
            try:
                yield from staged_records(one)
            except FileNotFoundError as error:
                raise StagedRecordsLostError(
                    f"records of checkpoint {checkpoint_id} are missing ({error}), and the topic "
                    f"'{self._payload.control_topic}' does not show that they were written"
                ) from error
        yield KafkaRecord(
            self._payload.control_topic,
            scope.encode(),
            str(checkpoint_id).encode(),
            CONTROL_PARTITION,
        )

    def _sweep(self, staged: Sequence[StagedRecords]) -> None:
        """Delete files of attempts before those of `staged`, which no checkpoint has because ids commit in order."""
        for one in staged:
            attempt = (one.subtask_index, one.attempt_number)
            if one.path and one.attempt_number > 0 and attempt not in self._swept:
                self._swept.add(attempt)
                delete_older_attempts(one)


def last_ids(records: Sequence[KafkaRecord]) -> dict[str, int]:
    """Return the highest id that a control topic names for each scope. ControlRecordError."""
    found: dict[str, int] = {}
    unknown: dict[bytes, KafkaRecord] = {}
    for record in records:
        if not record.key:
            continue
        if not record.value:
            unknown.pop(record.key, None)
            continue
        try:
            scope, last_id = record.key.decode(), int(record.value)
        except ValueError:
            unknown[record.key] = record
        else:
            found[scope] = max(found.get(scope, -1), last_id)
    for record in unknown.values():
        raise ControlRecordError(record.topic, record.offset)
    return found


def create_kafka_committer(context: CommitterContext, payload: bytes) -> KafkaCommitter:
    """Make the committer of a KafkaSink; the entry point `kafka`."""
    decoded: Any = msgspec.msgpack.decode(payload, type=KafkaPayload)
    kafka_client()  # whether it is there is better known before the first commit
    return KafkaCommitter(decoded, Brokers(decoded.config), context.settings)


def _without_producer_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are valid for a consumer too; librdkafka warns of others."""
    return {key: value for key, value in config.items() if not key.startswith(_PRODUCER_ONLY)}
