"""Timers in RocksDB: all are on disk, and the first few of each key group are also in memory.

A row's key is the key group, the time (8 bytes, so that bytes are in its order), then key and namespace, each with its
length before it; so key groups are cut and combined as those of states are, and checkpoints share the files.
Timers of equal time fire in the order of these bytes.

Source: Flink RocksDBCachingPriorityQueueSet, KeyGroupPartitionedPriorityQueue.
"""

import heapq
import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from headrace.core.barriers import CheckpointOptions
from headrace.core.types.pickles import pickle_value, unpickle_value
from headrace.state.backend import IsEnough, Timer, TimerCallback
from headrace.state.rocksdb.database import Database
from headrace.state.rocksdb.keys import CompositeKeys, tells_all

_TIME: Final = struct.Struct(">Q")
_TIME_OFFSET: Final = 1 << 63
"""Offset that makes negative times sort before positive ones."""
_STALE_TIMES_MIN: Final = 64
"""Number of stale entries up to which the heap is not rebuilt."""


class TimerRows:
    """Converts timers to rows and back. Any thread."""

    def __init__(self, keys: CompositeKeys) -> None:
        self._keys = keys
        self._group_size = keys.group_size

    def key_of(self, time_ms: int, key: Any, namespace: Any) -> bytes:
        """Return the row's key."""
        entry = self._keys.of_entry((key, namespace), has_namespace=True)
        size = self._group_size
        return entry[:size] + _TIME.pack(time_ms + _TIME_OFFSET) + entry[size:]

    def timer_of(self, row_key: bytes, value: bytes) -> Timer:
        """Return the timer of a row."""
        time_ms = self.time_of(row_key)
        if value:
            return time_ms, *unpickle_value(value)
        size = self._group_size
        entry = row_key[:size] + row_key[size + _TIME.size :]
        _, (key, namespace), _ = self._keys.split(entry, has_namespace=True)
        return time_ms, key, namespace

    def time_of(self, row_key: bytes) -> int:
        """Return a row's time."""
        return _TIME.unpack_from(row_key, self._group_size)[0] - _TIME_OFFSET

    def group_of(self, row_key: bytes) -> bytes:
        """Return the first bytes of all rows of a row's key group."""
        return row_key[: self._group_size]

    @staticmethod
    def value_of(key: Any, namespace: Any) -> bytes:
        """Return the stored value: empty, or the pair (key, namespace) if the row's key cannot restore both."""
        if tells_all(key) and tells_all(namespace):
            return b""
        return pickle_value((key, namespace))


class _GroupHead:
    """The first timers of one key group, in order; `is_whole` if the table has no other timers of the group."""

    __slots__ = ("is_whole", "row_keys", "timers")

    def __init__(self) -> None:
        self.row_keys: list[bytes] = []
        self.timers: dict[bytes, Timer] = {}
        self.is_whole = True


class FrozenRocksTimers:
    """Frozen timers of a RocksDB table: an iterator, which sees the rows as they were when it was made."""

    is_by_key_group: ClassVar[bool] = True

    def __init__(self, stored: Iterator[tuple[bytes, bytes]], rows: TimerRows) -> None:
        self._stored = stored
        self._rows = rows

    def __iter__(self) -> Iterator[Timer]:
        for row_key, value in self._stored:
            yield self._rows.timer_of(row_key, value)

    def release(self) -> None:
        """Release the iterator, for which RocksDB keeps old versions of rows."""
        self._stored = iter(())


class RocksTimerQueue:
    """Timer queue on disk. `name`: its column family; `head_size`: timers of a key group that are also in memory.

    A head holds the first timers of its group: it contains every timer before its last one, or all of a whole group.
    An empty head is refilled at once, from where it ended, so that firing reads no deleted rows.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        keys: CompositeKeys,
        head_size: int,
        are_rows_written: Callable[[CheckpointOptions], bool],
    ) -> None:
        """Create the queue; `are_rows_written`: True if snapshots are made of rows, not of the database's files."""
        self._database = database
        self._name = name
        self._rows = TimerRows(keys)
        self._head_size = head_size
        self._are_rows_written = are_rows_written
        self._table: Any = database.find_timers(name)
        self._heads: dict[bytes, _GroupHead] = {}
        self._first_times: list[tuple[int, bytes]] = []
        """Heap of (time, key group); an entry that is not the group's first time is stale."""
        if self._table is not None:
            self._find_groups()

    def __len__(self) -> int:
        return 0 if self._table is None else sum(1 for _ in self._table.keys())

    def register(self, time_ms: int, key: Any, namespace: Any) -> None:
        row_key = self._rows.key_of(time_ms, key, namespace)
        group = self._rows.group_of(row_key)
        head = self._heads.get(group)
        if head is None:
            head = self._heads[group] = _GroupHead()
        elif row_key in head.timers:
            return
        if self._table is None:
            self._table = self._database.make_timers(self._name)
        self._table.put(row_key, self._rows.value_of(key, namespace))
        row_keys = head.row_keys
        if head.is_whole or row_key < row_keys[-1]:
            insort(row_keys, row_key)
            head.timers[row_key] = (time_ms, key, namespace)
            if row_keys[0] is row_key:
                self._note_first(group, time_ms)
            if len(row_keys) > self._head_size:
                del head.timers[row_keys.pop()]
                head.is_whole = False

    def delete(self, time_ms: int, key: Any, namespace: Any) -> None:
        row_key = self._rows.key_of(time_ms, key, namespace)
        group = self._rows.group_of(row_key)
        head = self._heads.get(group)
        if head is None:
            return
        if row_key in head.timers:
            self._remove(group, head, row_key)
        elif not head.is_whole:
            self._table.delete(row_key)

    def next_time_ms(self) -> int | None:
        group = self._first_group()
        return None if group is None else self._first_times[0][0]

    def fire_until(
        self, limit_ms: int, fire: TimerCallback, is_enough: IsEnough | None = None
    ) -> bool:
        while (group := self._first_group()) is not None and self._first_times[0][0] <= limit_ms:
            head = self._heads[group]
            row_key = head.row_keys[0]
            timer = head.timers[row_key]
            self._remove(group, head, row_key)
            fire(*timer)
            if is_enough is not None and is_enough():
                next_ms = self.next_time_ms()
                return next_ms is None or next_ms > limit_ms
        return True

    def freeze(self, options: CheckpointOptions) -> FrozenRocksTimers:
        stored: Iterator[tuple[bytes, bytes]] = iter(())
        if self._table is not None and self._are_rows_written(options):
            stored = self._table.items()
        return FrozenRocksTimers(stored, self._rows)

    def _first_group(self) -> bytes | None:
        """Return the key group whose first timer is the first of all, or None without timers."""
        times = self._first_times
        while times:
            time_ms, group = times[0]
            row_keys = self._heads[group].row_keys
            if row_keys and self._rows.time_of(row_keys[0]) == time_ms:
                return group
            heapq.heappop(times)
        return None

    def _note_first(self, group: bytes, time_ms: int) -> None:
        times = self._first_times
        if len(times) > 2 * len(self._heads) + _STALE_TIMES_MIN:
            # Whoever moves a timer with every record would leave an entry each time.
            times[:] = [
                (self._rows.time_of(head.row_keys[0]), group)
                for group, head in self._heads.items()
                if head.row_keys
            ]
            heapq.heapify(times)
        else:
            heapq.heappush(times, (time_ms, group))

    def _remove(self, group: bytes, head: _GroupHead, row_key: bytes) -> None:
        """Remove a timer that is in its group's head."""
        self._table.delete(row_key)
        row_keys = head.row_keys
        position = bisect_left(row_keys, row_key)
        del row_keys[position], head.timers[row_key]
        if not row_keys and not head.is_whole:
            self._fill(group, head, row_key)
        if position == 0 and row_keys:
            self._note_first(group, self._rows.time_of(row_keys[0]))

    def _fill(self, group: bytes, head: _GroupHead, from_key: bytes) -> None:
        """Fill the empty head of a group with its first rows from `from_key` on."""
        stored = list(islice(self._table.items(from_key=from_key), self._head_size + 1))
        own = [row for row in stored if row[0].startswith(group)]
        head.is_whole = len(own) <= self._head_size
        for row_key, value in own[: self._head_size]:
            head.row_keys.append(row_key)
            head.timers[row_key] = self._rows.timer_of(row_key, value)

    def _find_groups(self) -> None:
        """Fill the heads of all key groups of a restored table."""
        group = b""
        while (row_key := next(iter(self._table.keys(from_key=group)), None)) is not None:
            found = self._rows.group_of(row_key)
            head = self._heads[found] = _GroupHead()
            self._fill(found, head, row_key)
            self._note_first(found, self._rows.time_of(row_key))
            group = (int.from_bytes(found, "big") + 1).to_bytes(len(found) + 1, "big")[1:]
            if not any(group):
                return
