"""The queue between one producer and one consumer: order, priority, blocking, acknowledgement."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.barriers import AlignmentMode, CheckpointBarrier, CheckpointOptions
from headrace.core.elements import EndOfData, StopMode
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import ProducerFailedError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, NeverWait
from headrace.network.memory.network_buffer_pool import NetworkBufferPool
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.partitions.pipelined_subpartition import (
    PipelinedSubpartition,
    PipelinedSubpartitionView,
)
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    Element,
    QueuedEvent,
    Stalled,
)
from tests.unit.network.exchange import numbers

EVENT = EndOfData()
OTHER = EndOfData(StopMode.NO_DRAIN)
UNALIGNED = CheckpointOptions(alignment=AlignmentMode.UNALIGNED)
FIRST, SECOND = CheckpointBarrier(7, 0, UNALIGNED), CheckpointBarrier(8, 0, UNALIGNED)


@dataclass
class Queue:
    """A subpartition with its view, and what it has told."""

    subpartition: PipelinedSubpartition
    view: PipelinedSubpartitionView
    pool: LocalBufferPool
    notices: list[str] = field(default_factory=list[str])

    def add_rows(self, start: int = 0) -> None:
        lease = self.pool.try_lease(1)
        assert lease is not None
        self.subpartition.add_data(SealedBatch(numbers(start, 1).columns(), ()), lease)

    def poll(self) -> Element | None:
        element = self.view.poll(1 << 62)
        assert element is None or isinstance(element, DataElement | QueuedEvent)
        if isinstance(element, DataElement) and element.lease is not None:
            element.lease.release()
        return element


def add_unaligned(subpartition: PipelinedSubpartition, barrier: CheckpointBarrier) -> None:
    """Add an event with priority, as only unaligned barriers have it."""
    subpartition.add_barrier(barrier, InFlightOutput(1), None)


@pytest.fixture
def queue() -> Queue:
    return make_queue()


def make_queue() -> Queue:
    notices: list[str] = []
    memory = NetworkBufferPool(1 << 20, 1 << 10)
    pool = memory.create_local_pool(
        "test", required=100, maximum=500, segment_size=1 << 10, overdraft_max=0, wait=NeverWait()
    )
    subpartition = PipelinedSubpartition(
        "p",
        0,
        pool,
        1000,
        lambda: notices.append("released"),
        lambda: notices.append("acknowledged"),
    )
    view = subpartition.create_view(lambda: notices.append("data"), LOCAL_SEGMENT_BYTES)
    return Queue(subpartition, view, pool, notices)


def kind_of(element: Element | None) -> object:
    return element.event if isinstance(element, QueuedEvent) else type(element)


def test_a_priority_event_overtakes_what_waits(queue: Queue) -> None:
    queue.add_rows()
    queue.subpartition.add_event(OTHER)
    add_unaligned(queue.subpartition, FIRST)
    assert [kind_of(queue.poll()) for _ in range(4)] == [FIRST, DataElement, OTHER, type(None)]


def test_priority_events_keep_their_own_order(queue: Queue) -> None:
    queue.add_rows()
    add_unaligned(queue.subpartition, FIRST)
    add_unaligned(queue.subpartition, SECOND)
    assert [kind_of(queue.poll()) for _ in range(2)] == [FIRST, SECOND]


def test_the_first_priority_event_is_told_of_although_data_waits(queue: Queue) -> None:
    queue.add_rows()
    queue.notices.clear()
    queue.add_rows()
    assert queue.notices == []
    add_unaligned(queue.subpartition, FIRST)
    add_unaligned(queue.subpartition, SECOND)
    assert queue.notices == ["data"]


def test_nothing_leaves_after_a_blocking_event_until_resume(queue: Queue) -> None:
    queue.subpartition.add_event(EVENT, blocks_upstream=True)
    queue.add_rows()
    assert kind_of(queue.poll()) == EVENT
    assert (queue.poll(), queue.subpartition.is_blocked, queue.view.backlog) == (None, True, 0)
    queue.notices.clear()
    queue.view.resume()
    assert queue.notices == ["data"]
    assert isinstance(queue.poll(), DataElement)


def test_a_priority_event_passes_a_blocked_queue(queue: Queue) -> None:
    queue.subpartition.add_event(EVENT, blocks_upstream=True)
    queue.add_rows()
    queue.poll()
    add_unaligned(queue.subpartition, FIRST)
    assert [kind_of(queue.poll()) for _ in range(2)] == [FIRST, type(None)]


def test_resuming_what_is_not_blocked_is_a_mistake(queue: Queue) -> None:
    with pytest.raises(AssertionError, match="without being blocked"):
        queue.view.resume()


def test_a_priority_event_that_waits_survives_a_late_consumer_elsewhere() -> None:
    memory = NetworkBufferPool(1 << 20, 1 << 10)
    pool = memory.create_local_pool(
        "test", required=10, maximum=50, segment_size=1 << 10, overdraft_max=0, wait=NeverWait()
    )
    subpartition = PipelinedSubpartition("p", 0, pool, 1000, lambda: None, lambda: None)
    lease = pool.try_lease(1)
    assert lease is not None
    subpartition.add_data(SealedBatch(numbers(0, 1000).columns(), ()), lease)
    add_unaligned(subpartition, FIRST)
    view = subpartition.create_view(lambda: None, 1 << 10)
    add_unaligned(subpartition, SECOND)
    first, second = view.poll(0), view.poll(0)
    assert isinstance(first, QueuedEvent)
    assert isinstance(second, QueuedEvent)
    assert (first.event, second.event) == (FIRST, SECOND)
    view.release()


def test_what_the_consumer_says_is_passed_on(queue: Queue) -> None:
    queue.view.acknowledge_all_data()
    queue.view.notify_in_flight_rows(4096)
    assert queue.notices == ["acknowledged"]
    assert queue.subpartition.in_flight_rows == 4096


@given(st.lists(st.sampled_from(["data", "event", "priority", "blocking", "poll", "resume"])))
def test_order_holds_whatever_happens(steps: list[str]) -> None:
    """A model of two queues: priority events come first, the others in order, and not while blocked."""
    queue = make_queue()
    priority: list[int] = []
    rest: list[tuple[int, bool]] = []
    is_blocked = False
    numbered: dict[int, int] = {}
    for count, step in enumerate(steps):
        if step == "data":
            queue.add_rows(count)
            rest.append((count, False))
        elif step == "resume":
            if is_blocked:
                queue.view.resume()
                is_blocked = False
        elif step == "poll":
            element = queue.poll()
            expected: int | None = None
            if priority:
                expected = priority.pop(0)
            elif rest and not is_blocked:
                expected, is_blocked = rest.pop(0)
            if isinstance(element, DataElement):
                assert element.sealed.arrow is not None
                assert element.sealed.arrow.column(0).to_pylist() == [expected]
            elif element is not None:
                assert numbered[id(element.event)] == expected
            else:
                assert expected is None
        elif step == "priority":
            barrier = CheckpointBarrier(count, 0, UNALIGNED)
            numbered[id(barrier)] = count
            keep_alive.append(barrier)
            add_unaligned(queue.subpartition, barrier)
            priority.append(count)
        else:
            event = EndOfData()
            numbered[id(event)] = count
            keep_alive.append(event)
            queue.subpartition.add_event(event, blocks_upstream=step == "blocking")
            rest.append((count, step == "blocking"))
        data_count = queue.view.backlog
        assert data_count == (0 if is_blocked else sum(n not in numbered.values() for n, _ in rest))
    queue.view.release()
    assert queue.pool.used == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["rows", "rows", "giant row", "event"]), st.integers(1, 900)),
        max_size=20,
    ),
    st.sampled_from([1 << 10, 1 << 12, LOCAL_SEGMENT_BYTES]),
    st.booleans(),
)
def test_the_backlog_is_what_comes_where_there_is_credit_enough(
    steps: list[tuple[str, int]], segment_size: int, is_late: bool
) -> None:
    memory = NetworkBufferPool(1 << 20, 1 << 10)
    pool = memory.create_local_pool(
        "test", required=500, maximum=500, segment_size=1 << 10, overdraft_max=0, wait=NeverWait()
    )
    subpartition = PipelinedSubpartition("p", 0, pool, 1000, lambda: None, lambda: None)
    view = None if is_late else subpartition.create_view(lambda: None, segment_size)
    for what, count in steps:
        if what == "event":
            subpartition.add_event(EVENT)
        else:
            giant = pa.record_batch({"text": ["x" * 10 * count]})
            sealed = SealedBatch(giant if what == "giant row" else numbers(0, count).columns(), ())
            lease = pool.try_lease(sealed.size_bytes)
            assert lease is not None
            subpartition.add_data(sealed, lease)
    view = view or subpartition.create_view(lambda: None, segment_size)
    backlog, rows = view.backlog, 0
    while (element := view.poll(1 << 62)) is not None:
        assert not isinstance(element, Stalled)
        if isinstance(element, DataElement):
            backlog -= element.cost
            rows += element.sealed.row_count
            # Only a row that is larger than a segment of its consumer takes several.
            size = element.sealed.size_bytes
            assert element.cost == max(1, -(-size // segment_size))
            assert element.cost == 1 or element.sealed.row_count == 1
            if element.lease is not None:
                element.lease.release()
        assert view.backlog == backlog
    assert backlog == 0
    assert rows == sum(
        1 if what == "giant row" else count for what, count in steps if what != "event"
    )
    assert pool.used == 0


keep_alive: list[EndOfData | CheckpointBarrier] = []  # so that no two events share an identity


def test_a_consumer_that_leaves_a_full_queue_makes_its_producer_available(queue: Queue) -> None:
    queue.add_rows()
    queue.view.notify_in_flight_rows(1)
    assert not queue.pool.is_available
    told: list[str] = []
    queue.pool.on_available(lambda: told.append("available"))
    queue.view.release()
    assert told == ["available"]


def test_a_wish_for_more_in_flight_makes_the_producer_available(queue: Queue) -> None:
    queue.add_rows()
    queue.view.notify_in_flight_rows(1)
    assert not queue.pool.is_available
    told: list[str] = []
    queue.pool.on_available(lambda: told.append("available"))
    queue.view.notify_in_flight_rows(1 << 20)
    assert told == ["available"]


def test_a_consumer_without_credit_is_told_once_much_more_waits(queue: Queue) -> None:
    queue.add_rows()
    assert isinstance(queue.view.poll(0), Stalled)
    queue.notices.clear()
    for _ in range(2):
        queue.add_rows()
    assert queue.notices == []
    queue.add_rows()
    assert len(queue.notices) == 1


def test_a_consumer_is_told_that_its_producer_failed_and_finds_nothing_else(queue: Queue) -> None:
    queue.add_rows()
    queue.notices.clear()
    queue.subpartition.fail("a bad row")
    assert queue.notices == ["data"]
    assert queue.pool.used == 0
    queue.add_rows()
    add_unaligned(queue.subpartition, FIRST)
    for _ in range(2):
        with pytest.raises(ProducerFailedError, match="a bad row"):
            queue.poll()
    assert queue.pool.used == 0
    queue.subpartition.fail("another one")
    with pytest.raises(ProducerFailedError, match="a bad row"):
        queue.poll()
    queue.view.release()


def test_a_view_that_is_released_twice_lets_go_once(queue: Queue) -> None:
    queue.add_rows()
    queue.notices.clear()
    queue.view.release()
    queue.view.release()
    queue.subpartition.discard()
    assert queue.notices == ["released"]
    queue.add_rows()
    assert queue.pool.used == 0
