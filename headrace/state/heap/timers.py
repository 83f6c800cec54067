"""Timers in memory: one dict per distinct time, and a heap of the times.

Ties come out in order of registration. Source: Flink HeapPriorityQueueSet.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from headrace.core.barriers import CheckpointOptions
from headrace.state.backend import IsEnough, Timer, TimerCallback

_LOOKED_AT_ONCE: Final = 256
_STALE_TIMES_MIN: Final = 64
"""Number of stale entries up to which the heap is not rebuilt."""

Bucket = dict[tuple[Any, Any], None]
"""Keys and namespaces of the timers of one time, in order of registration."""


class FrozenHeapTimers:
    """Frozen timers of a heap queue, grouped by time."""

    is_by_key_group: ClassVar[bool] = False

    def __init__(self, buckets: dict[int, Bucket]) -> None:
        self._buckets = buckets
        # Set by the writing thread, read by the mailbox: one assignment, nothing to lock.
        self.is_released = False

    def __iter__(self) -> Iterator[Timer]:
        for time_ms, bucket in self._buckets.items():
            for key, namespace in bucket:
                yield time_ms, key, namespace

    def release(self) -> None:
        """Allow changes of the buckets again. Idempotent."""
        self._buckets = {}
        self.is_released = True


class HeapTimerQueue:
    """Timer queue in memory.

    Timers of one time share a bucket, so that the heap holds each distinct time once: many keys set timers for the
    same window's end.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._times: list[int] = []
        self._frozen: list[FrozenHeapTimers] = []
        # Times whose buckets are shared with nothing that is frozen.
        self._own_times: set[int] = set()

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Add a timer; no effect if it is there already."""
        bucket = self._bucket(time_ms)
        if bucket is None:
            self._buckets[time_ms] = {(key, namespace): None}
            heapq.heappush(self._times, time_ms)
            if self._frozen:
                self._own_times.add(time_ms)
        else:
            bucket[key, namespace] = None

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Remove a timer; no effect if there is none."""
        bucket = self._bucket(time_ms)
        if bucket is None:
            return
        bucket.pop((key, namespace), None)
        if not bucket:
            del self._buckets[time_ms]
            self._forget_stale_times()

    def next_time_ms(self) -> int | None:
        """Return the time of the first timer, or None without timers."""
        times = self._times
        while times and times[0] not in self._buckets:
            heapq.heappop(times)
        return times[0] if times else None

    def fire_until(
        self, limit_ms: int, fire: TimerCallback, is_enough: IsEnough | None = None
    ) -> bool:
        """Remove and call back every timer with time <= `limit_ms`, also those that callbacks register.

        `is_enough` is called after each of them; if it returns True the others stay, and the result is False.
        """
        while True:
            time_ms = self.next_time_ms()
            if time_ms is None or time_ms > limit_ms:
                return True
            if not self._fire_bucket(time_ms, fire, is_enough):
                time_ms = self.next_time_ms()
                return time_ms is None or time_ms > limit_ms

    def _fire_bucket(self, time_ms: int, fire: TimerCallback, is_enough: IsEnough | None) -> bool:
        """Fire the timers of one time; return False if `is_enough` stopped it."""
        bucket = self._bucket(time_ms)
        assert bucket is not None
        goes_on = True
        # Where it may soon be enough, not all of a million timers are copied for each few that fire.
        for timer in list(islice(bucket, None if is_enough is None else _LOOKED_AT_ONCE)):
            if timer not in bucket:
                continue  # an earlier callback deleted it
            del bucket[timer]
            fire(time_ms, *timer)
            if is_enough is not None and is_enough():
                goes_on = False
                break
            if self._times[0] < time_ms:
                break  # a callback registered an earlier one, which goes first
        if not bucket and self._buckets.get(time_ms) is bucket:
            del self._buckets[time_ms]
        return goes_on

    def freeze(self, options: CheckpointOptions) -> FrozenHeapTimers:
        """Return all present timers. Copies the distinct times; buckets are copied when they change."""
        frozen = FrozenHeapTimers(self._buckets)
        self._frozen.append(frozen)
        self._buckets = dict(self._buckets)
        self._own_times = set()
        return frozen

    def _bucket(self, time_ms: int) -> Bucket | None:
        """Return the timers of a time in a bucket that may be changed."""
        bucket = self._buckets.get(time_ms)
        if bucket is None or not self._frozen or time_ms in self._own_times:
            return bucket
        self._frozen = [frozen for frozen in self._frozen if not frozen.is_released]
        if not self._frozen:
            self._own_times = set()
            return bucket
        self._own_times.add(time_ms)
        copied = self._buckets[time_ms] = dict(bucket)
        return copied

    def _forget_stale_times(self) -> None:
        """Rebuild the heap once more than half of its times have no timers: each moved timer leaves a time behind."""
        if len(self._times) > 2 * len(self._buckets) + _STALE_TIMES_MIN:
            self._times = list(self._buckets)
            heapq.heapify(self._times)
