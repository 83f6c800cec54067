"""Source and sink against brokers that speak the protocol, through the client library as it really is."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from headrace.connectors.kafka.clients import KafkaRecord
from headrace.connectors.kafka.staged_records import KafkaPayload
from headrace.connectors.kafka.transaction_commit import (
    Brokers,
    KafkaCommitter,
    last_ids,
)
from headrace.connectors.kafka.writers import TransactionalProducer
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from headrace.functions.serialization import SerializationSchema, SimpleStringSchema
from headrace.functions.sink import DeliveryGuarantee
from testkit.exactly_once import compare_output
from tests.integration.kafka.mock_cluster import PARTITIONS, running_cluster, send, values_in
from tests.unit.connectors.connector_contexts import ConnectorContext
from tests.unit.connectors.replays import SourceJob
from tests.unit.connectors.sink_world import SinkWorld

pytestmark = pytest.mark.integration
TEXT = Types.STRING()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with running_cluster() as addresses:
        yield addresses


@pytest.fixture(scope="module")
def names() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topic(names: Iterator[int]) -> str:
    return f"topic-{next(names)}"


class Key(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return str(element).split(":")[0].encode()


def sink_of(servers: str, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_key_serialization_schema(Key()).set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_delivery_guarantee(guarantee)
    builder.set_property("linger.ms", "0").set_transactional_id_prefix(topic)
    return builder.set_record_serializer(schema.build()).build()


def world_of(servers: str, topic: str) -> SinkWorld:
    sink = sink_of(servers, topic, DeliveryGuarantee.EXACTLY_ONCE)
    committer = sink.committer()
    assert committer is not None
    payload: Any = msgspec.msgpack.decode(committer[1], type=KafkaPayload)
    return SinkWorld(
        sink,
        TEXT,
        lambda: KafkaCommitter(payload, Brokers(payload.config)),
        lambda s, n: f"{s}:{n}",
        lineage=topic,
    )


def test_checkpoints_are_transactions_and_a_new_driver_knows_which_were_written(
    servers: str, topic: str
) -> None:
    world = world_of(servers, topic)
    world.write(0, 3)
    world.write(1, 2)
    checkpoint_id = world.publish()
    assert world.latest is not None
    contents = list(world.latest.pending[checkpoint_id])
    world.commit()
    world.crash()
    world.committer.commit(f"{topic}/sink/{checkpoint_id}", checkpoint_id, contents)
    world.write(0, 2)
    world.publish()
    world.crash()
    world.write(1, 1)
    world.finish()
    verdict = compare_output(
        world.expected,
        values_in(servers, topic),
        key_of=lambda text: text.split(":")[0],
        position_of=lambda text: int(text.split(":")[1]),
    )
    assert verdict.is_exact, verdict
    control = Brokers({"bootstrap.servers": servers}).control_records("headrace-commits")
    assert last_ids(control)[f"{topic}/sink"] == world.next_id - 1


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
def test_records_are_sent_as_they_come_where_that_is_wanted(
    servers: str, topic: str, guarantee: DeliveryGuarantee
) -> None:
    writer = sink_of(servers, topic, guarantee).create_writer(ConnectorContext(TEXT))
    writer.write_batch(RecordBatch.of_rows(BatchType(TEXT), ["a:1", "b:1", "a:2"]))
    writer.flush(end_of_input=True)
    writer.close()
    found = values_in(servers, topic)
    assert Counter(found) == Counter(["a:1", "b:1", "a:2"])
    assert found.index("a:1") < found.index("a:2")


def test_a_transaction_whose_records_cannot_be_read_is_aborted(servers: str, topic: str) -> None:
    config = {"bootstrap.servers": servers, "linger.ms": 0}
    producer = TransactionalProducer(config, f"id-{topic}")

    def records() -> Iterator[KafkaRecord]:
        yield KafkaRecord(topic, None, b"begun")
        raise FileNotFoundError("the second one")

    with pytest.raises(FileNotFoundError, match="the second one"):
        producer.write(records())
    # A client with an open transaction begins no other.
    producer.write([KafkaRecord(topic, None, b"whole")])
    producer.close()
    assert "whole" in values_in(servers, topic)


def source_of(servers: str, topic: str, **more: Any) -> Any:
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def poll_until(job: SourceJob, is_done: Callable[[], bool]) -> None:
    """Poll until something holds; the client fetches on threads of its own, so how often is anybody's guess."""
    for _ in range(2_000_000):
        if is_done():
            return
        job.poll()
    raise AssertionError(f"gave up with {len(job.rows)} records")


def test_a_bounded_source_reads_every_partition_to_its_end(servers: str, topic: str) -> None:
    values = [f"value-{number}" for number in range(500)]
    send(servers, topic, values)
    builder = source_of(servers, topic).set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
    job = SourceJob(source, 2, source.produced_type)
    poll_until(job, lambda: all(job.has_ended))
    job.close()
    assert Counter(job.rows) == Counter(values)


def test_a_restarted_source_goes_on_behind_its_checkpoint(servers: str, topic: str) -> None:
    values = [f"value-{number}" for number in range(100)]
    send(servers, topic, values[:40])
    source = source_of(servers, topic).set_group_id("watchers").build()
    first = SourceJob(source, 1, source.produced_type)
    poll_until(first, lambda: len(first.rows) == 40)
    snapshot = first.checkpoint(1)
    for reader in first.readers:
        reader.notify_checkpoint_complete(1)
    send(servers, topic, values[40:])
    poll_until(first, lambda: len(first.rows) > 40)
    first.close()
    second = SourceJob(source, 2, source.produced_type, snapshot, owners=(0, 1))
    poll_until(second, lambda: len(second.rows) == 60)
    second.close()
    assert Counter(first.rows[:40] + second.rows) == Counter(values)


def test_a_source_begins_where_its_group_was(servers: str, topic: str) -> None:
    send(servers, topic, ["a", "b", "c", "d", "e"])
    config = {"bootstrap.servers": servers, "group.id": f"group-{topic}"}
    from confluent_kafka import Consumer, TopicPartition

    group = Consumer({**config, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, one, 1) for one in PARTITIONS]
    group.commit(offsets=offsets, asynchronous=False)
    group.close()
    builder = source_of(servers, topic).set_group_id(config["group.id"])
    builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
    job = SourceJob(source, 1, source.produced_type)
    poll_until(job, lambda: all(job.has_ended))
    job.close()
    assert job.rows == ["e"]


def test_partitions_and_offsets_can_be_named(servers: str, topic: str) -> None:
    send(servers, topic, [str(number) for number in range(8)])
    where = KafkaTopicPartition(topic, 2)
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_partitions({where})
    builder.set_value_only_deserializer(SimpleStringSchema())
    builder.set_starting_offsets(KafkaOffsetsInitializer.offsets({where: 1}))
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
    job = SourceJob(source, 1, source.produced_type)
    poll_until(job, lambda: all(job.has_ended))
    job.close()
    assert job.rows == ["6"]
