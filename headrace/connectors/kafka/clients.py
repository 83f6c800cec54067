"""Clients of Kafka: where confluent-kafka is imported, and what of it is used.

Configurations are librdkafka's, which has most of the Java client's names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.errors import ErrorDomain, HeadraceError, HostError

REQUEST_TIMEOUT_S: Final = 30.0
"""How long one question to the brokers may take."""


class KafkaClientMissingError(HostError):
    """confluent-kafka is not installed where it is needed."""

    def __init__(self) -> None:
        super().__init__(
            "the Kafka source and sink need confluent-kafka in the driver and on every worker: "
            "pip install 'headrace[kafka]'"
        )


class KafkaError(HeadraceError):
    """The brokers refused something, or did not answer."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class KafkaFencedError(KafkaError):
    """Another producer has taken over our transactional id: another driver commits for this sink."""

    recoverable = False


class RecordsExpiredError(KafkaError):
    """A topic that must remember has forgotten. What was written is not guessed."""

    recoverable = False


@dataclass(frozen=True)
class KafkaRecord:
    """One record. `partition`: None lets the client choose by the key. `timestamp_ms`: None for the broker's time."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    offset: int = -1


def kafka_client() -> Any:
    """Return the module `confluent_kafka`."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise KafkaClientMissingError from error
    return confluent_kafka


def create_consumer(config: Mapping[str, Any]) -> Any:
    """Return a confluent_kafka.Consumer."""
    return kafka_client().Consumer(dict(config))


def create_producer(config: Mapping[str, Any]) -> Any:
    """Return a confluent_kafka.Producer."""
    return kafka_client().Producer(dict(config))


class RecordProducer:
    """Sends records without transactions; `flush` says whether all have arrived. One thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = create_producer(config)
        self._errors: list[str] = []

    def send(self, record: KafkaRecord) -> None:
        """Queue a record; waits where the queue is full. KafkaError where an earlier one did not arrive."""
        self._raise_errors()
        produce_record(self._producer, record, self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything has arrived. KafkaError where it does not."""
        left = self._producer.flush(REQUEST_TIMEOUT_S * 4)
        self._raise_errors()
        if left:
            raise KafkaError(f"{left} records were not acknowledged by the brokers in time")

    def close(self) -> None:
        """Drop what has not been sent."""
        self._producer.purge()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(str(error))

    def _raise_errors(self) -> None:
        if self._errors:
            raise KafkaError(f"{len(self._errors)} records were not delivered: {self._errors[0]}")


def produce_record(producer: Any, record: KafkaRecord, delivered: Any = None) -> None:
    """Queue one record; where the queue is full, wait for room."""
    where: dict[str, Any] = {"on_delivery": delivered} if delivered else {}
    if record.partition is not None:
        where["partition"] = record.partition
    if record.timestamp_ms is not None:
        where["timestamp"] = record.timestamp_ms
    while True:
        try:
            producer.produce(record.topic, value=record.value, key=record.key, **where)
            return
        except BufferError:
            producer.poll(0.1)


class TransactionalProducer:
    """Writes records in transactions under one transactional id. One thread.

    Making one shuts out every earlier producer of the id, and aborts what it left open.
    """

    def __init__(self, config: Mapping[str, Any], transactional_id: str) -> None:
        self._producer = create_producer({**config, "transactional.id": transactional_id})
        self._call(self._producer.init_transactions, REQUEST_TIMEOUT_S)

    def write(self, records: Iterable[KafkaRecord]) -> None:
        """Write all of them, or nothing that readers of committed records see.

        After an error nobody knows: ask the topics, with another producer. KafkaFencedError, KafkaError.
        """
        self._call(self._producer.begin_transaction)
        for record in records:
            self._call(produce_record, self._producer, record)
        self._call(self._producer.commit_transaction, REQUEST_TIMEOUT_S * 4)

    def close(self) -> None:
        """Leave; what is open is aborted by the next producer of the id, or by the brokers after a while."""
        self._producer.purge()

    def _call(self, method: Any, *arguments: Any) -> None:
        library = kafka_client()
        try:
            method(*arguments)
        except library.KafkaException as error:
            cause = error.args[0]
            fenced = (library.KafkaError._FENCED, library.KafkaError.PRODUCER_FENCED)
            kind = KafkaFencedError if cause.code() in fenced else KafkaError
            raise kind(f"Kafka: {cause}") from error


def read_to_end(config: Mapping[str, Any], topic: str, partition: int) -> list[KafkaRecord]:
    """Return the committed records of a partition, from its beginning to its present end.

    RecordsExpiredError where the topic no longer has its first ones.
    """
    library = kafka_client()
    consumer = create_consumer(
        {
            **config,
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
            # Compaction leaves the beginning of a partition where it is.
            raise RecordsExpiredError(
                f"the topic '{topic}' has dropped its records before {begin}, so it no longer says what was written: "
                "its cleanup.policy must be compact"
            )
        consumer.assign([where])
        while True:
            message = consumer.poll(REQUEST_TIMEOUT_S)
            if message is None:
                raise KafkaError(f"reading {topic} took longer than {REQUEST_TIMEOUT_S:.0f} s")
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
                raise KafkaError(f"Kafka: {error} (reading {topic})")
    finally:
        consumer.close()


def ensure_compacted_topic(config: Mapping[str, Any], topic: str) -> None:
    """Create a topic of one partition that keeps the last record of each key, unless it is there. KafkaError."""
    library = kafka_client()
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(dict(config))
    try:
        if topic in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
            return
        wanted = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})
        admin.create_topics([wanted])[topic].result(REQUEST_TIMEOUT_S)
    except TimeoutError as error:
        raise KafkaError(f"Kafka: no answer (creating {topic})") from error
    except library.KafkaException as error:
        cause = error.args[0]
        if cause.code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
            raise KafkaError(f"Kafka: {cause} (creating {topic})") from error
