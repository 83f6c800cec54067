"""The laws of writing: record writer, channel selection, flush and buffer timeout."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import EndOfData, StopMode, Watermark
from headrace.graph.job_graph import PartitionerKind
from headrace.network.batches.sealed_batch import BatchWriter, SealedBatch
from headrace.network.memory.local_buffer_pool import SegmentLease
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    QueuedEvent,
)
from headrace.network.wire.framing import Body
from tests.unit.network.exchange import gate, numbers, values_of, writer
from tests.unit.network.simulated import SimulatedCluster
from tests.unit.network.writer_edge import PLENTY, Edge, edge, keyed

SEGMENT = 1 << 15


@dataclass(frozen=True)
class Rows:
    count: int


@dataclass(frozen=True)
class Mark:
    pass


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Barrier:
    """Any event that goes to every channel."""


EMISSIONS = st.lists(
    st.one_of(
        st.builds(Rows, st.integers(1, 9)),
        st.just(Mark()),
        st.just(Flush()),
        st.just(Barrier()),
    ),
    max_size=25,
)


@dataclass
class Emitted:
    """What left the task: rows, and after how many of them each watermark and event did."""

    row_count: int
    marked_after: list[int]
    barred_after: list[int]


def perform(made: Edge, emissions: list[Rows | Mark | Flush | Barrier]) -> Emitted:
    emitted = Emitted(0, [], [])
    for emission in emissions:
        match emission:
            case Rows(count):
                made.writer.emit(keyed(emitted.row_count, count))
                emitted.row_count += count
            case Mark():
                made.writer.emit_marker(Watermark(len(emitted.marked_after)))
                emitted.marked_after.append(emitted.row_count)
            case Flush():
                made.writer.flush_all()
            case Barrier():
                made.writer.emit_event(EndOfData(StopMode.NO_DRAIN))
                emitted.barred_after.append(emitted.row_count)
    made.writer.flush_all()
    return emitted


def elements_of(made: Edge, channel: int) -> Iterator[tuple[str, int]]:
    """Rows, watermarks and events of one channel in the order in which its consumer sees them."""
    while (element := made.views[channel].poll(PLENTY)) is not None:
        if isinstance(element, QueuedEvent):
            yield "event", 0
            continue
        assert isinstance(element, DataElement)
        if element.lease is not None:
            element.lease.release()
        arrow = element.sealed.arrow
        rows = [] if arrow is None else arrow.column(0).to_pylist()
        done = 0
        for placed in element.sealed.markers:
            yield from (("row", row) for row in rows[done : placed.row_offset])
            done = placed.row_offset
            assert isinstance(placed.marker, Watermark)
            yield "mark", placed.marker.timestamp_ms
        yield from (("row", row) for row in rows[done:])


KINDS = [
    PartitionerKind.RESCALE,
    PartitionerKind.GLOBAL,
    PartitionerKind.HASH,
    PartitionerKind.BROADCAST,
]


@given(
    EMISSIONS,
    st.sampled_from(KINDS),
    st.sampled_from([0, -1]),
    st.sampled_from([SEGMENT, LOCAL_SEGMENT_BYTES]),
)
def test_rows_watermarks_and_events_leave_in_the_order_of_emission_on_every_channel(
    emissions: list[Rows | Mark | Flush | Barrier],
    kind: PartitionerKind,
    timeout_ms: int,
    segment_size: int,
) -> None:
    made = edge(3, kind, timeout_ms, segment_size, overdraft=1000)
    emitted = perform(made, emissions)
    seen_rows: list[int] = []
    for channel in range(3):
        rows: list[int] = []
        last_mark, events = -1, 0
        for what, value in elements_of(made, channel):
            if what == "row":
                assert not rows or value > rows[-1]
                rows.append(value)
                # Behind every mark and event that left before it, and in front of all later ones.
                assert all(after > value for after in emitted.marked_after[last_mark + 1 :])
                assert all(after <= value for after in emitted.barred_after[:events])
                assert all(after > value for after in emitted.barred_after[events:])
            elif what == "mark":
                assert value > last_mark
                last_mark = value
                assert not rows or emitted.marked_after[value] > rows[-1]
            else:
                events += 1
        # Of marks without a row in between the last one is enough, but that one comes everywhere.
        assert last_mark == len(emitted.marked_after) - 1
        assert events == len(emitted.barred_after)
        seen_rows += rows
    copies = 3 if kind is PartitionerKind.BROADCAST else 1
    assert sorted(seen_rows) == sorted(list(range(emitted.row_count)) * copies)


def count_messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of all batches that are serialised from now on."""
    sizes: list[int] = []
    message, serialize = BatchWriter.message, SealedBatch.body

    def counted(self: BatchWriter, batch: pa.RecordBatch, size_bytes: int) -> Body:
        sizes.append(size_bytes)
        return message(self, batch, size_bytes)

    def body(self: SealedBatch) -> Body:
        if self._body is None and self.arrow is not None:
            sizes.append(self.size_bytes)
        return serialize(self)

    monkeypatch.setattr(BatchWriter, "message", counted)
    monkeypatch.setattr(SealedBatch, "body", body)
    return sizes


@pytest.mark.parametrize("remote_count", [0, 1, 5])
def test_a_broadcast_is_serialised_once_for_all_its_remote_consumers_and_never_for_local_ones(
    monkeypatch: pytest.MonkeyPatch, remote_count: int
) -> None:
    serialised = count_messages(monkeypatch)
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    others = [cluster.start(f"b{k}")[0] for k in range(remote_count)]
    readers = [producer, producer, *others]
    sink = writer(producer, len(readers), PartitionerKind.BROADCAST)
    sources = [gate(reader, [location], index) for index, reader in enumerate(readers)]
    for source in sources:
        source.request_partitions()
    cluster.loop.run_all()
    for start in (0, 100, 200):
        sink.emit(numbers(start, 100))
        sink.flush_all()
    sink.finish()
    sink.close()
    for source in sources:
        values: list[int] = []
        while not source.is_finished:
            cluster.loop.run_until(lambda source=source: source.is_available)
            while (element := source.poll()) is not None:
                values += values_of([element])
        assert values == list(range(300))
        source.close()
    assert len(serialised) == (3 if remote_count else 0)
    cluster.assert_nothing_leaks()


ACTS = st.tuples(st.integers(0, 3), st.sampled_from(["poll", "poll", "free", "leave"]))


@given(st.integers(1, 5), st.lists(ACTS, max_size=40))
def test_a_broadcast_is_held_until_its_slowest_consumer_took_it_and_then_freed_once(
    batch_count: int, acts: list[tuple[int, str]]
) -> None:
    made = edge(4, PartitionerKind.BROADCAST, 0, SEGMENT, overdraft=1000)
    pool = made.writer.partition.pool
    for number in range(batch_count):
        made.writer.emit(numbers(number, 1))
    polled: list[list[SegmentLease]] = [[] for _ in range(4)]
    freed, gone = [0] * 4, set[int]()
    for channel, act in [*acts, *((k, "leave") for k in range(4))]:
        if channel in gone:
            continue
        if act == "poll":
            element = made.views[channel].poll(PLENTY)
            if isinstance(element, DataElement):
                assert element.lease is not None
                polled[channel].append(element.lease)
        elif act == "free" and polled[channel]:
            polled[channel].pop(0).release()
            freed[channel] += 1
        elif act == "leave":
            # What was handed out is its reader's to give back; the rest goes with the view.
            for lease in polled[channel]:
                lease.release()
            made.views[channel].release()
            freed[channel] = batch_count
            gone.add(channel)
        assert pool.used == batch_count - min(freed)
    assert pool.used == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=30))
def test_unicast_and_broadcast_in_turn_keep_the_order_of_every_subpartition(
    emissions: list[tuple[bool, int]],
) -> None:
    made = edge(3, overdraft=1000)
    partition = made.writer.partition
    expected: list[list[int]] = [[], [], []]
    for number, (is_broadcast, channel) in enumerate(emissions):
        sealed = SealedBatch(numbers(number, 1).columns(), ())
        lease = partition.pool.try_lease(1, 3 if is_broadcast else 1)
        assert isinstance(lease, SegmentLease)
        if is_broadcast:
            partition.broadcast(sealed, lease)
        else:
            partition.emit(channel, sealed, lease)
        for index in range(3):
            if is_broadcast or index == channel:
                expected[index].append(number)
    for index in range(3):
        assert [value for _, value in elements_of(made, index)] == expected[index]
    assert partition.pool.used == 0


def test_a_row_after_the_end_is_a_mistake() -> None:
    made = edge()
    made.writer.emit(numbers(0, 1))
    made.writer.finish()
    made.writer.emit(numbers(1, 1))
    with pytest.raises(AssertionError, match="has ended"):
        made.writer.flush_all()
    assert made.read(0)[0] == [0]
    assert made.writer.partition.pool.used == 0


@given(st.lists(st.integers(1, 400), max_size=40))
def test_without_a_timeout_the_reader_sees_full_batches_only_and_the_last_one(
    counts: list[int],
) -> None:
    made = edge(1, timeout_ms=-1, headrace_network_seal__rows="500", overdraft=1000)
    for start, count in enumerate(counts):
        made.writer.emit(numbers(1000 * start, count))
    made.writer.finish()
    batches = [batch for batch in made.read() if isinstance(batch, list)]
    assert all(len(batch) >= 500 for batch in batches[:-1])
    assert sum(len(batch) for batch in batches) == sum(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flush_with_nothing_new_sends_nothing(kind: PartitionerKind) -> None:
    cluster = SimulatedCluster()
    producer, location = cluster.start("a")
    consumer, _ = cluster.start("b")
    sink = writer(producer, 2, kind)
    sources = [gate(consumer, [location], index) for index in range(2)]
    for source in sources:
        source.request_partitions()
    sink.emit(keyed(0, 9))
    sink.flush_all()
    cluster.loop.run_all()
    for _ in range(3):
        sink.flush_all()
        assert not cluster.loop.step(), "a flush of nothing woke somebody"
    elements = [source.poll() for source in sources]
    values = values_of([element for element in elements if element is not None])
    assert sorted(values) == sorted(
        list(range(9)) * (2 if kind is PartitionerKind.BROADCAST else 1)
    )
    del elements
    sink.finish()
    sink.close()
    cluster.loop.run_all()
    for source in sources:
        assert source.poll() is not None
        source.close()
    cluster.assert_nothing_leaks()


STEPS = st.lists(
    st.sampled_from(["emit", "flush", "poll", "poll", "event", "finish", "fail", "leave"]),
    max_size=40,
)


@given(STEPS)
def test_a_reader_that_sleeps_until_it_is_told_never_sleeps_on_rows(steps: list[str]) -> None:
    made = edge(1, overdraft=1000)
    writer_, has_ended, has_left = made.writer, False, False
    is_asleep = False
    told = 0
    for number, step in enumerate(steps):
        if step in ("emit", "flush", "event") and not has_ended:
            match step:
                case "emit":
                    writer_.emit(numbers(number, 1))
                case "flush":
                    writer_.flush_all()
                case _:
                    writer_.emit_event(EndOfData())
        elif step == "finish" and not has_ended:
            has_ended = True
            writer_.finish()
            writer_.close()
        elif step == "fail" and not has_ended:
            has_ended = True
            writer_.fail(ValueError("no"))
        elif step == "leave" and not has_left:
            has_left = True
            made.views[0].release()
        if len(made.notified) > told:
            told, is_asleep = len(made.notified), False
        waiting = made.views[0].queued_count
        if step == "poll" and not is_asleep and not has_left and not made.failures:
            if waiting:
                element = made.views[0].poll(PLENTY)
                if isinstance(element, DataElement) and element.lease is not None:
                    element.lease.release()
            else:
                assert made.views[0].poll(PLENTY) is None
                is_asleep = True
        assert not (is_asleep and made.views[0].queued_count)
        assert not (has_left and made.views[0].queued_count)
