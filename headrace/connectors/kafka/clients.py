"""Clients of Kafka: imports confluent-kafka, when it is first needed, and wraps the used parts of it.

Configurations are those of librdkafka, which has most of the Java client's names. librdkafka only logs why brokers do
not answer, at every attempt: ClientLog keeps that reason for the error.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.connectors.kafka.offsets import KafkaTopicPartition
from headrace.core.errors import ErrorDomain, HeadraceError, HostError

REQUEST_TIMEOUT_S: Final = 30.0
"""Time for brokers to answer one request."""
_LOG: Final = logging.getLogger(__name__)
_FAILURE: Final = re.compile(r"\]: (?:\S+: )?(?P<reason>.+?)(?: \(after \d+ms in state .*)?$")


class KafkaClientMissingError(HostError):
    """Raised if confluent-kafka is needed but not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the Kafka source and sink need confluent-kafka in the driver and on every worker: "
            "pip install 'headrace[kafka]'"
        )


class KafkaError(HeadraceError):
    """Raised if the brokers refused a request, or did not answer."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class KafkaFencedError(KafkaError):
    """Raised if another producer has taken over the transactional id: another driver commits for this sink."""

    recoverable = False


class RecordsExpiredError(KafkaError):
    """Raised if the control topic has lost records, so that it is unknown which checkpoints were written."""

    recoverable = False


class ControlRecordError(KafkaError):
    """Raised if the control topic holds a foreign record, so that it is unknown which checkpoints were written."""

    recoverable = False

    def __init__(self, topic: str, offset: int) -> None:
        super().__init__(
            f"the topic '{topic}' holds a record at offset {offset} that no Headrace sink wrote, so the last commit "
            "is unknown: check who has write access to the topic, and write a record with the same key and no value "
            "after it"
        )


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


def client_partition(partition: KafkaTopicPartition, offset: int | None = None) -> Any:
    """Return the client's confluent_kafka.TopicPartition, with an offset if one is given."""
    library = kafka_client()
    where = library.OFFSET_INVALID if offset is None else offset
    return library.TopicPartition(partition.topic, partition.partition, where)


def create_producer(config: Mapping[str, Any]) -> Any:
    """Return a confluent_kafka.Producer."""
    return kafka_client().Producer(dict(config))


class KafkaUnreachableError(KafkaError):
    """Raised if none of the brokers that the program names has answered."""

    def __init__(self, servers: str, reason: str, timeout_s: float) -> None:
        super().__init__(
            f"Kafka did not answer at {servers} within {timeout_s:.0f} s: {reason}; check that it runs there, and "
            "that the driver and every worker reach it under that name (bootstrap.servers)"
        )
        self.servers = servers


class ClientLog(logging.Handler):
    """Keeps the log of a client, which would print a line for each attempt: pass it to the client as `logger`."""

    def __init__(self) -> None:
        super().__init__()
        # Only the client refers to it, so that it is freed with the client.
        self.logger: Final = logging.Logger("librdkafka")
        self.logger.addHandler(self)
        self._last = self._last_error = ""
        self._is_silence_logged = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the last line."""
        self._last = record.getMessage()
        if record.levelno >= logging.ERROR:
            self._last_error = self._last

    def error_of(
        self,
        client: Any,
        config: Mapping[str, Any],
        cause: Any,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> KafkaError:
        """Return the error to raise for an error of `client`, with the reason from its log."""
        library = kafka_client()
        silent = (
            library.KafkaError._TRANSPORT,
            library.KafkaError._TIMED_OUT,
            library.KafkaError._MSG_TIMED_OUT,
            library.KafkaError._ALL_BROKERS_DOWN,
            library.KafkaError._RESOLVE,
        )
        if cause.code() in silent:
            return self.silence_of(client, config, cause.str(), timeout_s)
        return KafkaError(f"Kafka: {cause.str()} (at {config['bootstrap.servers']})")

    def tell_silence(self, config: Mapping[str, Any]) -> None:
        """Warn, once until `answered`, that a broker does not answer; for a client that keeps trying."""
        found = _FAILURE.search(self._last_error)
        if found and not self._is_silence_logged:
            self._is_silence_logged = True
            servers = config["bootstrap.servers"]
            _LOG.warning(
                "a broker of Kafka at %s fails: %s; trying again", servers, found["reason"]
            )

    def answered(self) -> None:
        """Forget errors from before records arrived; log the recovery if `tell_silence` has warned."""
        self._last_error = ""
        if self._is_silence_logged:
            self._is_silence_logged = False
            _LOG.warning("Kafka sends records again")

    def silence_of(
        self, client: Any, config: Mapping[str, Any], what: str, timeout_s: float
    ) -> KafkaUnreachableError:
        """Return the error to raise if no answer came; `what` is the reason if the log has none."""
        client.poll(0)  # lines wait for the next poll
        found = _FAILURE.search(self._last)
        reason = found["reason"] if found else what
        return KafkaUnreachableError(str(config["bootstrap.servers"]), reason, timeout_s)
