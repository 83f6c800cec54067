"""Clients of Kafka: where confluent-kafka is imported, and what of it is used.

Configurations are librdkafka's, which has most of the Java client's names.
"""

from collections.abc import Mapping
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


class ControlRecordError(KafkaError):
    """A topic that must remember holds what no sink wrote. What was written is not guessed."""

    recoverable = False

    def __init__(self, topic: str, offset: int) -> None:
        super().__init__(
            f"the topic '{topic}' holds a record at offset {offset} that no sink of Headrace wrote, so that it cannot "
            "be known what was written: see who may write there, and write a record of the same key without a value "
            "behind it"
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


def create_producer(config: Mapping[str, Any]) -> Any:
    """Return a confluent_kafka.Producer."""
    return kafka_client().Producer(dict(config))
