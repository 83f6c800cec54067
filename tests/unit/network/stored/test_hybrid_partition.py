"""Hybrid partitions: memory for consumers that keep up, the disk for the rest, and a producer that never waits."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import EndOfData, EndOfPartition
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.core.types.type_info import Types
from headrace.graph.job_graph import PartitionerKind, PartitionerSpec
from headrace.network.batches.channel_selectors import create_selector
from headrace.network.errors import PartitionError
from headrace.network.memory.local_buffer_pool import NeverWait
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    QueuedEvent,
    ResultSubpartitionView,
)
from headrace.network.stored.file_format import BatchCompressor
from headrace.network.stored.hybrid_partition import (
    MEMORY_QUEUED_MAX,
    SEGMENTS_KEPT_FREE,
    HybridPartition,
    Placement,
    TierPolicy,
    TierState,
    choose_tiers,
)
from headrace.network.stored.stored_partition import StoredPartition
from headrace.network.stored.stored_view import StoredView
from headrace.network.writers.record_writer import RecordWriter, create_record_writer
from tests.unit.network.exchange import gate, numbers, partition_id, writer
from tests.unit.network.partition_traces import Consumer, Producer, Step, steps
from tests.unit.network.simulated import SimulatedCluster

FULL, SELECTIVE = ResultPartitionType.HYBRID_FULL, ResultPartitionType.HYBRID_SELECTIVE
BOTH = (FULL, SELECTIVE)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.assert_nothing_leaks()


def stored_bytes(environment: Any) -> int:
    return sum(file.stat().st_size for file in environment.storage.directories.files())


@given(
    is_full=st.booleans(),
    is_broadcast=st.booleans(),
    has_consumer=st.booleans(),
    queued=st.integers(0, 5),
    free=st.integers(0, 5),
)
def test_a_batch_goes_somewhere_and_memory_takes_only_what_will_leave_it_soon(
    is_full: bool, is_broadcast: bool, has_consumer: bool, queued: int, free: int
) -> None:
    chosen = choose_tiers(TierState(is_full, is_broadcast, has_consumer, queued, free))
    assert chosen.in_memory or chosen.on_disk
    assert chosen.on_disk or not is_full
    if chosen.in_memory:
        assert has_consumer and not is_broadcast
        assert queued < MEMORY_QUEUED_MAX and free >= SEGMENTS_KEPT_FREE


def hybrid_writer(
    side: Any, channel_count: int, *, is_full: bool, policy: TierPolicy
) -> RecordWriter:
    pool = side.buffer_pool.create_local_pool(
        "test", required=64, maximum=64, segment_size=1 << 17, overdraft_max=5, wait=NeverWait()
    )
    partition = HybridPartition(
        partition_id(),
        channel_count,
        pool,
        side.storage,
        side.partitions,
        BatchCompressor(1),
        is_full=is_full,
        policy=policy,
    )
    side.partitions.register(partition)
    spec = PartitionerSpec(PartitionerKind.REBALANCE)
    selector = create_selector(spec, channel_count, 128, SeededRandom(0))
    return create_record_writer(partition, selector, -1, side.clock, side.settings)


@given(
    trace=steps,
    seed=st.integers(0, 10**6),
    is_full=st.booleans(),
    is_local=st.booleans(),
    comes_at=st.integers(0, 12),
    makes_room_at=st.integers(0, 12),
)
def test_the_stream_is_what_was_emitted_whatever_tier_each_batch_used(
    trace: list[Step], seed: int, is_full: bool, is_local: bool, comes_at: int, makes_room_at: int
) -> None:
    random = SeededRandom(seed)

    def by_chance(state: TierState) -> Placement:
        in_memory = random.randrange(2) == 0 and state.free_segments > 4
        return Placement(in_memory, is_full or not in_memory or random.randrange(2) == 0)

    with TemporaryDirectory() as name:
        cluster = SimulatedCluster()
        producer_side, location = cluster.start("a", io_tmp_dirs=name)
        other, _ = cluster.start("b")
        side = producer_side if is_local else other
        sink = hybrid_writer(producer_side, 1, is_full=is_full, policy=by_chance)
        producer = Producer(sink)
        consumer: Consumer | None = None
        for number, step in enumerate(trace):
            if number == comes_at:
                consumer = Consumer(gate(side, [location]))
            if number == makes_room_at:
                sink.partition.make_room()
            producer.perform(step)
            cluster.loop.run_for(random.randrange(20))
            if consumer is not None and random.randrange(2):
                consumer.poll_all()
        producer.end()
        consumer = consumer or Consumer(gate(side, [location]))
        consumer.read_all(cluster)
        total = sum(getattr(step, "count", 0) for step in trace)
        assert consumer.values == list(range(total))
        assert consumer.seen[-2:] == [EndOfData(), EndOfPartition()]
        consumer.close()
        producer_side.release_partitions([partition_id()])
        cluster.assert_nothing_leaks()


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_a_producer_without_consumers_goes_on(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, 2, result_type=kind)
    memory_bytes = sink.partition.pool.maximum * sink.partition.pool.segment_size
    count = 4 * memory_bytes // 8
    for start in range(0, count, 10_000):
        assert sink.is_available
        sink.emit(numbers(start, 10_000))
    Producer(sink).end()
    consumers = [Consumer(gate(producer, [location], index)) for index in range(2)]
    for consumer in consumers:
        consumer.read_all(cluster)
        consumer.close()
    assert sorted(consumers[0].values + consumers[1].values) == list(range(sink.records_out))
    producer.release_partitions([partition_id()])


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("is_local", [True, False])
def test_a_consumer_follows_while_the_producer_runs(
    cluster: SimulatedCluster, kind: ResultPartitionType, is_local: bool, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    other, _ = cluster.start("b")
    sink = writer(producer, result_type=kind)
    consumer = Consumer(gate(producer if is_local else other, [location]))
    cluster.loop.run_for(20)
    for start in range(0, 200_000, 10_000):
        sink.emit(numbers(start, 10_000))
        sink.flush_all()
        cluster.loop.run_for(20)
        consumer.poll_all()
        assert len(consumer.values) == start + 10_000
    # A selective one had no reason to store any of it.
    assert (stored_bytes(producer) == 0) == (kind is SELECTIVE)
    Producer(sink).end()
    consumer.read_all(cluster)
    consumer.close()
    producer.release_partitions([partition_id()])


def test_a_full_one_is_read_again_and_a_selective_one_is_not(
    cluster: SimulatedCluster, tmp_path: Path
) -> None:
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    for kind in BOTH:
        sink = writer(producer, result_type=kind)
        sink.emit(numbers(0, 30_000))
        Producer(sink).end()
        first, second = Consumer(gate(producer, [location])), Consumer(gate(producer, [location]))
        first.read_all(cluster)
        first.close()
        if kind is FULL:
            assert second.read_all(cluster) == first.seen
        else:
            with pytest.raises(PartitionError, match="already had a consumer"):
                second.read_all(cluster)
        second.close()
        producer.release_partitions([partition_id()])


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_a_huge_record_finds_room_instead_of_waiting_for_a_consumer(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    # To wait would be an error here: nobody else would ever run.
    producer, location = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, 8, result_type=kind)
    consumer = Consumer(gate(producer, [location], 3))
    large = sink.partition.pool.maximum * sink.partition.pool.segment_size - (1 << 16)
    texts = BatchType(Types.STRING())
    for size in (1 << 17, large, 10, large):
        for _ in range(8):
            value = pa.array(["x" * size])
            sink.emit(RecordBatch.of_columns(texts, pa.RecordBatch.from_arrays([value], ["value"])))
        sink.flush_all()
    Producer(sink).end()
    consumer.read_all(cluster)
    assert len(consumer.seen) == 6
    consumer.close()
    producer.release_partitions([partition_id()])


def rows_of(view: ResultSubpartitionView) -> tuple[list[int], list[object]]:
    """Rows and events that can be had now."""
    values: list[int] = []
    events: list[object] = []
    while (element := view.poll(1 << 62)) is not None:
        if isinstance(element, DataElement):
            assert element.sealed.arrow is not None
            values += element.sealed.arrow.column(0).to_pylist()
        else:
            assert isinstance(element, QueuedEvent)
            events.append(element.event)
    return values, events


@pytest.mark.parametrize("kind", BOTH)
def test_what_waits_in_memory_is_read_to_its_end_by_who_had_begun_when_the_result_is_released(
    cluster: SimulatedCluster, kind: ResultPartitionType, tmp_path: Path
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, result_type=kind)
    pool = sink.partition.pool
    view = sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)
    for start in range(3):
        sink.emit(numbers(start, 1))
        sink.flush_all()
    assert pool.used == 3
    sink.finish()
    sink.close()
    producer.release_partitions([partition_id()])
    assert pool.used == 3
    cluster.loop.run_all()
    assert rows_of(view) == ([0, 1, 2], [EndOfPartition()])
    assert pool.used == 0
    view.release()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "end",
    [
        "its producer fails",
        "its consumer leaves behind its release",
        "its consumer leaves before its release",
    ],
)
def test_what_waits_in_memory_for_nobody_is_free_at_once(
    cluster: SimulatedCluster, kind: ResultPartitionType, end: str, tmp_path: Path
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, result_type=kind)
    view = sink.partition.create_view(0, lambda: None, LOCAL_SEGMENT_BYTES)
    sink.emit(numbers(0, 1))
    sink.flush_all()
    assert sink.partition.pool.used == 1
    if end == "its producer fails":
        sink.fail(ValueError("a bad row"))
    else:
        sink.finish()
        if end == "its consumer leaves before its release":
            view.release()
        producer.release_partitions([partition_id()])
        view.release()
    assert sink.partition.pool.used == 0
    view.release()
    sink.close()


@pytest.mark.parametrize("kind", BOTH)
def test_what_comes_while_a_consumer_attaches_is_read_for_it(
    cluster: SimulatedCluster,
    kind: ResultPartitionType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer, _ = cluster.start("a", io_tmp_dirs=str(tmp_path))
    sink = writer(producer, result_type=kind)
    attach = StoredPartition.create_view

    def interrupted(self: StoredPartition, *args: Any) -> StoredView:
        view = attach(self, *args)
        sink.emit(numbers(7, 1))
        sink.flush_all()
        return view

    monkeypatch.setattr(StoredPartition, "create_view", interrupted)
    told: list[str] = []
    view = sink.partition.create_view(0, lambda: told.append("data"), LOCAL_SEGMENT_BYTES)
    cluster.loop.run_all()
    assert told == ["data"] and rows_of(view) == ([7], [])
    view.release()
    sink.close()
    producer.release_partitions([partition_id()])
