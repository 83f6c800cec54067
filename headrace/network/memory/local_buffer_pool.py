"""LocalBufferPool: the segments of one partition, their leases, and the ways in which a task waits for more.

All pools of a TaskManager share the lock of its NetworkBufferPool: callbacks are collected under it and
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
    """Strategy by which a task thread waits for segments when the overdraft is used up as well."""

    def wait(self, condition: threading.Condition) -> None:
        """Return after `condition` was notified; called with its lock held."""
        ...


class BlockingWait:
    """Sleeps until a segment comes back; for tasks with a thread of their own."""

    def wait(self, condition: threading.Condition) -> None:
        condition.wait()


class NeverWait:
    """Raises instead of waiting; for tasks that share one thread, where waiting for another task would never end."""

    def wait(self, condition: threading.Condition) -> None:
        raise AssertionError(
            "a cooperative task would block on network memory: give the simulation more network memory"
        )


class SegmentLease:
    """Segments that one sealed batch occupies until all `references` holders have released it."""

    __slots__ = ("count", "pool", "references")

    def __init__(self, pool: "LocalBufferPool", count: int, references: int) -> None:
        self.pool = pool
        self.count = count
        self.references = references

    def release(self, holder_count: int = 1) -> None:
        """Take holders away; any thread."""
        self.pool.release([self] * holder_count)


class LocalBufferPool:
    """The segments of one partition. Its task requests them; any thread returns them.

    The pool is available if a segment is left for the next batch and no subpartition is full. Requests may exceed that
    by `overdraft_max` segments, so that a task can finish its current batch.
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
        """Return whether the next batch finds a segment; True also after `destroy`, so that waiters notice it."""
        return self.is_destroyed or (
            self.used < self.size and self._full_channel_count == 0 and self._has_pages_for(1)
        )

    def on_available(self, callback: Callback) -> None:
        """Call `callback` once, on any thread, as soon as the pool is available; immediately if it is available now."""
        with self._lock:
            if not self.is_available:
                if callback not in self._callbacks:
                    self._callbacks.append(callback)
                return
        callback()

    def segments_for(self, size_bytes: int) -> int:
        """Number of segments that a batch of `size_bytes` occupies."""
        return max(1, -(-size_bytes // self.segment_size))

    def try_lease(self, size_bytes: int, references: int = 1) -> SegmentLease | None:
        """Take the segments for a batch, or return None if `lease` would wait or raise."""
        count = self.segments_for(size_bytes)
        with self._lock:
            if self.is_destroyed or not self._can_take(count):
                return None
            self._take(count)
        return SegmentLease(self, count, references)

    def lease(self, size_bytes: int, references: int = 1) -> SegmentLease:
        """Take the segments for a batch, and wait for them if necessary.

        CancelTaskException once the pool is destroyed; RecordTooLargeError if the pool could never hold the batch.
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
        """Take the segments for a batch like `lease`, but return an empty lease where `lease` would wait or raise.

        For batches that must not wait and are bounded by other means. CancelTaskException once the pool is destroyed.
        """
        lease = self.try_lease(size_bytes, references)
        if lease is None and self.is_destroyed:
            raise CancelTaskException("the task's output was closed")
        return lease or SegmentLease(self, 0, references)

    def release(self, leases: Iterable[SegmentLease]) -> None:
        """Release one reference of each lease (all of this pool); the last one frees the segments. Any thread."""
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
        """Record that a subpartition has become full."""
        with self._lock:
            self._full_channel_count += 1

    def channel_drained(self) -> None:
        """Record that a full subpartition has room again."""
        with self._lock:
            self._full_channel_count -= 1
            woken = self.collect_woken()
        run_all(woken)

    def destroy(self) -> None:
        """Refuse further requests and wake all waiters; leased segments are returned one by one. Any thread."""
        with self._lock:
            if self.is_destroyed:
                return
            owed_before = self.owed_pages
            self.is_destroyed = True
            self._network_pool.owe_pages(-owed_before)
            woken = self.collect_woken() + self._network_pool.remove_pool(self)
        run_all(woken)

    def collect_woken(self) -> list[Callback]:
        """Wake blocked requests and return the callbacks to call. Lock held."""
        if self._blocked_count:
            self._condition.notify_all()
        if not self._callbacks or not self.is_available:
            return []
        woken, self._callbacks = self._callbacks, []
        return woken

    @property
    def owed_pages(self) -> int:
        """Pages of the pool's required segments that it does not use now, and may take at any time. Lock held."""
        return 0 if self.is_destroyed else max(0, self.required - self.used) * self.pages

    def _take(self, count: int) -> None:
        owed_before = self.owed_pages
        self.used += count
        self._network_pool.take_pages(count * self.pages)
        self._network_pool.owe_pages(self.owed_pages - owed_before)

    def _can_take(self, count: int) -> bool:
        if self.used + count <= self.size + self._overdraft_max and self._has_pages_for(count):
            return True
        # A batch larger than the current pool, but not than its maximum, is taken alone; else it would wait forever.
        is_alone = self.used == 0 and self.required < count <= self.maximum + self._overdraft_max
        return is_alone and self._network_pool.idle_pages >= count * self.pages

    def _has_pages_for(self, count: int) -> bool:
        """Return whether the network memory has `count` more segments for this pool.

        A pool gets its required segments at once, even if others have not returned pages that they borrowed. Further
        segments are lent, but never those that others require, or two tasks would wait for each other.
        """
        if self.used + count <= self.required:
            return True
        owed_to_others = self._network_pool.owed_pages - self.owed_pages
        return self._network_pool.idle_pages - owed_to_others >= count * self.pages


def run_all(callbacks: list[Callback]) -> None:
    """Call the callbacks collected under the lock, after releasing it."""
    for callback in callbacks:
        callback()
