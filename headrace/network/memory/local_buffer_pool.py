"""LocalBufferPool: the segments of one partition, what holds them, and how a task waits for more.

All pools of a TaskManager share the lock of its NetworkBufferPool: whom to wake is collected under it and
called after it. Source: Flink LocalBufferPool.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from headrace.core.elements import CancelTaskException
from headrace.network.errors import RecordTooLargeError

if TYPE_CHECKING:
    from headrace.network.memory.network_buffer_pool import NetworkBufferPool

Callback = Callable[[], None]


class WaitStrategy(Protocol):
    """Strategy by which a task thread waits when not even the overdraft is left."""

    def wait(self, condition: threading.Condition) -> None:
        """Return after `condition` was notified; called with its lock held."""
        ...


class BlockingWait:
    """Sleeps until a segment comes back: for tasks that have a thread."""

    def wait(self, condition: threading.Condition) -> None:
        condition.wait()


class NeverWait:
    """Refuses to wait: for tasks that share one thread, where waiting for another task would never end."""

    def wait(self, condition: threading.Condition) -> None:
        raise AssertionError(
            "a cooperative task would block on network memory: give the simulation more of it"
        )


class SegmentLease:
    """Segments that one sealed batch occupies until `references` holders have released it."""

    __slots__ = ("count", "pool", "references")

    def __init__(self, pool: "LocalBufferPool", count: int, references: int) -> None:
        self.pool = pool
        self.count = count
        self.references = references

    def release(self, holder_count: int = 1) -> None:
        """Take holders away; any thread."""
        self.pool.release([self] * holder_count)


class LocalBufferPool:
    """The segments of one partition. Requests come from its task, returns from anywhere.

    Available means: a segment is left for the next batch and no subpartition is full. Requests may go `overdraft_max`
    segments further, so that a task can finish the batch at hand.
    """

    def __init__(
        self,
        network_pool: "NetworkBufferPool",
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
        """Return whether the next batch finds a segment; also once destroyed, so that waiters look and see."""
        return self.is_destroyed or (
            self.used < self.size and self._full_channel_count == 0 and self._has_pages_for(1)
        )

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
            self._take(count)
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
            self._take(count)
        return SegmentLease(self, count, references)

    def borrow(self, size_bytes: int, references: int = 1) -> SegmentLease:
        """Take the segments for a batch as `lease`, but for nothing where it would wait or raise.

        For what may not wait, and is bounded by other means. CancelTaskException once the pool is destroyed.
        """
        lease = self.try_lease(size_bytes, references)
        if lease is None and self.is_destroyed:
            raise CancelTaskException("the task's output was closed")
        return lease or SegmentLease(self, 0, references)

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
                owed_before = self.owed_pages
                self.used -= freed
                self._network_pool.give_back_pages(freed * self.pages)
                self._network_pool.owe_pages(self.owed_pages - owed_before)
                woken = self._network_pool.wake_up()
        run_all(woken)

    def channel_filled(self) -> None:
        """Take note that a subpartition reached the most it should hold."""
        with self._lock:
            self._full_channel_count += 1

    def channel_drained(self) -> None:
        """Take note that a full subpartition holds less again."""
        with self._lock:
            self._full_channel_count -= 1
            woken = self.collect_woken()
        run_all(woken)

    def destroy(self) -> None:
        """Refuse further requests and wake everybody; segments on their way come back one by one. Any thread."""
        with self._lock:
            if self.is_destroyed:
                return
            owed_before = self.owed_pages
            self.is_destroyed = True
            self._network_pool.owe_pages(-owed_before)
            woken = self.collect_woken() + self._network_pool.remove_pool(self)
        run_all(woken)

    def collect_woken(self) -> list[Callback]:
        """Wake blocked requests and return the callbacks that are due. Lock held."""
        if self._blocked_count:
            self._condition.notify_all()
        if not self._callbacks or not self.is_available:
            return []
        woken, self._callbacks = self._callbacks, []
        return woken

    @property
    def owed_pages(self) -> int:
        """Pages of its required segments that the pool does not use now, and may take at any time. Lock held."""
        return 0 if self.is_destroyed else max(0, self.required - self.used) * self.pages

    def _take(self, count: int) -> None:
        owed_before = self.owed_pages
        self.used += count
        self._network_pool.take_pages(count * self.pages)
        self._network_pool.owe_pages(self.owed_pages - owed_before)

    def _can_take(self, count: int) -> bool:
        if self.used + count <= self.size + self._overdraft_max and self._has_pages_for(count):
            return True
        # A batch larger than the pool is now, though not than it may become, goes alone, or it would never go.
        is_alone = self.used == 0 and self.required < count <= self.maximum + self._overdraft_max
        return is_alone and self._network_pool.idle_pages >= count * self.pages

    def _has_pages_for(self, count: int) -> bool:
        """Return whether the network memory has so many segments for this pool.

        Those that a pool requires it always gets: whoever was lent what belongs to others waits for them to go on. More
        than that is lent, and not of what others require, or two tasks would wait for each other.
        """
        if self.used + count <= self.required:
            return True
        owed_to_others = self._network_pool.owed_pages - self.owed_pages
        return self._network_pool.idle_pages - owed_to_others >= count * self.pages


def run_all(callbacks: list[Callback]) -> None:
    """Call what was collected under the lock; without it."""
    for callback in callbacks:
        callback()
