"""Network memory: one NetworkBufferPool per TaskManager, a LocalBufferPool per partition, a reservation per gate.

A partition's segments are accounts: a sealed batch occupies as many as its bytes need, while the bytes themselves lie
where Arrow allocated them, and are written to the socket, or handed over, from there. A gate's segments are places, in
which batches of other processes are received (see segments.py). Both are paid from the same pages, so that the sum of
all batches on their way stays below network memory.
Segments of one gate or partition have one size, a power of two of pages (`taskmanager.memory.segment-size`): large
where few channels share the budget, small where many do or memory becomes scarce, before any task is refused.

One lock guards all pools of a TaskManager. The sections under it are integer arithmetic, and with a single lock there
is no order of locks to get wrong; whom to wake is collected under it and called after it.
Source: Flink NetworkBufferPool and LocalBufferPool.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.elements import CancelTaskException
from headrace.network.errors import InsufficientBuffersError, RecordTooLargeError
from headrace.network.segments import SegmentMemory, SegmentRegion

SEGMENT_SIZE: Final = ConfigOption(
    "taskmanager.memory.segment-size", SizeBytes, SizeBytes(32 * 1024),
    "The smallest network segment. Gates and partitions with few channels use a multiple of it, up to 1 mb.",
)  # fmt: skip
NETWORK_FRACTION: Final = ConfigOption(
    "taskmanager.memory.network.fraction", float, 0.1,
    "Share of the machine's memory that batches on their way between tasks may occupy, within the bounds below.",
)  # fmt: skip
NETWORK_MIN: Final = ConfigOption(
    "taskmanager.memory.network.min", SizeBytes, SizeBytes(64 << 20), "Least network memory of a TaskManager."
)  # fmt: skip
NETWORK_MAX: Final = ConfigOption(
    "taskmanager.memory.network.max", SizeBytes, SizeBytes(1 << 30), "Most network memory of a TaskManager."
)  # fmt: skip
BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.buffers-per-channel", int, 2,
    "Exclusive segments of each remote channel: what a producer may send before it hears from the consumer.",
)  # fmt: skip
FLOATING_BUFFERS_PER_GATE: Final = ConfigOption(
    "taskmanager.network.memory.floating-buffers-per-gate", int, 8,
    "Segments that the channels of a gate share, given to those with a backlog.",
)  # fmt: skip
MAX_BUFFERS_PER_CHANNEL: Final = ConfigOption(
    "taskmanager.network.memory.max-buffers-per-channel", int, 10,
    "A subpartition that holds so many batches makes its task back-pressured.",
)  # fmt: skip
MAX_OVERDRAFT_BUFFERS: Final = ConfigOption(
    "taskmanager.network.memory.max-overdraft-buffers-per-gate", int, 5,
    "Segments beyond its pool that a task may take to finish the batch at hand instead of blocking.",
)  # fmt: skip

PINNED_BUFFERS_PER_GATE: Final = ConfigOption(
    "headrace.network.pinned-buffers-per-gate", int, 8,
    "Received batches that user code may keep in network memory, as long as it likes; further ones are copied out.",
)  # fmt: skip

GATE_BUDGET_BYTES: Final = 32 << 20
SEGMENT_BYTES_MAX: Final = 1 << 20
COMFORT_SHARE: Final = 4
"""Segments are larger than a page as long as those of one gate or partition take no more than this part of what is
left: what is comfortable for the first tasks must not be missing to the last."""

Callback = Callable[[], None]


class WaitStrategy(Protocol):
    """What a task thread does when not even the overdraft is left."""

    def wait(self, condition: threading.Condition) -> None:
        """Return after `condition` was notified; called with its lock held."""
        ...


class BlockingWait:
    """Sleeps until a segment comes back: for tasks that have a thread."""

    def wait(self, condition: threading.Condition) -> None:
        """See WaitStrategy."""
        condition.wait()


class NeverWait:
    """For tasks that share one thread, where waiting for another task would wait for ever."""

    def wait(self, condition: threading.Condition) -> None:
        """See WaitStrategy."""
        raise AssertionError(
            "a cooperative task would block on network memory: give the simulation more of it"
        )


def wanted_segment_size(channel_count: int, page_bytes: int) -> int:
    """Return the size at which `channel_count` channels and their floating segments share the budget of a gate."""
    share = GATE_BUDGET_BYTES // (channel_count + 8)
    nearest = 1 << max(0, round(share - 1).bit_length() - 1)
    if share - nearest > 2 * nearest - share:
        nearest *= 2
    return max(page_bytes, min(nearest, SEGMENT_BYTES_MAX) // page_bytes * page_bytes)


def network_memory_bytes(settings: Settings, machine_memory_bytes: int) -> int:
    """Return `fraction` of the machine's memory within the configured bounds."""
    wanted = int(machine_memory_bytes * settings.get_option(NETWORK_FRACTION))
    lower, upper = settings.get_option(NETWORK_MIN), settings.get_option(NETWORK_MAX)
    return max(lower, min(wanted, max(lower, upper)))


class NetworkBufferPool:
    """All network memory of a TaskManager, counted in pages. Never grows; thread-safe."""

    def __init__(self, total_bytes: int, page_bytes: int) -> None:
        self.page_bytes: Final = page_bytes
        self.total_pages: Final = total_bytes // page_bytes
        self.lock: Final = threading.Lock()
        self.idle_pages = self.total_pages
        self._memory = SegmentMemory(
            self.total_pages, page_bytes, _order(SEGMENT_BYTES_MAX, page_bytes)
        )
        self._required_pages = 0
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
    ) -> "LocalBufferPool":
        """Open a pool of `required` to `maximum` segments of at most `segment_size` bytes.

        InsufficientBuffersError where not even segments of one page are left for `required`.
        """
        with self.lock:
            pages = self._affordable_pages(owner, required, segment_size)
            pool = LocalBufferPool(
                self, required, maximum, pages, overdraft_max, wait or BlockingWait()
            )
            self._required_pages += required * pages
            self._pools.append(pool)
            woken = self._redistribute()
        _run(woken)
        return pool

    def reserve(
        self, owner: str, count: int, segment_size: int, pin_budget: int = 0
    ) -> "Reservation":
        """Set `count` segments aside, all or none, for a gate; and `pin_budget` more, if there is room for them.

        InsufficientBuffersError.
        """
        with self.lock:
            self._sweep()
            pages = self._affordable_pages(owner, count, segment_size)
            left = self.total_pages - self._required_pages
            if pin_budget and (count + pin_budget) * pages > left // 2:
                pin_budget = 0
            region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            while region is None:
                # What is free lies too scattered for segments of this size.
                assert pages > 1, "fewer pages are free than the accounts say"
                pages //= 2
                region = self._memory.open_region(count, pin_budget, pages.bit_length() - 1)
            self._required_pages += region.count * pages
            self.idle_pages -= region.count * pages
            woken = self._redistribute()
        _run(woken)
        return Reservation(self, count, region)

    def close_region(self, region: SegmentRegion) -> None:
        """Take the segments of a gate back; those that user code still refers to come later."""
        with self.lock:
            self._memory.close_region(region)
            self._sweep()
            woken = self._redistribute()
        _run(woken)

    def remove_pool(self, pool: "LocalBufferPool") -> list[Callback]:
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

    def _affordable_pages(self, owner: str, count: int, segment_size: int) -> int:
        """Pages per segment: a power of two, and more than one only where that leaves enough for those to come."""
        pages = 1 << _order(segment_size, self.page_bytes)
        left = self.total_pages - self._required_pages
        while pages > 1 and count * pages > left // COMFORT_SHARE:
            pages //= 2
        if count * pages > left:
            raise InsufficientBuffersError(owner, count, left, self.total_pages, self.page_bytes)
        return pages

    def _sweep(self) -> None:
        """Count the pages in that user code has let go of since their gate was closed."""
        if self._memory.is_closing:
            swept = self._memory.sweep()
            self._required_pages -= swept
            self.idle_pages += swept

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


class SegmentLease:
    """Segments that one sealed batch occupies until `references` holders have released it."""

    __slots__ = ("count", "pool", "references")

    def __init__(self, pool: "LocalBufferPool", count: int, references: int) -> None:
        self.pool = pool
        self.count = count
        self.references = references

    def release(self) -> None:
        """Take one holder away; any thread."""
        self.pool.release([self])


class LocalBufferPool:
    """The segments of one partition. Requests come from its task, returns from anywhere.

    Available means: a segment is left for the next batch and no subpartition is full. Requests may go `overdraft_max`
    segments further, so that a task can finish the batch at hand.
    """

    def __init__(
        self,
        network_pool: NetworkBufferPool,
        required: int,
        maximum: int,
        pages: int,
        overdraft_max: int,
        wait: WaitStrategy,
    ) -> None:
        assert 0 < required <= maximum
        self._network_pool = network_pool
        self._lock = network_pool.lock
        self._condition = threading.Condition(self._lock)
        self._wait = wait
        self._overdraft_max = overdraft_max
        self._callbacks: list[Callback] = []
        self._blocked_count = 0
        self._full_channel_count = 0
        self.required: Final = required
        self.maximum: Final = maximum
        self.pages: Final = pages
        self.segment_size: Final = pages * network_pool.page_bytes
        self.size = required
        self.used = 0
        self.is_destroyed = False

    @property
    def is_available(self) -> bool:
        """Whether the next batch finds a segment; also once destroyed, so that waiters look and see."""
        return self.is_destroyed or (
            self.used < self.size
            and self._full_channel_count == 0
            and self._network_pool.idle_pages >= self.pages
        )

    @property
    def usage(self) -> float:
        """Used segments by size; above 1 with overdraft."""
        return self.used / self.size

    def on_available(self, callback: Callback) -> None:
        """Call `callback` once, from any thread, as soon as the pool is available; now if it is."""
        with self._lock:
            if not self.is_available:
                if callback not in self._callbacks:
                    self._callbacks.append(callback)
                return
        callback()

    def segments_for(self, size_bytes: int) -> int:
        """Segments that a batch of this size occupies."""
        return max(1, -(-size_bytes // self.segment_size))

    def try_lease(self, size_bytes: int, references: int = 1) -> SegmentLease | None:
        """Take the segments for a batch, or return None where `lease` would wait or raise."""
        count = self.segments_for(size_bytes)
        with self._lock:
            if self.is_destroyed or not self._can_take(count):
                return None
            self.used += count
            self._network_pool.idle_pages -= count * self.pages
        return SegmentLease(self, count, references)

    def lease(self, size_bytes: int, references: int = 1) -> SegmentLease:
        """Take the segments for a batch, waiting for them if need be.

        CancelTaskException once the pool is destroyed; RecordTooLargeError where it could never hold the batch.
        """
        count = self.segments_for(size_bytes)
        if count > self.maximum + self._overdraft_max:
            limit = (self.maximum + self._overdraft_max) * self.segment_size
            raise RecordTooLargeError(size_bytes, limit)
        with self._lock:
            while not self.is_destroyed and not self._can_take(count):
                self._blocked_count += 1
                try:
                    self._wait.wait(self._condition)
                finally:
                    self._blocked_count -= 1
            if self.is_destroyed:
                raise CancelTaskException("the task's output was closed")
            self.used += count
            self._network_pool.idle_pages -= count * self.pages
        return SegmentLease(self, count, references)

    def release(self, leases: Iterable[SegmentLease]) -> None:
        """Take one holder away from each lease (all of this pool); the last one frees the segments. Any thread."""
        freed = 0
        woken: list[Callback] = []
        with self._lock:
            for lease in leases:
                assert lease.references > 0, "a segment was released twice"
                lease.references -= 1
                if lease.references == 0:
                    freed += lease.count
            if freed:
                self.used -= freed
                self._network_pool.idle_pages += freed * self.pages
                woken = self._network_pool.wake_up()
        _run(woken)

    def channel_filled(self) -> None:
        """Take note that a subpartition reached the most it should hold."""
        with self._lock:
            self._full_channel_count += 1

    def channel_drained(self) -> None:
        """Take note that a full subpartition holds less again."""
        with self._lock:
            self._full_channel_count -= 1
            woken = self.collect_woken()
        _run(woken)

    def destroy(self) -> None:
        """Refuse further requests and wake everybody; segments on their way come back one by one. Any thread."""
        with self._lock:
            if self.is_destroyed:
                return
            self.is_destroyed = True
            woken = self.collect_woken() + self._network_pool.remove_pool(self)
        _run(woken)

    def collect_woken(self) -> list[Callback]:
        """Wake blocked requests and return the callbacks that are due. Lock held."""
        if self._blocked_count:
            self._condition.notify_all()
        if not self._callbacks or not self.is_available:
            return []
        woken, self._callbacks = self._callbacks, []
        return woken

    def _can_take(self, count: int) -> bool:
        if self._network_pool.idle_pages < count * self.pages:
            return False
        if self.used + count <= self.size + self._overdraft_max:
            return True
        # A batch larger than the pool is now, though not than it may become, goes alone, or it would never go.
        return self.used == 0 and count <= self.maximum + self._overdraft_max


def _order(size_bytes: int, page_bytes: int) -> int:
    """Return the largest k for which 2^k pages are at most `size_bytes`; 0 at least."""
    return max(0, (size_bytes // page_bytes).bit_length() - 1)


def _run(callbacks: list[Callback]) -> None:
    for callback in callbacks:
        callback()
