"""InternalTimerService: the timers of a keyed operator, each a (time, key, namespace), fired by watermark or clock.

The state backend keeps the timers of each time domain in a `TimerQueue`, in order of time; this service adds the two
clocks and the current key. Snapshots have one row per timer in Parquet, ordered by key group, with the columns
`service`, `domain` ("event" or "processing"), `ts` (epoch ms), `key_group`, `key` and `namespace`.
Source: Flink InternalTimerServiceImpl.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.functions.process import TimeDomain
from headrace.operators.runtime.operator import ProcessingTimeService, ScheduledTimer
from headrace.state import columns as state_columns
from headrace.state.backend import (
    FrozenTimerQueue,
    IsEnough,
    KeyedStateBackend,
    Snapshotable,
    Timer,
    TimerCallback,
    TimerQueue,
)
from headrace.state.columns import (
    EVENT_DOMAIN,
    KEY,
    KEY_GROUP,
    NAMESPACE,
    PROCESSING_DOMAIN,
    TIMER_DOMAIN,
    TIMER_SERVICE,
    TIMER_TIME,
    is_opaque,
)
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.keyed_chunks import ChunkFiles, read_tables
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.queryable.live_rows import (
    AS_ROWS,
    LivePiece,
    LiveRows,
    LiveSource,
    own_keys,
)
from headrace.state.restored_keyed_state import KeySpace

_DOMAINS: Final = {
    TimeDomain.EVENT_TIME: EVENT_DOMAIN,
    TimeDomain.PROCESSING_TIME: PROCESSING_DOMAIN,
}
_PIECE_ROWS: Final = 65_536
VOID_NAMESPACE: Final = None
"""Namespace of the timers of process functions; timers of window operators have their window."""


def _checked(time: object) -> int:
    if not isinstance(time, int | np.integer):
        raise TypeError(
            f"a timer needs epoch milliseconds as an int, but was given {type(time).__name__} {time!r:.60}"
        )
    if not MIN_TIMESTAMP <= time <= MAX_WATERMARK:
        raise ValueError(f"a timer's time must fit into 64 bits, {time} does not")
    return int(time)


class InternalTimerService(Snapshotable):
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
        """Create the timers of one operator.

        `on_wake_up` is called with each run of processing-time timers and calls it.
        """
        self._scope = backend.key_scope
        self._set_current_key = backend.set_current_key
        self._event_clock = backend.event_clock
        self._clock = clock
        self._fire_event = self._with_time(self._with_key(on_event_time))
        self._fire_processing = self._with_key(on_processing_time)
        self._on_wake_up = on_wake_up
        self._create_queue = backend.create_timer_queue
        # Until `keep_in` names them.
        self._event_timers: TimerQueue = HeapTimerQueue()
        self._processing_timers: TimerQueue = HeapTimerQueue()
        self._wake_up: ScheduledTimer | None = None
        self._wake_up_ms = 0
        self._has_ended_keys = False
        self.waits_for_end_of_keys = False
        """True in BATCH mode: processing-time timers fire at `end_keys`, whatever the time is."""
        self.current_watermark_ms = MIN_TIMESTAMP
        self.fired_count = 0
        """Number of timers that have fired here since the operator was opened."""

    def current_processing_time_ms(self) -> int:
        """Return the wall clock, epoch ms."""
        return self._clock.now_ms()

    def register(self, domain: TimeDomain, time_ms: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Set a timer of the current key; one in the past fires at the next watermark, or at once by the clock.

        TypeError for a time that is not an integer and ValueError for one beyond 64 bits, as otherwise the error would
        only appear when the timer is compared, stored or fires.
        """
        if type(time_ms) is not int or not MIN_TIMESTAMP <= time_ms <= MAX_WATERMARK:
            time_ms = _checked(time_ms)
        key = self._scope.entry
        if domain is TimeDomain.EVENT_TIME:
            self._event_timers.register(time_ms, key, namespace)
        elif not self._has_ended_keys:
            self._processing_timers.register(time_ms, key, namespace)
            if self._wake_up is None or time_ms < self._wake_up_ms:
                self._schedule_wake_up()

    def delete(self, domain: TimeDomain, time_ms: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Delete a timer of the current key; no effect if there is none."""
        self._queue(domain).delete(time_ms, self._scope.entry, namespace)

    def advance_watermark(self, watermark_ms: int, is_enough: IsEnough | None = None) -> bool:
        """Fire the due event-time timers until `is_enough` returns True; return whether all have fired."""
        self.current_watermark_ms = watermark_ms
        is_done = self._event_timers.fire_until(watermark_ms, self._fire_event, is_enough)
        if is_done:
            self._event_clock.advance(watermark_ms)
        return is_done

    def end_keys(self) -> None:
        """Fire every timer, as none of the keys comes again: first those of event time, then those by the clock.

        A timer by the clock that a callback sets meanwhile is dropped, as one that sets itself again would never end.
        Source: Flink BatchExecutionInternalTimeService.
        """
        self.current_watermark_ms = MAX_WATERMARK
        self._has_ended_keys = True
        self._event_timers.fire_until(MAX_WATERMARK, self._fire_event)
        self._processing_timers.fire_until(MAX_WATERMARK, self._fire_processing)
        self._event_timers.fire_until(MAX_WATERMARK, self._fire_event)
        self._has_ended_keys = False
        self._schedule_wake_up()
        self.current_watermark_ms = MIN_TIMESTAMP

    def next_event_time_ms(self) -> int | None:
        """Return the time of the first event-time timer; None if there is none."""
        return self._event_timers.next_time_ms()

    def keep_in(self, states: OperatorStateHandler, name: str) -> None:
        """Restore the timers stored under `name`, and take part in snapshots under it."""
        self._name, self._key_space = name, states.key_space
        self._event_timers = self._create_queue(f"{name}-event")
        self._processing_timers = self._create_queue(f"{name}-processing")
        chunks = states.register(name, self)
        for domain, timer in read_timers(chunks, states.reader, states.key_space):
            self._queue(domain).register(*timer)
        self._schedule_wake_up()

    def live_source(self) -> LiveSource:
        opaque = (KEY,) if is_opaque(self._key_space.key_type) else ()
        return LiveSource(StateTable.TIMERS, self._name, self._live_rows, opaque=opaque)

    def _live_rows(self, keys: pa.Array | None) -> LiveRows:
        wanted = own_keys(self._name, keys, self._key_space)
        queues = {domain: self._queue(domain).freeze(AS_ROWS) for domain in TimeDomain}

        def release() -> None:
            for queue in queues.values():
                queue.release()

        pieces = partial(live_timers, self._name, queues, self._key_space, wanted)
        return LiveRows(pieces, partial(no_timers, self._name, self._key_space), release)

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenTimers":
        queues = {domain: self._queue(domain).freeze(options) for domain in TimeDomain}
        return FrozenTimers(self._name, queues, self._key_space)

    def _queue(self, domain: TimeDomain) -> TimerQueue:
        return self._event_timers if domain is TimeDomain.EVENT_TIME else self._processing_timers

    def timer_count(self, domain: TimeDomain) -> int:
        """Return the number of waiting timers."""
        return len(self._queue(domain))

    def _with_key(self, callback: TimerCallback) -> TimerCallback:
        def fire(time_ms: int, key: Any, namespace: Any) -> None:
            self._set_current_key(key)
            self.fired_count += 1
            callback(time_ms, key, namespace)

        return fire

    def _with_time(self, callback: TimerCallback) -> TimerCallback:
        advance = self._event_clock.advance

        def fire(time_ms: int, key: Any, namespace: Any) -> None:
            advance(time_ms)
            callback(time_ms, key, namespace)

        return fire

    def _schedule_wake_up(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        head_ms = self._processing_timers.next_time_ms()
        if head_ms is not None and not self.waits_for_end_of_keys:
            self._wake_up_ms = head_ms
            is_past = head_ms < self._clock.now_ms()
            self._wake_up = self._clock.schedule(
                head_ms if is_past else head_ms + 1, lambda _: self._on_wake_up(self._fire_due)
            )

    def _fire_due(self) -> None:
        self._wake_up = None
        # All timers whose millisecond is over: a late wake-up catches up at once.
        limit_ms = max(self._wake_up_ms, self._clock.now_ms() - 1)
        self._processing_timers.fire_until(limit_ms, self._fire_processing)
        self._schedule_wake_up()


class FrozenTimers:
    """Frozen timers of one timer service, written as state chunks."""

    def __init__(
        self,
        name: str,
        queues: dict[TimeDomain, FrozenTimerQueue],
        key_space: KeySpace,
    ) -> None:
        self._name = name
        self._queues = queues
        self._key_space = key_space

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        return write_timers(self._name, self._queues, self._key_space, writer)

    def discard(self) -> None:
        for queue in self._queues.values():
            queue.release()


@dataclass(frozen=True)
class _Rows:
    domain: str
    times: list[int]
    keys: list[Any]
    namespaces: list[Any]


def write_timers(
    name: str,
    queues: Mapping[TimeDomain, FrozenTimerQueue],
    key_space: KeySpace,
    writer: SnapshotWriter,
) -> list[StateChunk]:
    """Write the timers of a service; no chunk if there are none."""
    files = ChunkFiles(StateTable.TIMERS, name, {}, writer)
    unordered: list[pa.Table] = []
    for domain, queue in queues.items():
        timers = iter(queue)
        while piece := list(islice(timers, _PIECE_ROWS)):
            times, keys, namespaces = zip(*piece, strict=True)
            rows = _Rows(_DOMAINS[domain], list(times), list(keys), list(namespaces))
            table = _table(name, rows, key_space)
            if queue.is_by_key_group:
                files.add(table)  # there may be more than memory holds
            else:
                unordered.append(table)
        files.flush()
    _write_ordered(unordered, files)
    return files.finish()


def live_timers(
    name: str,
    queues: Mapping[TimeDomain, FrozenTimerQueue],
    key_space: KeySpace,
    keys: Sequence[Any] | None,
    count: Callable[[], int],
) -> Iterator[LivePiece]:
    """Yield the timers of a service in pieces, for the given keys or for all (None)."""
    wanted = None if keys is None else set(keys)
    for domain, queue in queues.items():
        timers = iter(queue)
        while piece := list(islice(timers, count())):
            shown = piece if wanted is None else [one for one in piece if one[1] in wanted]
            table = None
            if shown:
                times, own, namespaces = zip(*shown, strict=True)
                rows = _Rows(_DOMAINS[domain], list(times), list(own), list(namespaces))
                table = _table(name, rows, key_space)
            yield LivePiece(table, len(piece))


def no_timers(name: str, key_space: KeySpace) -> pa.Table:
    """Return the columns of a service without timers."""
    return _table(name, _Rows("", [], [], []), key_space)


def _write_ordered(tables: Sequence[pa.Table], files: ChunkFiles) -> None:
    # A time window and a pickled namespace have different schemas, and so need two files.
    by_schema: dict[str, list[pa.Table]] = {}
    for table in tables:
        by_schema.setdefault(str(table.schema), []).append(table)
    for alike in by_schema.values():
        table = pa.concat_tables(alike)
        order = np.argsort(table.column(KEY_GROUP).to_numpy(), kind="stable")
        ordered = table.take(pa.array(order)).combine_chunks()
        for offset in range(0, ordered.num_rows, _PIECE_ROWS):
            files.add(ordered.slice(offset, _PIECE_ROWS))
        files.flush()


def _table(name: str, rows: _Rows, key_space: KeySpace) -> pa.Table:
    count = len(rows.times)
    groups = state_columns.key_groups(rows.keys, key_space.key_type, key_space.max_parallelism)
    columns: dict[str, pa.Array] = {
        TIMER_SERVICE: pa.array([name] * count, pa.string()),
        TIMER_DOMAIN: pa.array([rows.domain] * count, pa.string()),
        TIMER_TIME: pa.array(rows.times, type=pa.int64()),
        KEY_GROUP: pa.array(groups),
        KEY: state_columns.encode(rows.keys, key_space.key_type),
    }
    if any(namespace is not None for namespace in rows.namespaces):
        columns[NAMESPACE] = state_columns.encode_namespaces(rows.namespaces)
    return pa.table(columns)


def read_timers(
    chunks: Sequence[StateChunk], reader: SnapshotReader, key_space: KeySpace
) -> Iterator[tuple[TimeDomain, Timer]]:
    """Yield the timers of chunks that belong to the own key groups."""
    domains = {text: domain for domain, text in _DOMAINS.items()}
    for table in read_tables(chunks, reader, key_space.key_groups):
        keys = state_columns.decode(table.column(KEY).combine_chunks(), key_space.key_type)
        namespaces: list[Any] = [None] * len(keys)
        if NAMESPACE in table.column_names:
            namespaces = state_columns.decode_namespaces(table.column(NAMESPACE).combine_chunks())
        times: list[int] = table.column(TIMER_TIME).to_pylist()
        texts: list[str] = table.column(TIMER_DOMAIN).to_pylist()
        for text, time_ms, key, namespace in zip(texts, times, keys, namespaces, strict=True):
            yield domains[text], (time_ms, key, namespace)
