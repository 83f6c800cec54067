"""Producers of Kafka: one that sends records as they come, and one that writes them in transactions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from headrace.connectors.kafka.clients import (
    REQUEST_TIMEOUT_S,
    KafkaFencedError,
    KafkaRecord,
    create_producer,
    kafka_client,
)
from headrace.connectors.kafka.unanswered import ClientLog

WRITE_TIMEOUT_S: Final = 120.0
"""How long brokers may take to acknowledge what waits, or to commit a transaction."""
_MESSAGE_TIMEOUT_MS: Final = 300_000
"""librdkafka's own, for `message.timeout.ms`."""


class RecordProducer:
    """Sends records without transactions; `flush` says whether all have arrived. One thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config: Final = config
        self._log: Final = ClientLog()
        self._producer = create_producer({**config, "logger": self._log.logger})
        self._errors: list[Any] = []

    def send(self, record: KafkaRecord) -> None:
        """Queue a record; waits where the queue is full. KafkaError where an earlier one did not arrive."""
        self._raise_errors()
        produce_record(self._producer, record, self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything has arrived. KafkaError where it does not."""
        left = self._producer.flush(WRITE_TIMEOUT_S)
        self._raise_errors()
        if left:
            reason = f"{left} records were not acknowledged"
            raise self._log.silence_of(self._producer, self._config, reason, WRITE_TIMEOUT_S)

    def close(self) -> None:
        """Drop what has not been sent."""
        self._producer.purge()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def _raise_errors(self) -> None:
        if self._errors:
            timeout_s = float(self._config.get("message.timeout.ms", _MESSAGE_TIMEOUT_MS)) / 1000
            raise self._log.error_of(self._producer, self._config, self._errors[0], timeout_s)


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
        self._config: Final = config
        self._log: Final = ClientLog()
        own = {"transactional.id": transactional_id, "logger": self._log.logger}
        self._producer = create_producer({**config, **own})
        self._call(self._producer.init_transactions, REQUEST_TIMEOUT_S)

    def write(self, records: Iterable[KafkaRecord]) -> None:
        """Write all of them, or nothing that readers of committed records see.

        After an error nobody knows: ask the topics, with another producer. KafkaFencedError, KafkaError.
        """
        self._call(self._producer.begin_transaction)
        for record in records:
            self._call(produce_record, self._producer, record)
        self._call(self._producer.commit_transaction, WRITE_TIMEOUT_S)

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
            if cause.code() in fenced:
                raise KafkaFencedError(f"Kafka: {cause}") from error
            raise self._log.error_of(self._producer, self._config, cause) from error
