"""Timers of keyed operators: registered for (time, key, namespace), fired by watermarks and by the wall clock.

`TimerQueue` is pure: one domain's timers, in order of time. `InternalTimerService` adds the two clocks and the
current key. Source: Flink InternalTimerServiceImpl, HeapPriorityQueueSet.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.snapshot_files import SnapshotWriter
from headrace.core.checkpoints import CheckpointOptions
from headrace.core.elements import MIN_TIMESTAMP
from headrace.functions.process import TimeDomain
from headrace.operators.operator import ProcessingTimeService, ScheduledTimer
from headrace.operators.timer_chunks import Timer, read_timers, write_timers
from headrace.state.backend import KeyedStateBackend
from headrace.state.operator_states import StatesOfOperator
from headrace.state.restored import KeySpace

VOID_NAMESPACE: Final = None
"""Namespace of timers of process functions; windows are those of window operators."""

TimerCallback = Callable[[int, Any, Any], None]
"""Called with (time, key, namespace) of a timer that fires; the key is current."""


IsEnough = Callable[[], bool]
"""Whether the timers that are still due had better wait."""

_LOOKED_AT_ONCE: Final = 256

Bucket = dict[tuple[Any, Any], None]
"""Keys and namespaces of the timers of one time, in order of registration."""


class FrozenQueue:
    """The timers of a queue as they were when it was frozen. Any thread; `release` ends it."""

    def __init__(self, buckets: dict[int, Bucket]) -> None:
        self._buckets = buckets
        # Set by the writing thread, read by the mailbox: one assignment, nothing to lock.
        self.is_released = False

    def __iter__(self) -> Iterator[Timer]:
        for time_ms, bucket in self._buckets.items():
            for key, namespace in bucket:
                yield time_ms, key, namespace

    def release(self) -> None:
        """Let the buckets change again. Idempotent."""
        self._buckets = {}
        self.is_released = True


class TimerQueue:
    """A set of (time, key, namespace), taken out in order of time; ties in order of registration.

    Timers of one time share a bucket, so that the heap holds each distinct time once: many keys set timers for the
    same window's end.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._times: list[int] = []
        self._frozen: list[FrozenQueue] = []
        # Times whose buckets are shared with nothing that is frozen.
        self._own_times: set[int] = set()

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Add a timer; one that is there already stays one."""
        bucket = self._bucket(time_ms)
        if bucket is None:
            self._buckets[time_ms] = {(key, namespace): None}
            heapq.heappush(self._times, time_ms)
            if self._frozen:
                self._own_times.add(time_ms)
        else:
            bucket[key, namespace] = None

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Remove a timer; no effect where there is none."""
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
        """Remove and call back every timer with time <= `limit_ms`, also those that callbacks register meanwhile.

        `is_enough` is asked behind each of them; where it says so, the others stay. False where some did.
        """
        while True:
            time_ms = self.next_time_ms()
            if time_ms is None or time_ms > limit_ms:
                return True
            if not self._fire_bucket(time_ms, fire, is_enough):
                time_ms = self.next_time_ms()
                return time_ms is None or time_ms > limit_ms

    def _fire_bucket(self, time_ms: int, fire: TimerCallback, is_enough: IsEnough | None) -> bool:
        """False where it was enough."""
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

    def freeze(self) -> "FrozenQueue":
        """Return all timers as they are now. Copies the distinct times; buckets are copied when they change."""
        frozen = FrozenQueue(self._buckets)
        self._frozen.append(frozen)
        self._buckets = dict(self._buckets)
        self._own_times = set()
        return frozen

    def _bucket(self, time_ms: int) -> Bucket | None:
        """The timers of a time, which may be changed."""
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
        """Keep the heap within twice the times that have timers, for whoever moves a timer with every record."""
        if len(self._times) > 2 * len(self._buckets) + 64:
            self._times = list(self._buckets)
            heapq.heapify(self._times)


def _as_int(time: object) -> int:
    if isinstance(time, int | np.integer):
        return int(time)
    raise TypeError(
        f"a timer needs epoch milliseconds as an int, but was given {type(time).__name__} {time!r:.60}"
    )


class InternalTimerService:
    """The timers of one operator. Mailbox thread only.

    `on_event_time` and `on_processing_time` are called for timers that fire, their key being current in `backend`.
    A processing-time timer fires once its millisecond is over, so that no record of that millisecond comes after it.
    """

    _name: str
    _key_space: KeySpace

    def __init__(
        self,
        backend: KeyedStateBackend,
        clock: ProcessingTimeService,
        on_event_time: TimerCallback,
        on_processing_time: TimerCallback,
        on_wake_up: Callable[[Callable[[], None]], None] = lambda run: run(),
    ) -> None:
        """`on_wake_up`: called with each run of processing-time timers; it calls the run, and may catch and emit."""
        self._scope = backend.key_scope
        self._set_current_key = backend.set_current_key
        self._clock = clock
        self._fire_event = self._with_key(on_event_time)
        self._fire_processing = self._with_key(on_processing_time)
        self._on_wake_up = on_wake_up
        self._event_timers = TimerQueue()
        self._processing_timers = TimerQueue()
        self._wake_up: ScheduledTimer | None = None
        self._wake_up_ms = 0
        self.current_watermark_ms = MIN_TIMESTAMP

    def current_processing_time_ms(self) -> int:
        """The wall clock, epoch ms."""
        return self._clock.now_ms()

    def register(self, domain: TimeDomain, time_ms: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Set a timer for the current key. One in the past fires at the next watermark, or at once by the clock.

        TypeError for a time that is no integer, which would be found out only when the timer is compared or fires.
        """
        if type(time_ms) is not int:
            time_ms = _as_int(time_ms)
        key = self._scope.entry
        if domain is TimeDomain.EVENT_TIME:
            self._event_timers.register(time_ms, key, namespace)
        else:
            self._processing_timers.register(time_ms, key, namespace)
            if self._wake_up is None or time_ms < self._wake_up_ms:
                self._schedule_wake_up()

    def delete(self, domain: TimeDomain, time_ms: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Forget a timer of the current key; no effect where there is none."""
        self._queue(domain).delete(time_ms, self._scope.entry, namespace)

    def advance_watermark(self, watermark_ms: int, is_enough: IsEnough | None = None) -> bool:
        """Fire the event-time timers that are due, until `is_enough` says so; False where some are still due."""
        self.current_watermark_ms = watermark_ms
        return self._event_timers.fire_until(watermark_ms, self._fire_event, is_enough)

    def next_event_time_ms(self) -> int | None:
        """Time of the first event-time timer; None where there is none."""
        return self._event_timers.next_time_ms()

    def keep_in(self, states: StatesOfOperator, name: str) -> None:
        """Go on with the timers restored under `name`, and be part of snapshots under it."""
        self._name, self._key_space = name, states.key_space
        chunks = states.register(name, self)
        for domain, timer in read_timers(chunks, states.reader, states.key_space):
            self._queue(domain).register(*timer)
        self._schedule_wake_up()

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenTimers":
        """See Snapshotable."""
        queues = {domain: self._queue(domain).freeze() for domain in TimeDomain}
        return FrozenTimers(self._name, queues, self._key_space)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """See Snapshotable. Every snapshot is a full one."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """See Snapshotable."""

    def _queue(self, domain: TimeDomain) -> TimerQueue:
        return self._event_timers if domain is TimeDomain.EVENT_TIME else self._processing_timers

    def timer_count(self, domain: TimeDomain) -> int:
        """Number of timers that wait."""
        return len(self._queue(domain))

    def _with_key(self, callback: TimerCallback) -> TimerCallback:
        def fire(time_ms: int, key: Any, namespace: Any) -> None:
            self._set_current_key(key)
            callback(time_ms, key, namespace)

        return fire

    def _schedule_wake_up(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        head_ms = self._processing_timers.next_time_ms()
        if head_ms is not None:
            self._wake_up_ms = head_ms
            is_past = head_ms < self._clock.now_ms()
            self._wake_up = self._clock.schedule(
                head_ms if is_past else head_ms + 1, lambda _: self._on_wake_up(self._fire_due)
            )

    def _fire_due(self) -> None:
        self._wake_up = None
        # Everything whose millisecond is over: a late wake-up catches up at once.
        limit_ms = max(self._wake_up_ms, self._clock.now_ms() - 1)
        self._processing_timers.fire_until(limit_ms, self._fire_processing)
        self._schedule_wake_up()


class FrozenTimers:
    """See FrozenState."""

    def __init__(
        self,
        name: str,
        queues: dict[TimeDomain, FrozenQueue],
        key_space: KeySpace,
    ) -> None:
        self._name = name
        self._queues = queues
        self._key_space = key_space

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """See FrozenState."""
        timers = {domain: iter(queue) for domain, queue in self._queues.items()}
        return write_timers(self._name, timers, self._key_space, writer)

    def discard(self) -> None:
        """See FrozenState."""
        for queue in self._queues.values():
            queue.release()
