"""NetworkBufferPool: all network memory of a TaskManager, with a reservation for each gate.

The pools of partitions are in local_buffer_pool.py. A partition's segments are accounts: a sealed batch occupies as
many as its bytes need, while the bytes themselves lie where Arrow allocated them, and are written to the socket, or
handed over, from there. A gate's segments are places, in which batches of other processes are received (see
segments.py). Both are taken from the same pages, so that all batches in flight together stay below network memory.
Segments of one gate or partition have one size, a power of two of pages (`taskmanager.memory.segment-size`): large
where few channels share the budget, small where many do or memory becomes scarce, before any task is refused.

One lock guards all pools of a TaskManager. The sections under it are integer arithmetic, and a single lock
needs no lock order; callbacks are collected under it and called after it.
Source: Flink NetworkBufferPool.
"""

import gc
import threading
from typing import Final

from headrace.network.errors import InsufficientBuffersError
from headrace.network.memory.local_buffer_pool import (
    BlockingWait,
    Callback,
    LocalBufferPool,
    WaitStrategy,
    run_all,
)
from headrace.network.memory.segments import SegmentMemory, SegmentRegion
from headrace.network.memory.sizing import SEGMENT_BYTES_MAX

COMFORT_SHARE: Final = 4
"""Segments are larger than a page only while one gate or partition takes at most 1 / COMFORT_SHARE of unreserved pages.

This leaves enough for the tasks that start last.
"""


class NetworkBufferPool:
    """Network memory of a TaskManager, counted in pages. Never grows; thread-safe."""

    def __init__(self, total_bytes: int, page_bytes: int) -> None:
        self.page_bytes: Final = page_bytes
        self.total_pages: Final = total_bytes // page_bytes
        self.lock: Final = threading.Lock()
        self.idle_pages = self.total_pages
        self._memory = SegmentMemory(
            self.total_pages, page_bytes, _order(SEGMENT_BYTES_MAX, page_bytes)
        )
        self.owed_pages = 0
        """Pages that pools require and do not use now; they are not lent to other pools."""
        self._required_pages = 0
        # Pages of closed gates among these, whose batches are still referenced, perhaps only by a reference cycle.
        self._closing_pages = 0
        self._pools: list[LocalBufferPool] = []

    @property
    def requested_pages(self) -> int:
        """Pages that would be in use if every pool had its maximum; may exceed the total."""
        with self.lock:
            optional = sum((pool.maximum - pool.required) * pool.pages for pool in self._pools)
            return self._required_pages + optional

    @property
    def unreserved_pages(self) -> int:
        """Pages that no pool or gate has reserved."""
        with self.lock:
            return self.total_pages - self._required_pages

    def create_local_pool(
        self,
        owner: str,
        *,
        required: int,
        maximum: int,
        segment_size: int,
        overdraft_max: int,
        wait: WaitStrategy | None = None,
    ) -> LocalBufferPool:
        """Open a pool of `required` to `maximum` segments of at most `segment_size` bytes.

        InsufficientBuffersError if there are not even enough pages for `required` segments of one page.
        """
        self._reclaim(required, segment_size)
        with self.lock:
            pages, _ = self._affordable(owner, required, segment_size)
            pool = LocalBufferPool(
                self, required, maximum, pages, overdraft_max, wait or BlockingWait()
            )
            self._required_pages += required * pages
            self.owe_pages(required * pages)
            self._pools.append(pool)
            woken = self._redistribute()
        run_all(woken)
        return pool

    def reserve(
        self, owner: str, count: int, segment_size: int, pin_budget: int = 0
    ) -> "Reservation":
        """Set aside `count` segments for a gate, all or none, and `pin_budget` more if there is room.

        InsufficientBuffersError if too few pages are left; NetworkMemoryError if the system does not provide the
        memory.
        """
        self._reclaim(count, segment_size, pin_budget)
        with self.lock:
            pages, pin_budget = self._affordable(owner, count, segment_size, pin_budget)
            region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            while region is None:
                # The free pages are too fragmented for segments of this size.
                assert pages > 1, "fewer pages are free than counted"
                pages //= 2
                region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            self._required_pages += region.count * pages
            self.take_pages(region.count * pages)
            woken = self._redistribute()
        run_all(woken)
        return Reservation(self, count, region)

    def take_pages(self, count: int) -> None:
        """Count `count` pages as used. Lock held.

        A reservation, or a pool that takes its required pages, may take pages that are still lent to
        other pools: until those return them, the number of idle pages is negative.
        """
        self.idle_pages -= count

    def owe_pages(self, change: int) -> None:
        """Change the number of required but unused pages by `change`. Lock held."""
        self.owed_pages += change
        assert self.owed_pages >= 0, "a pool took more required segments than it has"

    def give_back_pages(self, count: int) -> None:
        """Count `count` pages as idle again. Lock held."""
        self.idle_pages += count
        assert self.idle_pages <= self.total_pages, "more pages were returned than were taken"

    def close_region(self, region: SegmentRegion) -> None:
        """Take back the segments of a gate; those that user code still references follow later."""
        with self.lock:
            self._memory.close_region(region)
            self._closing_pages += region.count << region.order
            self._sweep()
            woken = self._redistribute()
        run_all(woken)

    def remove_pool(self, pool: LocalBufferPool) -> list[Callback]:
        """Remove a destroyed pool and return the callbacks to call. Lock held."""
        self._pools.remove(pool)
        self._required_pages -= pool.required * pool.pages
        return self._redistribute()

    def count_idle_pages(self) -> int:
        """Return the number of unused pages, including those that user code has just released.

        `idle_pages` may lag behind.
        """
        with self.lock:
            self._sweep()
            return self.idle_pages

    def wake_up(self) -> list[Callback]:
        """Notify blocked threads of pools that are usable now, and return their callbacks. Lock held."""
        self._sweep()
        woken: list[Callback] = []
        for pool in self._pools:
            woken += pool.collect_woken()
        return woken

    def _affordable(
        self, owner: str, count: int, segment_size: int, pin_budget: int = 0
    ) -> tuple[int, int]:
        """Return pages per segment and pin budget. InsufficientBuffersError if too few pages are left. Lock held."""
        left = self.total_pages - self._required_pages
        shape = self._shape(left, count, segment_size, pin_budget)
        if shape is None:
            raise InsufficientBuffersError(owner, count, left, self.total_pages, self.page_bytes)
        return shape

    def _shape(
        self, left: int, count: int, segment_size: int, pin_budget: int
    ) -> tuple[int, int] | None:
        """Return pages per segment and pin budget if `left` pages remain.

        None if even the smallest segments do not fit. The pages per segment are a power of two, and more than one only
        if enough pages are left for later tasks.
        """
        pages = 1 << _order(segment_size, self.page_bytes)
        while pages > 1 and count * pages > left // COMFORT_SHARE:
            pages //= 2
        if count * pages > left:
            return None
        return pages, pin_budget if (count + pin_budget) * pages <= left // 2 else 0

    def _reclaim(self, count: int, segment_size: int, pin_budget: int = 0) -> None:
        """Count pages that nobody references any more; collect garbage if that may yield more or larger segments.

        Tasks that were stopped during a batch leave reference cycles, which only garbage collection frees, and nothing
        triggers it in an idle process. A task keeps the segment size that it starts with.
        """
        with self.lock:
            self._sweep()
            left = self.total_pages - self._required_pages
            most = left + self._closing_pages
            must_collect = self._shape(left, count, segment_size, pin_budget) != self._shape(
                most, count, segment_size, pin_budget
            )
        if must_collect:
            # Not under the lock: collected objects may return segments themselves.
            gc.collect()
            self.count_idle_pages()

    def _sweep(self) -> None:
        """Count the pages that user code has released since their gate was closed."""
        if self._memory.is_closing:
            swept = self._memory.sweep()
            self._required_pages -= swept
            self._closing_pages -= swept
            self.give_back_pages(swept)

    def _redistribute(self) -> list[Callback]:
        """Distribute the pages that no pool requires among the pools that can use them, in proportion."""
        spare = self.total_pages - self._required_pages
        appetites = [
            min(spare, (pool.maximum - pool.required) * pool.pages) for pool in self._pools
        ]
        total = sum(appetites)
        dealt_total = min(spare, total)
        seen = dealt = 0
        for pool, appetite in zip(self._pools, appetites, strict=True):
            seen += appetite
            share = (dealt_total * seen // total - dealt) if total else 0
            dealt += share
            pool.size = pool.required + share // pool.pages
        return self.wake_up()


class Reservation:
    """Segments set aside for one gate: `count` for received batches, plus the pin budget of the region."""

    def __init__(self, network_pool: NetworkBufferPool, count: int, region: SegmentRegion) -> None:
        self._network_pool = network_pool
        self.count: Final = count
        self.region: Final = region
        self.segment_size: Final = region.segment_bytes
        self._is_closed = False

    def close(self) -> None:
        """Return all segments. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._network_pool.close_region(self.region)


def _order(size_bytes: int, page_bytes: int) -> int:
    """Return the largest k >= 0 for which 2^k pages are at most `size_bytes`; 0 if none is."""
    return max(0, (size_bytes // page_bytes).bit_length() - 1)
