"""Brokers that speak Kafka's protocol over TCP, in a process of their own: librdkafka's mock cluster.

    python -m tests.integration.kafka.mock_cluster 3 numbers

starts three brokers with a topic, prints their addresses on one line, and ends with its standard input. They make
topics of four partitions when they are first asked for one, keep offsets of groups, and answer all requests of
transactions. They do not hold back what is not committed, abort nothing, shut nobody out, compact nothing, create no
topic on command and look up no times: what depends on that is tested against a model
(tests/unit/connectors/kafka/test_kafka_sink.py, test_kafka_source.py).
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from confluent_kafka import Producer

from headrace.connectors.kafka.clients import KafkaRecord
from headrace.connectors.kafka.sink import CONTROL_TOPIC
from headrace.connectors.kafka.transaction_commit import read_to_end
from headrace.connectors.kafka.writers import RecordProducer

PARTITIONS = range(4)
"""Those of each topic that the brokers make when somebody asks for it."""


@contextlib.contextmanager
def running_cluster(*topics: str) -> Iterator[str]:
    """Start two brokers that have these topics, hand out their addresses, and stop them."""
    command = [sys.executable, "-m", "tests.integration.kafka.mock_cluster", "2", *topics]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        servers = process.stdout.readline().strip()
        assert servers, "the mock cluster did not start"
        yield servers
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def send(servers: str, topic: str, values: Sequence[str]) -> None:
    """Write values to the partitions of a topic in turn."""
    producer = RecordProducer({"bootstrap.servers": servers, "linger.ms": 0})
    for number, value in enumerate(values):
        producer.send(KafkaRecord(topic, None, value.encode(), number % len(PARTITIONS)))
    producer.flush()


def values_in(servers: str, topic: str) -> list[str]:
    """Every value of a topic, partition by partition."""
    found: list[str] = []
    for partition in PARTITIONS:
        records = read_to_end({"bootstrap.servers": servers}, topic, partition)
        found += [record.value.decode() for record in records if record.value is not None]
    return found


def serve(broker_count: int, topics: Sequence[str]) -> None:
    """Run brokers until standard input ends."""
    owner = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": broker_count})
    # They cannot create topics when they are told to, only when one is asked for.
    for topic in (CONTROL_TOPIC, *topics):
        owner.list_topics(topic, timeout=10)
    brokers = owner.list_topics(timeout=10).brokers.values()
    print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
