"""The Kafka source against model brokers: every record once, wherever a job dies and however many readers it has."""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.json.json_rows import JsonRowDeserializationSchema
from headrace.connectors.kafka.enumerator import NoOffsetError
from headrace.connectors.kafka.offsets import KafkaPartitionSplit, owner_of
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from headrace.functions.serialization import SimpleStringSchema
from headrace.functions.source import Boundedness
from headrace.graph.pipeline_options import RUNTIME_MODE
from tests.unit.connectors.kafka.model_kafka import ModelLog, creating
from tests.unit.connectors.replays import Life, SourceJob, lives, rows_of

LATEST = KafkaOffsetsInitializer.latest()
EARLIEST = KafkaOffsetsInitializer.earliest()


def builder() -> Any:
    chosen = KafkaSource.builder().set_bootstrap_servers("nowhere:9092").set_topics("t")
    return chosen.set_value_only_deserializer(SimpleStringSchema())


def bounded() -> KafkaSource:
    return builder().set_bounded(LATEST).build()


@pytest.fixture
def log() -> Iterator[ModelLog]:
    made = ModelLog()
    with ModelClients(made):
        yield made


class ModelClients:
    """Readers and enumerators talk to the model while the body of a `with` runs."""

    def __init__(self, log: ModelLog) -> None:
        create = creating(log)
        self._patches = [
            patch(f"headrace.connectors.kafka.{module}.create_consumer", create)
            for module in ("reader", "enumerator")
        ]

    def __enter__(self) -> None:
        for one in self._patches:
            one.start()

    def __exit__(self, *_: object) -> None:
        for one in self._patches:
            one.stop()


def stamps(batch: RecordBatch) -> list[int]:
    assert batch.timestamps is not None
    return batch.timestamps.tolist()


def run(source: KafkaSource, parallelism: int = 1) -> SourceJob:
    job = SourceJob(source, parallelism, source.produced_type)
    job.run_to_end()
    return job


def test_a_bounded_source_reads_what_there_is_when_it_starts(log: ModelLog) -> None:
    log.create("t", 2)
    log.append("t", 0, "a", "b", "c")
    log.append("t", 1, "d")
    job = SourceJob(bounded(), 2, bounded().produced_type)
    log.append("t", 0, "later")
    job.run_to_end()
    assert sorted(job.rows) == ["a", "b", "c", "d"]
    times = [time for o in job.outputs for batch in o.batches for time in stamps(batch)]
    assert sorted(times) == [1000, 1000, 1001, 1002]


@pytest.mark.parametrize("at_a_time", [1, 3, 4, 100])
def test_in_batch_mode_the_batches_are_the_same_however_fast_brokers_answer(
    log: ModelLog, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr("headrace.connectors.kafka.reader.RECORD_COUNT_MAX", 4)
    log.at_a_time = at_a_time
    log.create("t", 3)
    log.append("t", 0, *"abcdefghij")
    log.append("t", 2, *"klmn", gap=1)
    job = SourceJob(
        bounded(), 1, bounded().produced_type, settings=Settings({RUNTIME_MODE.key: "BATCH"})
    )
    log.append("t", 0, "later")
    job.run_to_end()
    batches = ["".join(batch.rows()) for batch in job.outputs[0].batches]
    assert batches == ["abcd", "efgh", "ij", "klmn"]


def test_messages_that_hold_no_record_are_left_out(log: ModelLog) -> None:
    log.create("t", 2)
    log.append("t", 0, '{"n": 1}', "no json", '{"n": 3}')
    log.append("t", 1, "nor this")
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    ignoring = JsonRowDeserializationSchema.builder().type_info(row_type).ignore_parse_errors()
    source = builder().set_value_only_deserializer(ignoring.build()).set_bounded(LATEST).build()
    job = run(source, 2)
    assert [row["n"] for row in job.rows] == [1, 3]
    assert sum(reader.unreadable_record_count() for reader in job.readers) == 2
    assert [time for o in job.outputs for batch in o.batches for time in stamps(batch)] == [
        1000,
        1002,
    ]


def test_an_end_behind_the_mark_of_a_transaction_is_reached(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "a", gap=2)
    assert run(bounded()).rows == ["a"]


def test_records_behind_the_positions_are_counted_once_a_second(log: ModelLog) -> None:
    log.create("t", 2)
    log.append("t", 0, "a", "b", "c")
    log.append("t", 1, "d")
    log.at_a_time = 1
    job = SourceJob(builder().build(), 1, bounded().produced_type)
    (reader,) = job.readers
    job.poll(2)
    assert (job.rows, reader.pending_record_count()) == (["a", "d", "b"], None)
    job.advance(1_000)
    job.poll()
    # Counted before the poll that took it.
    assert (len(job.rows), reader.pending_record_count()) == (4, 1)
    log.append("t", 1, "e", "f")
    job.poll(3)
    assert (len(job.rows), reader.pending_record_count()) == (6, 1)
    job.advance(1_000)
    job.poll()
    assert reader.pending_record_count() == 0
    job.close()


def test_a_bounded_source_counts_up_to_where_it_ends(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "a", "b", "c")
    log.at_a_time = 1
    job = SourceJob(bounded(), 1, bounded().produced_type)
    log.append("t", 0, "later", "last")
    job.advance(1_000)
    job.poll(2)
    (reader,) = job.readers
    assert reader.pending_record_count() == 3
    job.run_to_end()


def test_an_empty_topic_ends_at_once(log: ModelLog) -> None:
    log.create("t", 3)
    assert run(bounded(), 2).rows == []


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        (EARLIEST, "abcd"),
        (LATEST, ""),
        (KafkaOffsetsInitializer.timestamp(1002), "cd"),
        (KafkaOffsetsInitializer.timestamp(9999), ""),
        (KafkaOffsetsInitializer.offsets({KafkaTopicPartition("t", 0): 3}), "d"),
        (KafkaOffsetsInitializer.offsets({}), "abcd"),
        (KafkaOffsetsInitializer.committed_offsets(), "bcd"),
    ],
)
def test_reading_begins_where_the_program_says(
    log: ModelLog, starting: KafkaOffsetsInitializer, expected: str
) -> None:
    log.create("t", 1)
    log.append("t", 0, *"abcd")
    log.committed[KafkaTopicPartition("t", 0)] = 1
    source = builder().set_starting_offsets(starting).set_bounded(LATEST).build()
    assert "".join(run(source).rows) == expected


def test_a_group_that_has_committed_nothing_is_an_error_unless_said(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "a")
    committed = KafkaOffsetsInitializer.committed_offsets
    with pytest.raises(NoOffsetError, match=r"KafkaOffsetResetStrategy\.EARLIEST"):
        run(builder().set_starting_offsets(committed()).set_bounded(LATEST).build())
    lenient = committed(KafkaOffsetResetStrategy.EARLIEST)
    assert run(builder().set_starting_offsets(lenient).set_bounded(LATEST).build()).rows == ["a"]


def test_offsets_go_to_the_group_once_their_checkpoint_is_published(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "a", "b", "c")
    source = builder().set_group_id("g").build()
    job = SourceJob(source, 1, source.produced_type)
    job.poll(1)
    job.checkpoint(1)
    job.poll(1)
    job.checkpoint(2)
    assert log.committed == {}
    job.readers[0].notify_checkpoint_complete(1)
    assert log.committed == {KafkaTopicPartition("t", 0): 2}
    job.readers[0].notify_checkpoint_complete(2)
    assert log.committed == {KafkaTopicPartition("t", 0): 3}
    job.close()


def test_without_a_group_nothing_is_committed(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "a")
    source = builder().build()
    job = SourceJob(source, 1, source.produced_type)
    job.poll(1)
    job.checkpoint(1)
    job.readers[0].notify_checkpoint_complete(1)
    assert log.committed == {}
    job.close()


def test_partitions_that_come_later_are_found_and_read_from_their_beginning(log: ModelLog) -> None:
    log.create("t", 1)
    log.append("t", 0, "old")
    chosen = builder().set_property("partition.discovery.interval.ms", "10")
    source = chosen.set_starting_offsets(LATEST).build()
    job = SourceJob(source, 2, source.produced_type)
    job.poll(1)
    log.create("t", 3)
    log.append("t", 2, "new")
    job.poll(30)
    assert job.rows == ["new"]
    job.close()


def test_topics_are_chosen_by_pattern_and_partitions_by_name(log: ModelLog) -> None:
    for topic in ("t-1", "t-2", "other"):
        log.create(topic, 2)
        log.append(topic, 1, topic)
    pattern = KafkaSource.builder().set_bootstrap_servers("h:1").set_topic_pattern(r"t-\d")
    source = pattern.set_value_only_deserializer(SimpleStringSchema()).set_bounded(LATEST).build()
    assert sorted(run(source).rows) == ["t-1", "t-2"]
    named = (
        KafkaSource.builder()
        .set_bootstrap_servers("h:1")
        .set_value_only_deserializer(SimpleStringSchema())
    )
    partitions = {KafkaTopicPartition("t-1", 1), KafkaTopicPartition("other", 0)}
    assert run(named.set_partitions(partitions).set_bounded(LATEST).build()).rows == ["t-1"]


def test_a_paused_partition_waits_and_goes_on(log: ModelLog) -> None:
    log.create("t", 2)
    log.append("t", 0, "a")
    log.append("t", 1, "b")
    source = builder().build()
    job = SourceJob(source, 1, source.produced_type)
    job.readers[0].poll_next(job.outputs[0])
    log.append("t", 0, "c")
    log.append("t", 1, "d")
    job.readers[0].pause_or_resume_splits(["t-0"], [])
    job.poll(5)
    assert sorted(job.rows) == ["a", "b", "d"]
    job.readers[0].pause_or_resume_splits([], ["t-0"])
    job.poll(5)
    assert sorted(job.rows) == ["a", "b", "c", "d"]
    job.close()


def test_a_waiting_reader_is_woken_by_the_clock(log: ModelLog) -> None:
    log.create("t", 1)
    source = builder().build()
    job = SourceJob(source, 1, source.produced_type)
    job.poll(5)
    (context,) = job.contexts
    assert len(context.timers.waiting) == 1
    woken = context.wake_count
    job.advance(10)
    context.timers.fire_due()
    assert context.wake_count == woken + 1
    job.close()


@pytest.mark.slow
@given(attempts=lives(), counts=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_every_record_is_read_once_wherever_the_job_dies(
    attempts: list[Life], counts: list[int]
) -> None:
    log = ModelLog()
    log.create("t", len(counts))
    expected: list[str] = []
    for partition, count in enumerate(counts):
        values = [f"{partition}:{number}" for number in range(count)]
        log.append("t", partition, *values, gap=count % 2)
        expected += values
    with ModelClients(log):
        found = rows_of(bounded(), attempts, bounded().produced_type)
    assert Counter(found) == Counter(expected)


@given(st.text(max_size=5), st.integers(0, 50), st.integers(1, 9))
def test_partitions_of_a_topic_go_round(topic: str, first: int, parallelism: int) -> None:
    owners = [
        owner_of(KafkaTopicPartition(topic, first + one), parallelism) for one in range(parallelism)
    ]
    assert sorted(owners) == list(range(parallelism))


@given(st.text(max_size=5), st.integers(0, 9), st.integers(0, 2**62), st.none() | st.integers(0, 9))
def test_splits_survive_the_way_through_a_checkpoint(
    topic: str, number: int, offset: int, stop: int | None
) -> None:
    split = KafkaPartitionSplit(KafkaTopicPartition(topic, number), offset, stop)
    assert KafkaPartitionSplit.decoded(split.encoded()) == split


def test_a_source_says_what_it_still_needs() -> None:
    with pytest.raises(ProgramError, match="set_bootstrap_servers"):
        KafkaSource.builder().build()
    servers = KafkaSource.builder().set_bootstrap_servers("h:1")
    with pytest.raises(ProgramError, match="needs one of set_topics"):
        servers.build()
    with pytest.raises(ProgramError, match="set_value_only_deserializer"):
        servers.set_topics("t").build()
    with pytest.raises(ProgramError, match="needs one of set_topics"):
        servers.set_topic_pattern("t").build()
    assert bounded().boundedness is Boundedness.BOUNDED
    stopping = builder().set_unbounded(LATEST).build()
    assert stopping.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
