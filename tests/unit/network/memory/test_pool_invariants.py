"""The laws of network memory: exact shares, no sleeper beside idle memory, no place twice."""

import gc
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.core.elements import CancelTaskException
from headrace.core.randomness import SeededRandom
from headrace.core.threads import start_thread
from headrace.network.errors import InsufficientBuffersError
from headrace.network.memory.local_buffer_pool import LocalBufferPool, NeverWait, SegmentLease
from headrace.network.memory.network_buffer_pool import NetworkBufferPool, Reservation
from headrace.network.memory.segments import SegmentRegion

PAGE = 1024
DEAD = 0xDD
OVERDRAFT = 2


def local_pool(
    network: NetworkBufferPool, required: int, maximum: int, pages: int = 1, overdraft: int = 0
) -> LocalBufferPool:
    return network.create_local_pool(
        "a test",
        required=required,
        maximum=maximum,
        segment_size=pages * PAGE,
        overdraft_max=overdraft,
        wait=NeverWait(),
    )


@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 60)), min_size=1, max_size=12),
    st.integers(0, 200),
)
def test_what_is_dealt_is_all_there_is_and_nobody_is_a_segment_from_its_share(
    wanted: list[tuple[int, int]], spare: int
) -> None:
    network = NetworkBufferPool((sum(required for required, _ in wanted) + spare) * PAGE, PAGE)
    pools = [local_pool(network, required, required + extra) for required, extra in wanted]
    appetites = [min(spare, extra) for _, extra in wanted]
    dealt = min(spare, sum(appetites))
    assert sum(pool.size - pool.required for pool in pools) == dealt
    for pool, appetite in zip(pools, appetites, strict=True):
        share = dealt * appetite / sum(appetites) if sum(appetites) else 0
        assert abs(pool.size - pool.required - share) < 1
        assert pool.size <= pool.maximum


class Waiters(RuleBasedStateMachine):
    """Pools with tasks that wait for them, reservations that come and go, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.network = NetworkBufferPool(24 * PAGE, PAGE)
        self.pools: list[LocalBufferPool] = []
        self.leases: list[SegmentLease] = []
        self.reservations: list[Reservation] = []
        self.asleep: set[int] = set()
        self.used_when_destroyed: dict[LocalBufferPool, int] = {}

    @rule(required=st.integers(1, 4), extra=st.integers(0, 12), pages=st.sampled_from([1, 2, 4]))
    def create(self, required: int, extra: int, pages: int) -> None:
        try:
            self.pools.append(
                local_pool(self.network, required, required + extra, pages, OVERDRAFT)
            )
        except InsufficientBuffersError as error:
            assert error.available < required

    @rule(index=st.integers(0, 100))
    def wait(self, index: int) -> None:
        if not self.pools:
            return
        pool = self.pools[index % len(self.pools)]
        if id(pool) not in self.asleep:
            self.asleep.add(id(pool))
            pool.on_available(lambda: self.wake(pool))

    def wake(self, pool: LocalBufferPool) -> None:
        """Whoever is told finds what it was told of: here nobody else takes it in between."""
        assert pool.is_available, "woken for nothing"
        self.asleep.remove(id(pool))

    @rule(index=st.integers(0, 100), pages=st.integers(1, 5))
    def lease(self, index: int, pages: int) -> None:
        if self.pools:
            pool = self.pools[index % len(self.pools)]
            was_used = pool.used
            lease = pool.try_lease(pages * PAGE)
            if lease is not None:
                self.leases.append(lease)
                assert pool.used == was_used + lease.count
                # Past its overdraft only what is larger than that, and alone.
                assert pool.used <= pool.size + OVERDRAFT or was_used == 0

    @rule(index=st.integers(0, 100))
    def release(self, index: int) -> None:
        if self.leases:
            self.leases.pop(index % len(self.leases)).release()

    @rule(index=st.integers(0, 100), is_full=st.booleans())
    def fill(self, index: int, is_full: bool) -> None:
        if self.pools:
            pool = self.pools[index % len(self.pools)]
            if is_full:
                pool.channel_filled()
            elif pool._full_channel_count:
                pool.channel_drained()

    @rule(count=st.integers(1, 6))
    def reserve(self, count: int) -> None:
        try:
            self.reservations.append(self.network.reserve("a gate", count, PAGE))
        except InsufficientBuffersError as error:
            assert error.available < count

    @rule(index=st.integers(0, 100))
    def close(self, index: int) -> None:
        if self.reservations:
            self.reservations.pop(index % len(self.reservations)).close()

    @rule(index=st.integers(0, 100))
    def destroy(self, index: int) -> None:
        if self.pools:
            pool = self.pools.pop(index % len(self.pools))
            pool.destroy()
            assert id(pool) not in self.asleep, "whoever waits must see that it is over"
            self.used_when_destroyed[pool] = pool.used
            with pytest.raises(CancelTaskException):
                pool.lease(1)
            assert pool.try_lease(1) is None

    @invariant()
    def nobody_sleeps_beside_memory_that_it_may_use(self) -> None:
        for pool in self.pools:
            assert not (id(pool) in self.asleep and pool.is_available)

    @invariant()
    def memory_is_conserved(self) -> None:
        leased = sum(lease.count * lease.pool.pages for lease in self.leases)
        reserved = sum(each.region.count * each.segment_size // PAGE for each in self.reservations)
        assert self.network.count_idle_pages() + leased + reserved == 24
        assert self.network._required_pages <= 24

    @invariant()
    def a_destroyed_pool_only_shrinks(self) -> None:
        for pool, used in self.used_when_destroyed.items():
            assert pool.used <= used
            self.used_when_destroyed[pool] = pool.used


Waiters.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestWaiters = Waiters.TestCase


def test_threads_that_contend_for_the_last_segments_all_get_their_turn() -> None:
    network = NetworkBufferPool(4 * PAGE, PAGE)
    pools = [
        network.create_local_pool(
            "a task", required=2, maximum=4, segment_size=PAGE, overdraft_max=3
        )
        for _ in range(2)
    ]
    done: list[int] = []

    def work(number: int) -> None:
        for turn in range(300):
            lease = pools[number % 2].lease(PAGE * (1 + turn % 2))
            lease.release()
        done.append(number)

    threads = [start_thread(f"task {number}", lambda number=number: work(number)) for number in range(4)]  # fmt: skip
    for thread in threads:
        thread.join(30)
    assert sorted(done) == [0, 1, 2, 3]
    assert network.idle_pages == 4


class Poisoned(deque[int]):
    """The free segments of a region: whoever comes back is overwritten."""

    def __init__(self, region: SegmentRegion) -> None:
        super().__init__(region.free)
        self._region = region

    def append(self, page: int) -> None:
        assert page not in self, "a segment came back twice"
        view = self._region.memory.view(page, self._region.segment_bytes)
        view[:] = bytes([DEAD]) * len(view)
        super().append(page)


def poisoned(network: NetworkBufferPool, count: int, pin_budget: int) -> Reservation:
    reservation = network.reserve("a gate", count, PAGE, pin_budget)
    region = reservation.region
    region.free = Poisoned(region)  # type: ignore[misc]
    return reservation


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(np.full(50, number))})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["receive", "receive", "take", "take", "slice", "view", "drop", "close"]),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_segment_is_in_two_places_whatever_user_code_keeps(steps: list[tuple[str, int]]) -> None:
    network = NetworkBufferPool(16 * PAGE, PAGE)
    gates = [poisoned(network, 3, 2), poisoned(network, 2, 0)]
    queued: list[tuple[int, Reservation, object, pa.Buffer]] = []
    kept: list[tuple[int, Any]] = []
    for number, (step, index) in enumerate(steps):
        gate = gates[index % 2]
        if step == "receive" and sum(each[1] is gate for each in queued) < gate.count:
            message = batch_of(number).serialize().to_pybytes()
            segment = gate.region.acquire(len(message))
            assert segment is not None, "the credit said that there is one"
            segment.place(memoryview(message), 0)[: len(message)] = message
            queued.append((number, gate, segment, segment.buffer()))
            del segment
        elif step == "take" and queued:
            value, source, segment, body = queued.pop(index % len(queued))
            body = source.region.hand_over(segment, body)  # type: ignore[arg-type]
            kept.append((value, pa.ipc.read_record_batch(body, batch_of(0).schema)))
            del segment, body
        elif step in ("slice", "view") and kept:
            value, thing = kept.pop(index % len(kept))
            if isinstance(thing, pa.RecordBatch):
                thing = thing.slice(min(40, thing.num_rows - 1))
                thing = thing if step == "slice" else thing.column(0).to_numpy()
            kept.append((value, thing))
            del thing
        elif step == "drop" and kept:
            kept.pop(index % len(kept))
        elif step == "close":
            queued = [each for each in queued if each[1] is not gate]
            gate.close()
            gates[index % 2] = poisoned(network, 2, 1) if network.count_idle_pages() >= 3 else gate
            if gates[index % 2] is gate:
                break
        for value, thing in kept:
            rows = thing.column(0).to_numpy() if isinstance(thing, pa.RecordBatch) else thing
            assert set(np.asarray(rows)) == {value}
            del rows
    queued.clear()
    kept.clear()
    thing = segment = body = None
    for gate in gates:
        gate.close()
    assert network.count_idle_pages() == 16


@pytest.mark.slow
def test_what_threads_drop_comes_back_once_also_out_of_cycles_that_only_the_collector_finds() -> (
    None
):
    network = NetworkBufferPool(128 * PAGE, PAGE)
    gate = poisoned(network, 8, 40)
    to_drop: deque[object] = deque()
    random = SeededRandom(3)

    def drop() -> None:
        for _ in range(200):
            try:
                to_drop.pop()
            except IndexError:
                gc.collect(0)

    for _ in range(5):
        for number in range(40):
            message = batch_of(number).serialize().to_pybytes()
            segment = gate.region.acquire(len(message))
            assert segment is not None
            segment.place(memoryview(message), 0)[: len(message)] = message
            body = gate.region.hand_over(segment, segment.buffer())
            batch = pa.ipc.read_record_batch(body, batch_of(0).schema)
            holder: list[object] = [batch, batch.column(0).to_numpy(), batch.slice(3)]
            if random.random() < 0.5:
                holder.append(holder)
            to_drop.append(holder)
            del segment, body, batch, holder
        threads = [start_thread(f"user {k}", drop) for k in range(4)]
        for thread in threads:
            thread.join(30)
        to_drop.clear()
        gc.collect()
        assert len(gate.region.free) == 48 and gate.region.pinned_count == 0
    gate.close()
    assert network.count_idle_pages() == 128


@pytest.mark.parametrize("pages", [1, 2, 8])
def test_the_size_of_a_pool_falls_with_every_newcomer_and_rises_with_every_leaver(
    pages: int,
) -> None:
    network = NetworkBufferPool(256 * PAGE, PAGE)
    pools = [local_pool(network, 1, 256, pages) for _ in range(6)]
    sizes = [pools[0].size]
    for pool in pools[:0:-1]:
        pool.destroy()
        sizes.append(pools[0].size)
    assert all(earlier < later for earlier, later in pairwise(sizes))
    assert sizes[-1] == 256 // pages
