"""Segments: blocks of network memory that receive batches of other processes and hold them while they are used.

A large body is read from the socket straight into a segment and becomes an Arrow batch there without being copied.
The batch may live as long as user code keeps it: the segment is free again when the last array, slice or view of it is
gone. So that kept batches cannot starve the gate, the task may hold only `pin_budget` of its segments at once;
a batch beyond that is copied when it is handed over. Credit is therefore always returned at the hand-over and
never waits for a finaliser. A finaliser may run on any thread and during garbage collection: it only appends
to a deque. BuddyAllocator tracks the free pages.
Source: Flink NetworkBuffer and its recyclers; Knowlton 1965; Knuth, The Art of Computer Programming, 2.5.
"""

import mmap
from collections import deque
from typing import Any, Final

import pyarrow as pa

from headrace.network.memory.sizing import NetworkMemoryError

_ALIGNMENT: Final = 64


class BuddyAllocator:
    """Allocates pages 0 … `page_count` - 1 in aligned blocks of 2^`order` pages, up to 2^`order_max`. Pure.

    A block of size 2^k begins at a multiple of 2^k; its buddy is the other half of the block of twice the size, with
    which it is united as soon as both are free. Taking and freeing costs a few dictionary operations, and free memory
    never fragments into pieces smaller than those in use.
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
        """Return the first page of a free block of 2^`order` pages, or None if there is none."""
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
    """Anonymous memory mapping of all segments, made for the first gate that receives. Guarded by the pool's lock.

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
        """Number of pages that belong to no region."""
        return self._buddies.free_page_count

    @property
    def is_closing(self) -> bool:
        """Return whether a closed region still has segments in use."""
        return bool(self._closing)

    def open_region(self, count: int, pin_budget: int, order: int) -> "SegmentRegion | None":
        """Take `count` + `pin_budget` segments of 2^`order` pages; None if they do not all fit.

        NetworkMemoryError if the system does not provide the memory.
        """
        if self._mapping is None:
            # Not reached by processes that only send.
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
        """Take back the free segments of a region; the rest follows as it becomes free."""
        self._closing.append(region)

    def sweep(self) -> int:
        """Collect freed segments of closed regions; return their number of pages."""
        before = self._buddies.free_page_count
        for region in list(self._closing):
            while region.free:
                self._buddies.give_back(region.free.popleft(), region.order)
                region.count -= 1
            if not region.count:
                self._closing.remove(region)
        return self._buddies.free_page_count - before

    def view(self, page: int, size_bytes: int) -> memoryview:
        """Return writable memory of `size_bytes` at `page`."""
        start = page * self.page_bytes
        return self._view[start : start + size_bytes]

    def address(self, page: int) -> int:
        """Return the memory address of `page`."""
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
    """The segments of one gate: its receive segments, and `pin_budget` more.

    `acquire` is called on the transport's thread, `hand_over` on the task's.
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
        """Number of segments held by the task. Any thread; a snapshot."""
        return self._pinned_count - len(self.unpinned)

    def acquire(self, body_bytes: int) -> "Segment | None":
        """Return a segment for a body, or None if the body is too large or no segment is free.

        The credit that pays for the body guarantees a segment; only a channel closed while its body arrives may hold
        one too many.
        """
        if body_bytes > self.segment_bytes:
            return None
        try:
            return Segment(self, self.free.pop(), body_bytes)
        except IndexError:
            return None

    def hand_over(self, segment: "Segment", body: pa.Buffer) -> Any:
        """Return the body for the task: in place within the pin budget, otherwise copied."""
        while self.unpinned:
            self.unpinned.popleft()
            self._pinned_count -= 1
        if self._pinned_count < self.pin_budget:
            self._pinned_count += 1
            segment.is_pinned = True
            return body
        return pa.py_buffer(body.to_pybytes())


class Segment:
    """One segment while it is referenced: by an arriving body, the queue, or batches made of it."""

    __slots__ = ("_body_bytes", "_page", "_region", "_start", "is_pinned")

    def __init__(self, region: SegmentRegion, page: int, body_bytes: int) -> None:
        self._region = region
        self._page = page
        self._body_bytes = body_bytes
        self._start = 0
        self.is_pinned = False

    def place(self, head: memoryview, extra_bytes: int) -> memoryview:
        """Return memory for the message that begins with `head`, and for up to `extra_bytes` behind it.

        If the segment has room, the message is placed so that its columns are aligned.
        """
        size = self._region.segment_bytes
        start = _aligned_start(head)
        if start + self._body_bytes <= size:
            self._start = start
        end = min(size, self._start + self._body_bytes + extra_bytes)
        return self._region.memory.view(self._page, size)[self._start : end]

    def buffer(self) -> pa.Buffer:
        """Return the message as a read-only buffer, which keeps the segment in use."""
        address = self._region.memory.address(self._page) + self._start
        return pa.foreign_buffer(address, self._body_bytes, self)

    def __del__(self) -> None:
        self._region.free.append(self._page)
        if self.is_pinned:
            self._region.unpinned.append(None)


def _aligned_start(head: memoryview) -> int:
    """Return the offset at which a message must begin so that the columns after its metadata are aligned.

    An encapsulated Arrow message begins with a marker and the length of its metadata, 4 bytes each, little-endian.
    """
    if len(head) < 8:
        return 0
    return -(8 + int.from_bytes(head[4:8], "little")) % _ALIGNMENT
