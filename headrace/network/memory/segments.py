"""Segments: the places in network memory that batches of other processes are received into, and are used from.

A large body is read from the socket straight into a segment and becomes an Arrow batch there without being copied.
The batch may live as long as user code likes: the segment is free again when the last array, slice or view of it is
gone. So that kept batches cannot starve the gate, only `pin_budget` of its segments may be out with the task at once;
a batch beyond that is copied when it is handed over. Credit is therefore returned at the hand-over in any case and
never waits for a finaliser. A finaliser may run on any thread and within garbage collection: all it does is to append
to a deque. BuddyAllocator says which pages are free.
Source: Flink NetworkBuffer and its recyclers; Knowlton 1965; Knuth, The Art of Computer Programming, 2.5.
"""

import mmap
from collections import deque
from typing import Any, Final

import pyarrow as pa

from headrace.network.memory.sizing import NetworkMemoryError

_ALIGNMENT: Final = 64


class BuddyAllocator:
    """Gives out pages 0 … `page_count` - 1 in aligned blocks of 2^`order` pages, up to 2^`order_max`. Pure.

    A block of size 2^k begins at a multiple of 2^k; its buddy is the other half of the block of twice the size, with
    which it is united as soon as both are free. Taking and freeing costs a few dictionary steps, and the rest never
    falls into pieces smaller than those in use.
    """

    def __init__(self, page_count: int, order_max: int) -> None:
        self.page_count: Final = page_count
        self.order_max: Final = order_max
        self.free_page_count = page_count
        # Insertion-ordered: the block freed last is taken first, while it is in the processor's cache.
        self._free: list[dict[int, None]] = [{} for _ in range(order_max + 1)]
        start = 0
        for order in range(order_max, -1, -1):
            while page_count - start >= 1 << order:
                self._free[order][start] = None
                start += 1 << order

    def take(self, order: int) -> int | None:
        """Return the first page of a free block of 2^`order` pages, or None where there is none."""
        found = next((k for k in range(order, self.order_max + 1) if self._free[k]), None)
        if found is None:
            return None
        page, _ = self._free[found].popitem()
        for k in range(found - 1, order - 1, -1):
            self._free[k][page + (1 << k)] = None
        self.free_page_count -= 1 << order
        return page

    def give_back(self, page: int, order: int) -> None:
        """Free the block that `take(order)` returned as `page`."""
        assert page not in self._free[order], f"page {page} was given back twice"
        self.free_page_count += 1 << order
        while order < self.order_max:
            buddy = page ^ (1 << order)
            if buddy not in self._free[order]:
                break
            del self._free[order][buddy]
            page = min(page, buddy)
            order += 1
        self._free[order][page] = None


class SegmentMemory:
    """One anonymous mapping, made when something is to be received. Guarded by the pool's lock.

    The system provides a page when it is first written to.
    """

    def __init__(self, page_count: int, page_bytes: int, order_max: int) -> None:
        self.page_bytes: Final = page_bytes
        self._buddies = BuddyAllocator(page_count, order_max)
        self._size_bytes = max(1, page_count) * page_bytes
        self._mapping: mmap.mmap | None = None
        self._address = 0
        self._view = memoryview(b"")
        self._closing: list[SegmentRegion] = []

    @property
    def free_page_count(self) -> int:
        """Pages that belong to no region."""
        return self._buddies.free_page_count

    @property
    def is_closing(self) -> bool:
        """Return whether a closed region has segments out."""
        return bool(self._closing)

    def open_region(self, count: int, pin_budget: int, order: int) -> "SegmentRegion | None":
        """Take `count` + `pin_budget` segments of 2^`order` pages, all or none. NetworkMemoryError."""
        if self._mapping is None:
            # Who only sends, or only counts, never comes here.
            self._mapping = _map(self._size_bytes)
            self._address = pa.py_buffer(self._mapping).address
            self._view = memoryview(self._mapping)
        taken: list[int] = []
        for _ in range(count + pin_budget):
            page = self._buddies.take(order)
            if page is None:
                for each in taken:
                    self._buddies.give_back(each, order)
                return None
            taken.append(page)
        return SegmentRegion(self, taken, pin_budget, order)

    def close_region(self, region: "SegmentRegion") -> None:
        """Take back what is free of a region; the rest follows as it becomes free."""
        self._closing.append(region)

    def sweep(self) -> int:
        """Collect the segments of closed regions that became free; return how many pages they have."""
        before = self._buddies.free_page_count
        for region in list(self._closing):
            while region.free:
                self._buddies.give_back(region.free.popleft(), region.order)
                region.count -= 1
            if not region.count:
                self._closing.remove(region)
        return self._buddies.free_page_count - before

    def view(self, page: int, size_bytes: int) -> memoryview:
        """Return the memory at `page`, writable."""
        start = page * self.page_bytes
        return self._view[start : start + size_bytes]

    def address(self, page: int) -> int:
        """Return where `page` is."""
        return self._address + page * self.page_bytes


def _map(size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size_bytes)
    except OSError as error:
        available = size_bytes // 2
        while available and not _can_map(available):
            available //= 2
        raise NetworkMemoryError(size_bytes, available, error.strerror or str(error)) from error


def _can_map(size_bytes: int) -> bool:
    try:
        mmap.mmap(-1, size_bytes).close()
    except OSError:
        return False
    return True


class SegmentRegion:
    """The segments of one gate: as many as it may be sent, and `pin_budget` more.

    `acquire` is for the transport's thread, `hand_over` for the task's.
    """

    def __init__(
        self, memory: SegmentMemory, pages: list[int], pin_budget: int, order: int
    ) -> None:
        self.memory: Final = memory
        self.order: Final = order
        self.segment_bytes: Final = memory.page_bytes << order
        self.pin_budget: Final = pin_budget
        self.count = len(pages)
        # Appended to by finalisers on any thread.
        self.free: Final = deque(pages)
        self.unpinned: Final[deque[None]] = deque()
        self._pinned_count = 0

    @property
    def pinned_count(self) -> int:
        """Segments that are out with the task. Any thread; a moment's reading."""
        return self._pinned_count - len(self.unpinned)

    def acquire(self, body_bytes: int) -> "Segment | None":
        """Return a segment for a body, or None where it would not fit one.

        The credit that pays for the body says that there is one; only a channel that is closed while a body of its
        is on its way may hold one too many.
        """
        if body_bytes > self.segment_bytes:
            return None
        try:
            return Segment(self, self.free.pop(), body_bytes)
        except IndexError:
            return None

    def hand_over(self, segment: "Segment", body: pa.Buffer) -> Any:
        """Return the body as the task may keep it: where it is, within the pin budget, or else copied."""
        while self.unpinned:
            self.unpinned.popleft()
            self._pinned_count -= 1
        if self._pinned_count < self.pin_budget:
            self._pinned_count += 1
            segment.is_pinned = True
            return body
        return pa.py_buffer(body.to_pybytes())


class Segment:
    """One segment while something refers to it: the body on its way in, the queue, or batches made of it."""

    __slots__ = ("_body_bytes", "_page", "_region", "_start", "is_pinned")

    def __init__(self, region: SegmentRegion, page: int, body_bytes: int) -> None:
        self._region = region
        self._page = page
        self._body_bytes = body_bytes
        self._start = 0
        self.is_pinned = False

    def place(self, head: memoryview, extra_bytes: int) -> memoryview:
        """Return memory for the message that begins with `head`, and up to `extra_bytes` behind it.

        Where there is room to choose, it begins so that its columns are aligned.
        """
        size = self._region.segment_bytes
        start = _aligned_start(head)
        if start + self._body_bytes <= size:
            self._start = start
        end = min(size, self._start + self._body_bytes + extra_bytes)
        return self._region.memory.view(self._page, size)[self._start : end]

    def buffer(self) -> pa.Buffer:
        """Return the message, read-only; it keeps the segment."""
        address = self._region.memory.address(self._page) + self._start
        return pa.foreign_buffer(address, self._body_bytes, self)

    def __del__(self) -> None:
        self._region.free.append(self._page)
        if self.is_pinned:
            self._region.unpinned.append(None)


def _aligned_start(head: memoryview) -> int:
    """Return where a message has to begin for the columns behind its metadata to be aligned.

    An encapsulated Arrow message begins with a marker and the length of its metadata, 4 bytes each, little-endian.
    """
    if len(head) < 8:
        return 0
    return -(8 + int.from_bytes(head[4:8], "little")) % _ALIGNMENT
