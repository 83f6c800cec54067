"""Brokers that do not answer: the error says where they were looked for, and why in vain; once."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from headrace.connectors.kafka import enumerator, transaction_commit, writers
from headrace.connectors.kafka.clients import (
    ClientLog,
    KafkaError,
    KafkaRecord,
    KafkaUnreachableError,
)
from headrace.connectors.kafka.enumerator import BrokerLookup, KafkaEnumeration
from headrace.connectors.kafka.offsets import KafkaOffsetsInitializer
from headrace.connectors.kafka.transaction_commit import ensure_compacted_topic, read_to_end
from headrace.connectors.kafka.writers import RecordProducer, TransactionalProducer

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
        "check that it runs there, and that the driver and every worker reach it under that name "
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


NOBODY = {"bootstrap.servers": "127.0.0.1:1"}
"""Where no process of a user's may listen."""


def test_a_record_that_no_broker_takes_is_an_error_with_the_servers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    producer = RecordProducer({**NOBODY, "message.timeout.ms": 1_000})
    producer.send(KafkaRecord("t", b"k", b"v"))
    with pytest.raises(KafkaUnreachableError) as failed:
        producer.flush()
    producer.close()
    said = str(failed.value)
    assert said.startswith("Kafka did not answer at 127.0.0.1:1 within 1 s: Connect to ")
    assert "(bootstrap.servers)" in said
    assert capfd.readouterr() == ("", "")


def test_records_that_still_wait_at_a_checkpoint_name_the_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "WRITE_TIMEOUT_S", 0.05)
    producer = RecordProducer(NOBODY)
    producer.send(KafkaRecord("t", b"k", b"v"))
    with pytest.raises(KafkaUnreachableError, match=r"did not answer at 127\.0\.0\.1:1 "):
        producer.flush()
    producer.close()


def test_a_committer_names_the_servers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "REQUEST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(transaction_commit, "REQUEST_TIMEOUT_S", 0.2)
    expected = r"did not answer at 127\.0\.0\.1:1 .*check that it runs there"
    with pytest.raises(KafkaUnreachableError, match=expected):
        TransactionalProducer(NOBODY, "id")
    with pytest.raises(KafkaUnreachableError, match=expected):
        ensure_compacted_topic(NOBODY, "control")
    with pytest.raises(KafkaUnreachableError, match=expected):
        read_to_end(NOBODY, "control", 0)


def test_a_reader_that_goes_on_trying_says_so_once_and_keeps_the_log_off_standard_error(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log, config = ClientLog(), {"bootstrap.servers": "kafka:9092"}
    log.logger.info(
        "FAIL [rdkafka#consumer-1] [thrd:x]: x: Disconnected (after 600000ms in state UP)"
    )
    log.tell_silence(config)
    assert caplog.messages == []
    for _ in range(3):
        log.logger.error(REFUSED)
        log.tell_silence(config)
    log.answered()
    log.tell_silence(config)
    assert caplog.messages == [
        "a broker of Kafka at kafka:9092 fails: Connect to ipv4#10.0.0.7:9092 failed: Connection refused; trying again",
        "Kafka sends records again",
    ]
    assert capfd.readouterr().err == ""
