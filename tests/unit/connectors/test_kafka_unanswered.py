"""Brokers that do not answer: the error says where they were looked for, and why in vain; once."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from headrace.connectors.kafka import enumerator
from headrace.connectors.kafka.clients import KafkaError
from headrace.connectors.kafka.enumerator import BrokerLookup, KafkaEnumeration
from headrace.connectors.kafka.offsets import KafkaOffsetsInitializer
from headrace.connectors.kafka.unanswered import KafkaUnreachableError

REFUSED = (
    "FAIL [rdkafka#consumer-1] [thrd:kafka:9092/bootstrap]: kafka:9092/bootstrap: Connect to ipv4#10.0.0.7:9092 "
    "failed: Connection refused (after 0ms in state CONNECT)"
)


class SilentBrokers:
    """A consumer whose questions fail as `code` says; its log comes when it is polled, as librdkafka's."""

    def __init__(self, logger: logging.Logger, code: int, lines: list[str]) -> None:
        self.logger = logger
        self.code = code
        self.lines = lines
        self.is_closed = False

    def list_topics(self, topic: str | None = None, timeout: float = 0) -> Any:
        raise KafkaException(ClientError(self.code))

    def poll(self, timeout: float) -> None:
        for line in self.lines:
            self.logger.error(line)

    def close(self) -> None:
        self.is_closed = True


def failure(
    monkeypatch: pytest.MonkeyPatch, code: int, *lines: str
) -> tuple[KafkaError, SilentBrokers]:
    made: list[SilentBrokers] = []

    def create(config: Mapping[str, Any]) -> SilentBrokers:
        made.append(SilentBrokers(config["logger"], code, [*lines]))
        return made[-1]

    monkeypatch.setattr(enumerator, "create_consumer", create)
    earliest = KafkaOffsetsInitializer.earliest()
    wanted = KafkaEnumeration(
        {"bootstrap.servers": "kafka:9092"}, ("t",), "", (), earliest, None, None
    )
    with pytest.raises(KafkaError) as failed:
        BrokerLookup(wanted).partitions()
    return failed.value, made[0]


def test_the_servers_and_the_reason_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    error, brokers = failure(monkeypatch, ClientError._TRANSPORT, REFUSED, REFUSED)
    assert isinstance(error, KafkaUnreachableError)
    assert str(error) == (
        "Kafka did not answer at kafka:9092 within 30 s: Connect to ipv4#10.0.0.7:9092 failed: Connection refused; "
        "see whether it runs there, and whether the driver and every worker reach it under that name "
        "(bootstrap.servers)"
    )
    assert brokers.is_closed
    assert capfd.readouterr() == ("", "")


def test_without_a_log_the_client_s_own_words_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = failure(monkeypatch, ClientError._TIMED_OUT)
    assert str(error).startswith("Kafka did not answer at kafka:9092 within 30 s: ")
    assert ClientError(ClientError._TIMED_OUT).str() in str(error)


def test_what_brokers_refuse_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = failure(monkeypatch, ClientError.CLUSTER_AUTHORIZATION_FAILED, REFUSED)
    assert not isinstance(error, KafkaUnreachableError)
    assert str(error).startswith("Kafka: ")
    assert str(error).endswith("(at kafka:9092)")
