"""Network memory as places: who has which page, and how long a received batch may stay where it is."""

import gc
import mmap
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import InsufficientBuffersError
from headrace.network.memory import segments
from headrace.network.memory.network_buffer_pool import NetworkBufferPool, Reservation
from headrace.network.memory.segments import BuddyAllocator, Segment, SegmentMemory, SegmentRegion
from headrace.network.memory.sizing import NetworkMemoryError

PAGE = 4096


def test_memory_that_cannot_be_had_is_told_with_what_could_be_and_the_options() -> None:
    # More than a process can address, on any machine.
    memory = SegmentMemory(4, 1 << 60, 0)
    with pytest.raises(NetworkMemoryError, match=r"taskmanager\.memory\.network\.min") as raised:
        memory.open_region(1, 0, 0)
    assert raised.value.wanted_bytes == 1 << 62
    assert PAGE < raised.value.available_bytes < 1 << 62


@given(
    st.integers(0, 70), st.integers(0, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 99)))
)
def test_blocks_never_overlap_and_unite_when_all_are_back(
    page_count: int, order_max: int, steps: list[tuple[bool, int]]
) -> None:
    buddies = BuddyAllocator(page_count, order_max)
    out: list[tuple[int, int]] = []
    for is_take, number in steps:
        if is_take:
            order = number % (order_max + 1)
            page = buddies.take(order)
            if page is not None:
                assert page % (1 << order) == 0
                out.append((page, order))
        elif out:
            buddies.give_back(*out.pop(number % len(out)))
        pages = [page + k for page, order in out for k in range(1 << order)]
        assert len(pages) == len(set(pages)) == page_count - buddies.free_page_count
        assert all(0 <= page < page_count for page in pages)
    for page, order in out:
        buddies.give_back(page, order)
    largest = [buddies.take(order_max) for _ in range(page_count >> order_max)]
    assert None not in largest


def test_a_single_free_page_is_always_found() -> None:
    buddies = BuddyAllocator(13, 3)
    assert sorted(buddies.take(0) or 0 for _ in range(13)) == list(range(13))
    assert buddies.take(0) is None


@pytest.fixture
def network() -> Iterator[NetworkBufferPool]:
    pool = NetworkBufferPool(64 * PAGE, PAGE)
    yield pool
    gc.collect()
    assert pool.count_idle_pages() == pool.total_pages


def received(region: SegmentRegion, batch: pa.RecordBatch) -> tuple[Segment, pa.Buffer]:
    """What the assembler makes of a batch."""
    message = batch.serialize().to_pybytes()
    segment = region.acquire(len(message))
    assert segment is not None
    segment.place(memoryview(message), 0)[: len(message)] = message
    return segment, segment.buffer()


def numbers(start: int, count: int = 100) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(np.arange(start, start + count))})


def taken(region: SegmentRegion, start: int) -> pa.RecordBatch:
    segment, body = received(region, numbers(start))
    return pa.ipc.read_record_batch(region.hand_over(segment, body), numbers(0).schema)


def gate(network: NetworkBufferPool, count: int = 4, pin_budget: int = 2) -> Reservation:
    return network.reserve("a gate", count, PAGE, pin_budget)


def test_a_segment_is_free_when_the_last_view_of_its_batch_is_gone(
    network: NetworkBufferPool,
) -> None:
    reservation = gate(network)
    batch = taken(reservation.region, 7)
    view = batch.column(0)[50:].to_numpy()
    del batch
    assert (reservation.region.pinned_count, len(reservation.region.free)) == (1, 5)
    assert list(view[:2]) == [57, 58]
    del view
    assert (reservation.region.pinned_count, len(reservation.region.free)) == (0, 6)
    reservation.close()


def test_columns_are_aligned_wherever_the_metadata_ends(network: NetworkBufferPool) -> None:
    reservation = gate(network)
    for column_count in (1, 2, 5):
        batch = pa.record_batch({f"c{k}": [1.5] * 8 for k in range(column_count)})
        segment, body = received(reservation.region, batch)
        read = pa.ipc.read_record_batch(body, batch.schema)
        assert read.equals(batch)
        values = [column.buffers()[1] for column in read.columns]
        assert all(buffer is not None and buffer.address % 64 == 0 for buffer in values)
        del segment, body, read, values
    reservation.close()


def test_beyond_the_pin_budget_batches_are_copied_and_credit_stays_covered(
    network: NetworkBufferPool,
) -> None:
    reservation = gate(network, count=4, pin_budget=2)
    region = reservation.region
    kept: list[pa.RecordBatch] = []
    copied_count = 0
    for k in range(50):
        segment, body = received(region, numbers(k))
        handed = region.hand_over(segment, body)
        copied_count += handed is not body
        kept.append(pa.ipc.read_record_batch(handed, numbers(0).schema))
        del segment, body, handed
    assert (region.pinned_count, copied_count) == (2, 48)
    # Four credits are out, whatever the task keeps.
    assert len(region.free) == 4
    assert [batch.column(0)[0].as_py() for batch in kept] == list(range(50))
    del kept
    assert len(region.free) == 6
    reservation.close()


def test_what_the_task_let_go_of_may_be_pinned_again(network: NetworkBufferPool) -> None:
    reservation = gate(network, count=4, pin_budget=2)
    for first in range(10):
        segment, body = received(reservation.region, numbers(first))
        assert reservation.region.hand_over(segment, body) is body
        del segment, body
    assert len(reservation.region.free) == 6
    reservation.close()


def test_without_room_for_pins_every_batch_is_copied(network: NetworkBufferPool) -> None:
    reservation = gate(network, count=60, pin_budget=8)
    assert (reservation.region.pin_budget, reservation.region.count) == (0, 60)
    batch = taken(reservation.region, 3)
    assert len(reservation.region.free) == 60
    assert batch.equals(numbers(3))
    reservation.close()


def test_a_closed_gate_deals_no_segments_and_takes_back_those_that_are_out(
    network: NetworkBufferPool,
) -> None:
    reservation = gate(network)
    region = reservation.region
    segment, body = received(region, numbers(1))
    for _ in range(2):
        reservation.close()
    assert region.acquire(100) is None
    assert network.count_idle_pages() == network.total_pages - 1
    del segment, body
    assert network.count_idle_pages() == network.total_pages
    assert region.acquire(100) is None


def test_a_kept_batch_outlives_its_gate_and_its_pages_come_back_after_it(
    network: NetworkBufferPool,
) -> None:
    reservation = gate(network)
    batch = taken(reservation.region, 7)
    reservation.close()
    assert network.count_idle_pages() == network.total_pages - 1
    others = [gate(network, count=10, pin_budget=0) for _ in range(6)]
    for other in others:
        segments = [received(other.region, numbers(999)) for _ in range(10)]
        del segments
    assert batch.equals(numbers(7))
    del batch
    assert network.count_idle_pages() == network.total_pages - 60
    for other in others:
        other.close()


def request_all(network: NetworkBufferPool, is_gate: bool) -> None:
    """Take all network memory for a gate or a partition; InsufficientBuffersError where some is missing."""
    if is_gate:
        network.reserve("another gate", network.total_pages, PAGE).close()
    else:
        all_pages = network.total_pages
        network.create_local_pool(
            "a partition", required=all_pages, maximum=all_pages, segment_size=PAGE, overdraft_max=0
        ).destroy()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The garbage collector runs only where somebody calls it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("is_gate", [True, False])
@pytest.mark.usefixtures("no_collector")
def test_nobody_is_refused_for_what_was_let_go_of_since(
    network: NetworkBufferPool, is_gate: bool
) -> None:
    reservation = gate(network)
    batch = taken(reservation.region, 7)
    reservation.close()
    with pytest.raises(InsufficientBuffersError):
        request_all(network, is_gate)
    del batch
    request_all(network, is_gate)


@pytest.mark.parametrize("is_gate", [True, False])
@pytest.mark.usefixtures("no_collector")
def test_nobody_is_refused_for_batches_that_are_garbage_and_only_for_such_that_are_not(
    network: NetworkBufferPool, is_gate: bool
) -> None:
    reservation = gate(network)
    # What a stopped task leaves: objects that refer to each other, and to a batch.
    circle: list[object] = [taken(reservation.region, 7)]
    circle.append(circle)
    reservation.close()
    with pytest.raises(InsufficientBuffersError):
        request_all(network, is_gate)
    del circle
    assert network.count_idle_pages() == network.total_pages - 1
    request_all(network, is_gate)


@pytest.mark.parametrize("is_gate", [True, False])
@pytest.mark.usefixtures("no_collector")
def test_segments_are_not_smaller_for_batches_that_are_garbage(
    network: NetworkBufferPool, is_gate: bool
) -> None:
    leave_garbage(network, batch_count=1)
    if is_gate:
        # 4 segments of 4 pages are a quarter of all 64 pages, and more than that of 63.
        reservation = network.reserve("another gate", 4, 4 * PAGE)
        assert reservation.segment_size == 4 * PAGE
        reservation.close()
    else:
        pool = network.create_local_pool(
            "a partition", required=4, maximum=4, segment_size=4 * PAGE, overdraft_max=0
        )
        assert pool.pages == 4
        pool.destroy()


@pytest.mark.usefixtures("no_collector")
def test_batches_stay_where_they_are_although_there_is_garbage(network: NetworkBufferPool) -> None:
    leave_garbage(network, batch_count=1)
    # Half of all 64 pages, and more than that of 63.
    reservation = gate(network, count=16, pin_budget=16)
    assert reservation.region.pin_budget == 16
    reservation.close()


@pytest.mark.usefixtures("no_collector")
def test_nobody_collects_where_no_garbage_could_make_segments_larger(
    network: NetworkBufferPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections: list[None] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(None))
    reservation = gate(network)
    kept = taken(reservation.region, 7)
    reservation.close()
    # The first fits as it is, the second has too many segments for larger ones in any case.
    for count, size in ((3, 4 * PAGE), (17, 4 * PAGE)):
        network.reserve("another gate", count, size).close()
    assert collections == []
    monkeypatch.undo()
    del kept


def leave_garbage(network: NetworkBufferPool, batch_count: int) -> None:
    """What a stopped task leaves: batches, one page each, that only a garbage collection finds."""
    reservation = gate(network)
    circle: list[object] = [taken(reservation.region, number) for number in range(batch_count)]
    circle.append(circle)
    reservation.close()


def test_scattered_pages_give_smaller_segments_rather_than_a_refusal(
    network: NetworkBufferPool,
) -> None:
    singles = [network.reserve("a gate", 1, PAGE) for _ in range(64)]
    for single in singles[::2]:
        single.close()
    large = network.reserve("another gate", 4, 4 * PAGE)
    assert large.segment_size == PAGE
    for reservation in (large, *singles):
        reservation.close()


def test_a_body_larger_than_a_segment_gets_memory_of_its_own(network: NetworkBufferPool) -> None:
    reservation = gate(network)
    assert reservation.region.acquire(PAGE + 1) is None
    full = reservation.region.acquire(PAGE)
    assert full is not None
    assert len(full.place(memoryview(b"\xff\xff\xff\xff\x80\0\0\0"), 512)) == PAGE
    del full
    reservation.close()


@given(st.integers(0, 2**32), st.lists(st.integers(0, 3), max_size=60))
def test_no_order_of_keeping_and_dropping_loses_a_segment_or_changes_a_batch(
    seed: int, steps: list[int]
) -> None:
    network, random = NetworkBufferPool(64 * PAGE, PAGE), Random(seed)
    reservation = gate(network, count=4, pin_budget=3)
    queued: list[tuple[int, Segment, pa.Buffer]] = []
    kept: list[tuple[int, pa.RecordBatch]] = []
    for number, step in enumerate(steps):
        if step == 0 and len(queued) < reservation.count:
            queued.append((number, *received(reservation.region, numbers(number))))
        elif step == 1 and queued:
            value, segment, body = queued.pop(0)
            body = reservation.region.hand_over(segment, body)
            kept.append((value, pa.ipc.read_record_batch(body, numbers(0).schema)))
            del segment, body
        elif step == 2 and kept:
            kept.pop(random.randrange(len(kept)))
        elif step == 3 and kept:
            value, batch = kept.pop(random.randrange(len(kept)))
            # As a merge or a filter in user code: a view of part of the rows.
            rest = batch.slice(1) if batch.num_rows > 1 else batch
            kept.append((value + batch.num_rows - rest.num_rows, rest))
            del batch, rest
        assert reservation.region.pinned_count <= 3
        assert [batch.column(0)[0].as_py() for _, batch in kept] == [first for first, _ in kept]
    queued.clear()
    reservation.close()
    kept.clear()
    assert network.count_idle_pages() == network.total_pages


def test_memory_that_nobody_receives_into_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: list[int] = []

    def map_memory(size_bytes: int) -> mmap.mmap:
        mapped.append(size_bytes)
        return mmap.mmap(-1, size_bytes)

    monkeypatch.setattr(segments, "_map", map_memory)
    memory = SegmentMemory(16, 4096, 4)
    assert mapped == []
    for _ in range(2):
        assert memory.open_region(2, 1, 1) is not None
    assert mapped == [16 * 4096]
