"""NetworkBufferPool: all network memory of a TaskManager, with a reservation for each gate.

The pools of partitions are in local_buffer_pool.py. A partition's segments are accounts: a sealed batch occupies as
many as its bytes need, while the bytes themselves lie where Arrow allocated them, and are written to the socket, or
handed over, from there. A gate's segments are places, in which batches of other processes are received (see
segments.py). Both are paid from the same pages, so that the sum of all batches on their way stays below network memory.
Segments of one gate or partition have one size, a power of two of pages (`taskmanager.memory.segment-size`): large
where few channels share the budget, small where many do or memory becomes scarce, before any task is refused.

One lock guards all pools of a TaskManager. The sections under it are integer arithmetic, and with a single lock there
is no order of locks to get wrong; whom to wake is collected under it and called after it.
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
"""Segments are larger than a page as long as those of one gate or partition take no more than this part of what is
left: what is comfortable for the first tasks must not be missing to the last."""


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
        """Pages that pools require and do not use now: nobody else is lent them."""
        self._required_pages = 0
        # Of those: of closed gates, whose batches somebody refers to, or has let go of in a circle of references.
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
        """Pages that nobody needs for certain."""
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

        InsufficientBuffersError where not even segments of one page are left for `required`.
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
        """Set `count` segments aside, all or none, for a gate; and `pin_budget` more, if there is room for them.

        InsufficientBuffersError; NetworkMemoryError.
        """
        self._reclaim(count, segment_size, pin_budget)
        with self.lock:
            pages, pin_budget = self._affordable(owner, count, segment_size, pin_budget)
            region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            while region is None:
                # What is free lies too scattered for segments of this size.
                assert pages > 1, "fewer pages are free than the accounts say"
                pages //= 2
                region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            self._required_pages += region.count * pages
            self.take_pages(region.count * pages)
            woken = self._redistribute()
        run_all(woken)
        return Reservation(self, count, region)

    def take_pages(self, count: int) -> None:
        """Count pages as used. Lock held.

        A reservation, or a pool that takes what it requires, may take what other pools have been lent and have not
        brought back: until they do, fewer than none are idle.
        """
        self.idle_pages -= count

    def owe_pages(self, change: int) -> None:
        """Count so many pages more, or fewer, as required by pools that do not use them. Lock held."""
        self.owed_pages += change
        assert self.owed_pages >= 0, "a pool took more of its required segments than it has"

    def give_back_pages(self, count: int) -> None:
        """Count pages as idle again. Lock held."""
        self.idle_pages += count
        assert self.idle_pages <= self.total_pages, "more pages came back than were taken"

    def close_region(self, region: SegmentRegion) -> None:
        """Take the segments of a gate back; those that user code still refers to come later."""
        with self.lock:
            self._memory.close_region(region)
            self._closing_pages += region.count << region.order
            self._sweep()
            woken = self._redistribute()
        run_all(woken)

    def remove_pool(self, pool: LocalBufferPool) -> list[Callback]:
        """Forget a destroyed pool; whom to wake. Called with the lock held."""
        self._pools.remove(pool)
        self._required_pages -= pool.required * pool.pages
        return self._redistribute()

    def count_idle_pages(self) -> int:
        """Return the pages that nobody uses, up to date; `idle_pages` may not know yet what user code let go of."""
        with self.lock:
            self._sweep()
            return self.idle_pages

    def wake_up(self) -> list[Callback]:
        """Collect callbacks of pools that can be used now, and notify their blocked threads. Lock held."""
        self._sweep()
        woken: list[Callback] = []
        for pool in self._pools:
            woken += pool.collect_woken()
        return woken

    def _affordable(
        self, owner: str, count: int, segment_size: int, pin_budget: int = 0
    ) -> tuple[int, int]:
        """Pages per segment and pin budget. Lock held. InsufficientBuffersError."""
        left = self.total_pages - self._required_pages
        shape = self._shape(left, count, segment_size, pin_budget)
        if shape is None:
            raise InsufficientBuffersError(owner, count, left, self.total_pages, self.page_bytes)
        return shape

    def _shape(
        self, left: int, count: int, segment_size: int, pin_budget: int
    ) -> tuple[int, int] | None:
        """Pages per segment and pin budget where `left` pages are; None: not even the smallest segments fit.

        The pages are a power of two, and more than one only where that leaves enough for those to come.
        """
        pages = 1 << _order(segment_size, self.page_bytes)
        while pages > 1 and count * pages > left // COMFORT_SHARE:
            pages //= 2
        if count * pages > left:
            return None
        return pages, pin_budget if (count + pin_budget) * pages <= left // 2 else 0

    def _reclaim(self, count: int, segment_size: int, pin_budget: int = 0) -> None:
        """Count in what nobody refers to any more; look for it where more or larger segments may be had of it.

        Tasks that were stopped amid a batch go in circles of references, which only garbage collection takes apart; and
        nothing makes an idle process collect. A task keeps the segments that it begins with.
        """
        with self.lock:
            self._sweep()
            left = self.total_pages - self._required_pages
            most = left + self._closing_pages
            must_collect = self._shape(left, count, segment_size, pin_budget) != self._shape(
                most, count, segment_size, pin_budget
            )
        if must_collect:
            # Not under the lock: whoever is collected may give back segments itself.
            gc.collect()
            self.count_idle_pages()

    def _sweep(self) -> None:
        """Count the pages in that user code has let go of since their gate was closed."""
        if self._memory.is_closing:
            swept = self._memory.sweep()
            self._required_pages -= swept
            self._closing_pages -= swept
            self.give_back_pages(swept)

    def _redistribute(self) -> list[Callback]:
        """Deal what nobody requires to the pools that can use it, in proportion to what they can use."""
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
    """Segments set aside for one gate: `count` for batches on their way, and those of the region's pin budget."""

    def __init__(self, network_pool: NetworkBufferPool, count: int, region: SegmentRegion) -> None:
        self._network_pool = network_pool
        self.count: Final = count
        self.region: Final = region
        self.segment_size: Final = region.segment_bytes
        self._is_closed = False

    def close(self) -> None:
        """Give everything back; no effect the second time."""
        if not self._is_closed:
            self._is_closed = True
            self._network_pool.close_region(self.region)


def _order(size_bytes: int, page_bytes: int) -> int:
    """Return the largest k for which 2^k pages are at most `size_bytes`; 0 at least."""
    return max(0, (size_bytes // page_bytes).bit_length() - 1)
