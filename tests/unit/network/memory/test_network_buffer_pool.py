"""Network memory: who gets how much, and that all of it comes back."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.core.elements import CancelTaskException
from headrace.core.threads import start_thread
from headrace.network.errors import InsufficientBuffersError, RecordTooLargeError
from headrace.network.memory.local_buffer_pool import (
    BlockingWait,
    LocalBufferPool,
    NeverWait,
    SegmentLease,
)
from headrace.network.memory.network_buffer_pool import NetworkBufferPool, Reservation
from headrace.network.memory.sizing import wanted_segment_size

PAGE = 1024


def network_pool(pages: int) -> NetworkBufferPool:
    return NetworkBufferPool(pages * PAGE, PAGE)


def local_pool(
    network: NetworkBufferPool,
    required: int = 2,
    maximum: int = 4,
    segment_pages: int = 1,
    overdraft: int = 0,
) -> LocalBufferPool:
    return network.create_local_pool(
        "a test",
        required=required,
        maximum=maximum,
        segment_size=segment_pages * PAGE,
        overdraft_max=overdraft,
        wait=NeverWait(),
    )


def test_a_pool_takes_up_to_its_size_and_then_its_overdraft() -> None:
    pool = local_pool(network_pool(10), required=2, maximum=2, overdraft=1)
    assert pool.is_available
    leases = [pool.lease(1) for _ in range(2)]
    assert not pool.is_available
    leases.append(pool.lease(1))
    assert pool.try_lease(1) is None
    pool.release(leases)
    assert pool.is_available


def test_a_full_channel_makes_the_pool_unavailable_but_not_empty() -> None:
    pool = local_pool(network_pool(10))
    pool.channel_filled()
    assert not pool.is_available
    assert pool.try_lease(1) is not None
    called: list[str] = []
    pool.on_available(lambda: called.append("free"))
    pool.channel_drained()
    assert called == ["free"]


def test_what_nobody_requires_is_dealt_in_proportion() -> None:
    network = network_pool(100)
    small = local_pool(network, required=10, maximum=30)
    assert small.size == 30
    large = local_pool(network, required=10, maximum=1000)
    # 80 to spare: appetites of 20 and 80.
    assert (small.size, large.size) == (26, 74)
    large.destroy()
    assert small.size == 30


def test_minimums_that_do_not_fit_are_refused_with_the_options_named() -> None:
    network = network_pool(10)
    local_pool(network, required=8, maximum=8)
    with pytest.raises(
        InsufficientBuffersError, match=r"taskmanager\.memory\.network\.max"
    ) as caught:
        local_pool(network, required=3, maximum=3)
    assert (caught.value.required, caught.value.available) == (3, 2)


def test_segments_become_smaller_before_a_task_is_refused() -> None:
    network = network_pool(100)
    sizes = [local_pool(network, 2, 2, segment_pages=8).segment_size // PAGE for _ in range(16)]
    # Each takes no more than a quarter of what it finds.
    assert sizes == [8, 8, 8, 4, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]


def test_a_reservation_is_all_or_nothing() -> None:
    network = network_pool(24)
    reservation = network.reserve("a gate", 3, 2 * PAGE)
    assert (network.idle_pages, reservation.segment_size) == (18, 2 * PAGE)
    with pytest.raises(InsufficientBuffersError):
        network.reserve("a gate", 19, PAGE)
    reservation.close()
    reservation.close()
    assert network.idle_pages == 24


def test_a_shared_batch_is_freed_by_its_last_holder() -> None:
    pool = local_pool(network_pool(10))
    lease = pool.lease(1, references=3)
    lease.release()
    lease.release()
    assert pool.used == 1
    lease.release()
    assert pool.used == 0
    with pytest.raises(AssertionError, match="released twice"):
        lease.release()


def test_a_batch_larger_than_a_segment_takes_several() -> None:
    pool = local_pool(network_pool(10))
    lease = pool.lease(2 * PAGE + 1)
    assert (lease.count, pool.used) == (3, 3)


def test_a_batch_that_never_fits_is_refused() -> None:
    pool = local_pool(network_pool(100), maximum=4, overdraft=1)
    with pytest.raises(RecordTooLargeError, match="of 6144 bytes does not fit the 5120 bytes"):
        pool.lease(6 * PAGE)


def test_a_batch_larger_than_the_pool_now_goes_alone() -> None:
    network = network_pool(10)
    other = local_pool(network, required=6, maximum=6)
    pool = local_pool(network, required=2, maximum=8)
    assert pool.size == 4
    small = pool.lease(1)
    assert pool.try_lease(6 * PAGE) is None
    small.release()
    large = pool.try_lease(6 * PAGE)
    assert large is not None and large.count == 6
    assert pool.try_lease(1) is None
    large.release()
    other.destroy()


def test_a_destroyed_pool_refuses_and_takes_back() -> None:
    network = network_pool(10)
    pool = local_pool(network)
    lease = pool.lease(1)
    called: list[str] = []
    pool.channel_filled()
    pool.on_available(lambda: called.append("woken"))
    pool.destroy()
    pool.destroy()
    assert called == ["woken"]
    with pytest.raises(CancelTaskException):
        pool.lease(1)
    lease.release()
    assert network.idle_pages == 10


def test_a_segment_that_comes_back_to_one_pool_wakes_another_that_lacks_memory() -> None:
    network = network_pool(5)
    first = local_pool(network, required=2, maximum=2, overdraft=2)
    second = local_pool(network, required=2, maximum=3)
    lent = [first.lease(1) for _ in range(3)]
    own = [second.lease(1) for _ in range(2)]
    assert not second.is_available
    called: list[str] = []
    second.on_available(lambda: called.append("free"))
    first.release(lent[:1])
    assert called == ["free"]
    second.release(own)


def test_an_overdraft_takes_nothing_that_other_pools_require() -> None:
    """A source would fill all memory otherwise, and wait for its consumer, which could write nothing."""
    network = network_pool(4)
    source = local_pool(network, required=2, maximum=2, overdraft=2)
    consumer = local_pool(network, required=2, maximum=2)
    for _ in range(2):
        source.lease(1)
    assert source.try_lease(1) is None
    assert consumer.is_available
    assert consumer.try_lease(1) is not None and consumer.try_lease(1) is not None


def test_a_pool_gets_what_it_requires_where_others_were_lent_it_before_it_was_opened() -> None:
    network = network_pool(4)
    source = local_pool(network, required=2, maximum=4)
    lent = [source.lease(1) for _ in range(4)]
    consumer = local_pool(network, required=2, maximum=2)
    assert consumer.is_available
    own = consumer.lease(1)
    assert network.idle_pages == -1
    source.release(lent)
    own.release()
    assert network.idle_pages == 4


def test_a_callback_is_called_at_once_where_there_is_room_and_only_once() -> None:
    pool = local_pool(network_pool(10), required=1, maximum=1)
    called: list[str] = []

    def callback() -> None:
        called.append("free")

    pool.on_available(callback)
    assert called == ["free"]
    lease = pool.lease(1)
    pool.on_available(callback)
    pool.on_available(callback)
    lease.release()
    pool.lease(1).release()
    assert called == ["free", "free"]


def test_a_waiting_request_goes_on_when_a_segment_comes_back() -> None:
    network = network_pool(10)
    pool = network.create_local_pool(
        "a test", required=1, maximum=1, segment_size=PAGE, overdraft_max=0
    )
    first = pool.lease(1)
    taken: list[SegmentLease] = []
    is_done = threading.Event()
    waiting = start_thread("waiting", lambda: (taken.append(pool.lease(1)), is_done.set()))
    while not pool._blocked_count:
        is_done.wait(0.001)
    assert not taken
    first.release()
    assert is_done.wait(10)
    waiting.join()
    taken[0].release()
    assert network.idle_pages == 10


def test_a_cooperative_task_never_waits() -> None:
    pool = local_pool(network_pool(10), required=1, maximum=1)
    pool.lease(1)
    with pytest.raises(AssertionError, match="would block on network memory"):
        pool.lease(1)


@given(st.integers(1, 5000))
def test_segments_share_the_budget_of_a_gate(channel_count: int) -> None:
    size = wanted_segment_size(channel_count, 32 * 1024)
    assert 32 * 1024 <= size <= 1 << 20
    assert size & (size - 1) == 0
    assert size == 32 * 1024 or size * (channel_count + 8) <= 1.5 * (32 << 20)


@pytest.mark.parametrize(
    ("count", "kib"), [(1, 1024), (16, 1024), (128, 256), (512, 64), (5000, 32)]
)
def test_segment_sizes_of_the_reference(count: int, kib: int) -> None:
    assert wanted_segment_size(count, 32 * 1024) == kib * 1024


class Pools(RuleBasedStateMachine):
    """Pools and reservations that come, lease, release and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network_pool(40)
        self.pools: list[LocalBufferPool] = []
        self.leases: list[SegmentLease] = []
        self.reservations: list[Reservation] = []

    @rule(required=st.integers(1, 6), extra=st.integers(0, 20), pages=st.integers(1, 4))
    def create(self, required: int, extra: int, pages: int) -> None:
        try:
            self.pools.append(
                local_pool(self.network, required, required + extra, pages, overdraft=2)
            )
        except InsufficientBuffersError:
            assert self.network._required_pages + required > 40

    @rule(count=st.integers(1, 6))
    def reserve(self, count: int) -> None:
        try:
            self.reservations.append(self.network.reserve("a gate", count, PAGE))
        except InsufficientBuffersError:
            assert self.network._required_pages + count > 40

    @rule(index=st.integers(0, 100), pages=st.integers(1, 3))
    def lease(self, index: int, pages: int) -> None:
        if self.pools:
            lease = self.pools[index % len(self.pools)].try_lease(pages * PAGE)
            if lease is not None:
                self.leases.append(lease)

    @rule(index=st.integers(0, 100))
    def release(self, index: int) -> None:
        if self.leases:
            self.leases.pop(index % len(self.leases)).release()

    @rule(index=st.integers(0, 100))
    def destroy(self, index: int) -> None:
        if self.pools:
            self.pools.pop(index % len(self.pools)).destroy()

    @rule(index=st.integers(0, 100))
    def close(self, index: int) -> None:
        if self.reservations:
            self.reservations.pop(index % len(self.reservations)).close()

    @invariant()
    def every_page_is_somewhere(self) -> None:
        leased = sum(lease.count * lease.pool.pages for lease in self.leases)
        reserved = sum(reservation.count for reservation in self.reservations)
        assert self.network.idle_pages + leased + reserved == 40

    @invariant()
    def each_pool_can_have_what_it_requires(self) -> None:
        owed = [pool.owed_pages for pool in self.pools]
        assert self.network.owed_pages == sum(owed)
        for pool in self.pools:
            if pool.used < pool.required:
                lease = pool.try_lease(1)
                assert lease is not None
                lease.release()

    @invariant()
    def sizes_stay_within_bounds(self) -> None:
        dealt = sum(reservation.count for reservation in self.reservations)
        for pool in self.pools:
            assert pool.required <= pool.size <= pool.maximum
            dealt += pool.size * pool.pages
        assert dealt <= 40


Pools.TestCase.settings = settings(max_examples=25, stateful_step_count=40)
TestPools = Pools.TestCase


def test_a_destroyed_pool_deals_nothing_and_keeps_nobody_waiting() -> None:
    network = network_pool(10)
    pool = local_pool(network)
    pool.destroy()
    assert pool.try_lease(1) is None
    for ask in (pool.lease, pool.borrow):
        with pytest.raises(CancelTaskException):
            ask(1)
    told: list[str] = []
    pool.on_available(lambda: told.append("look and see"))
    assert told == ["look and see"]
    assert (pool.used, network.idle_pages) == (0, 10)


def test_a_request_that_waits_ends_when_its_pool_is_destroyed() -> None:
    network = network_pool(10)
    waits = threading.Event()

    class ToldWait(BlockingWait):
        def wait(self, condition: threading.Condition) -> None:
            waits.set()
            super().wait(condition)

    pool = network.create_local_pool(
        "a test", required=1, maximum=1, segment_size=PAGE, overdraft_max=0, wait=ToldWait()
    )
    held = pool.lease(1)
    ended: list[str] = []

    def ask() -> None:
        with pytest.raises(CancelTaskException):
            pool.lease(1)
        ended.append("cancelled")

    waiting = start_thread("waiting", ask)
    assert waits.wait(10)
    pool.destroy()
    waiting.join(10)
    assert ended == ["cancelled"]
    held.release()
    assert network.idle_pages == 10
