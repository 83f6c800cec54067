"""Heap states with a time to live: every value, list element and map entry is kept with its last access.

Source: Flink TtlValueState, TtlListState, TtlMapState, TtlReducingState, TtlAggregatingState, TtlIncrementalCleanup.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final

from headrace.functions.state import StateDescriptor
from headrace.state.backend import EntryScope
from headrace.state.heap.copy_on_write_map import CopyOnWriteMap
from headrace.state.heap.handles import (
    HeapAggregatingState,
    HeapFoldState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
    entries_of,
)
from headrace.state.keyed_chunks import Flatten, KeyedRows
from headrace.state.ttl import NO_STAMP, TtlClock, TtlRules

Stamped = tuple[Any, int]
"""(value, last access in epoch ms)"""

_ABSENT: Final = object()


class TtlHeapState(HeapState):
    """Base of the handles: the rules, the clock, and the sweep over entries that are not accessed."""

    def __init__(
        self, descriptor: StateDescriptor, scope: EntryScope, rules: TtlRules, clock: TtlClock
    ) -> None:
        super().__init__(descriptor, scope)
        self.rules = rules
        self._clock = clock
        self._now_ms, self._access_ms = clock.now_ms, clock.access_ms
        self._keeps_latest = rules.is_event_time
        self._unswept: Iterator[Any] = iter(())

    def sweep(self, count: int | None = None) -> None:
        """Examine the next `count` entries and delete expired ones; no effect while a snapshot is being written."""
        count = self.rules.cleanup_size if count is None else count
        if count == 0 or isinstance(self.entries, CopyOnWriteMap):
            return
        entries, now_ms = self.entries, self._now_ms()
        for _ in range(min(count, len(entries))):
            entry = next(self._unswept, _ABSENT)
            if entry is _ABSENT:
                self._unswept = iter(list(entries))
                entry = next(self._unswept, _ABSENT)
            held = entries.get(entry)
            if held is not None:
                self._keep(entry, held, self.unexpired(held, now_ms))

    def _keep(self, entry: Any, held: Any, kept: Any) -> None:
        if kept is held:
            return
        if kept:
            self.entries[entry] = kept
        else:
            del self.entries[entry]

    def is_expired(self, stamp_ms: int, now_ms: int) -> bool:
        """Return whether a value that was last accessed at `stamp_ms` has expired."""
        if stamp_ms == NO_STAMP:
            stamp_ms = self._clock.untimed_ms()
        return self.rules.is_expired(stamp_ms, now_ms)

    def expired_until_ms(self) -> int:
        return self.rules.expired_until_ms(self._now_ms())

    def _stamp(self, held: Stamped | None) -> int:
        """Return the time of last access for a value accessed now; an earlier record never moves it back."""
        access_ms = self._access_ms()
        return max(access_ms, held[1]) if held is not None and self._keeps_latest else access_ms

    @abstractmethod
    def unexpired(self, held: Any, now_ms: int) -> Any:
        """Return an entry without its expired parts: `held` itself if nothing has expired; the result may be empty."""

    @staticmethod
    @abstractmethod
    def flatten_stamped(held: list[Any], rows: KeyedRows) -> list[int] | None:
        pass

    def flatten_all_at(self) -> Flatten:
        # Of this moment: the clocks go on while the rows are written.
        flatten, untimed_ms = self.flatten_stamped, self._clock.untimed_ms()

        def flatten_timed(held: list[Any], rows: KeyedRows) -> list[int] | None:
            counts = flatten(held, rows)
            assert rows.last_accesses is not None
            since = None if untimed_ms == NO_STAMP else untimed_ms
            rows.last_accesses = [since if one == NO_STAMP else one for one in rows.last_accesses]
            return counts

        return flatten_timed

    def flatten_at(self) -> Flatten:
        flatten_timed = self.flatten_all_at()
        if not self.rules.filters_snapshots:
            return flatten_timed
        now_ms, unexpired = self._now_ms(), self.unexpired

        def flatten_unexpired(held: list[Any], rows: KeyedRows) -> list[int]:
            kept = [unexpired(one, now_ms) for one in held]
            counts = flatten_timed([one for one in kept if one], rows)
            per_kept = iter(repeat(1) if counts is None else counts)
            return [next(per_kept) if one else 0 for one in kept]

        return flatten_unexpired

    def _stamps(self, rows: KeyedRows) -> Iterable[int]:
        """Return the last accesses of a snapshot's rows; rows without one were stored without a time to live."""
        untimed_ms = self._clock.untimed_ms()
        accesses = rows.last_accesses or [None] * len(rows.values)
        return [untimed_ms if access is None else access for access in accesses]


class _SingleTtlState(TtlHeapState):
    """Base of states of one stamped value."""

    def unexpired(self, held: Stamped, now_ms: int) -> Stamped | None:
        return None if self.is_expired(held[1], now_ms) else held

    @staticmethod
    def flatten_stamped(held: list[Stamped], rows: KeyedRows) -> list[int] | None:
        _take_pairs(held, rows)
        return None

    def load(self, rows: KeyedRows) -> None:
        for entry, value, stamp in zip(
            entries_of(rows), rows.values, self._stamps(rows), strict=True
        ):
            self.entries[entry] = (value, stamp)

    def _read(self) -> Any:
        """Return the value that a reader sees, or None."""
        entry = self.scope.entry
        held = self.entries.get(entry)
        if held is None:
            self.sweep()
            return None
        value, stamp = held
        now_ms = self._now_ms()
        if self.is_expired(stamp, now_ms):
            del self.entries[entry]
            value = value if self.rules.returns_expired else None
        elif self.rules.renews_on_read:
            self.entries[entry] = (value, self._stamp(held))
        self.sweep()
        return value

    def _current(self, entry: Any) -> Any:
        """Return the value to continue from, or _ABSENT."""
        held = self.entries.get(entry)
        if held is None or self.is_expired(held[1], self._now_ms()):
            return _ABSENT
        return held[0]

    def _write(self, entry: Any, value: Any) -> None:
        held = self.entries.get(entry) if self._keeps_latest else None
        self.entries[entry] = (value, self._stamp(held))
        self.sweep()


class HeapTtlValueState(_SingleTtlState, HeapValueState):
    """State of one value."""

    def value(self) -> Any:
        return self._read()

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        self._write(self.scope.entry, self._kept(value))


class _TtlFoldState(_SingleTtlState, HeapFoldState):
    """Base of states of a fold."""

    def merge_entry(self, target: Any, source: Any) -> None:
        moved, held = self._current(source), self._current(target)
        self.entries.pop(source, None)
        if moved is not _ABSENT:
            self._write(target, moved if held is _ABSENT else self._kept(self._merged(held, moved)))


class HeapTtlReducingState(_TtlFoldState, HeapReducingState):
    """State of the fold of values added since the last one expired."""

    def get(self) -> Any:
        return self._read()

    def add(self, value: Any) -> None:
        entry = self.scope.entry
        held = self._current(entry)
        self._write(entry, self._kept(value if held is _ABSENT else self._reduce(held, value)))


class HeapTtlAggregatingState(_TtlFoldState, HeapAggregatingState):
    """State of an accumulator, which is created anew after it has expired."""

    def get(self) -> Any:
        held = self._read()
        return None if held is None else self._function.get_result(held)

    def add(self, value: Any) -> None:
        entry = self.scope.entry
        held = self._current(entry)
        if held is _ABSENT:
            held = self._function.create_accumulator()
        self._write(entry, self._added(value, held))


class HeapTtlListState(TtlHeapState, HeapListState):
    """State of a list whose elements expire one by one."""

    def get(self) -> Iterable[Any]:
        entry = self.scope.entry
        held: list[Stamped] = self.entries.get(entry, [])
        kept = self.unexpired(held, self._now_ms())
        if self.rules.renews_on_read and kept:
            kept = [(pair[0], self._stamp(pair)) for pair in kept]
        if held:
            self._keep(entry, held, kept)
        self.sweep()
        return [value for value, _ in (held if self.rules.returns_expired else kept)]

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        access_ms = self._access_ms()
        added = [(value, access_ms) for value in self._checked(values)]
        if added:
            self.entries.setdefault(self.scope.entry, []).extend(added)
        self.sweep()

    def update(self, values: Iterable[Any]) -> None:
        access_ms = self._access_ms()
        held = [(value, access_ms) for value in self._checked(values)]
        if held:
            self.entries[self.scope.entry] = held
        else:
            self.clear()
        self.sweep()

    def unexpired(self, held: list[Stamped], now_ms: int) -> list[Stamped]:
        is_expired = self.is_expired
        kept = [pair for pair in held if not is_expired(pair[1], now_ms)]
        return held if len(kept) == len(held) else kept

    @staticmethod
    def flatten_stamped(held: list[list[Stamped]], rows: KeyedRows) -> list[int] | None:
        counts = list(map(len, held))
        _take_pairs(chain.from_iterable(held), rows)
        rows.list_positions = list(chain.from_iterable(map(range, counts)))
        return counts

    def load(self, rows: KeyedRows) -> None:
        for entry, value, stamp in zip(
            entries_of(rows), rows.values, self._stamps(rows), strict=True
        ):
            self.entries.setdefault(entry, []).append((value, stamp))


class HeapTtlMapState(TtlHeapState, HeapMapState):
    """State of a map whose entries expire one by one."""

    def get(self, key: Any) -> Any:
        pair = self._pair(key)
        self.sweep()
        return None if pair is None else pair[0]

    def contains(self, key: Any) -> bool:
        return self._pair(key) is not None

    def put(self, key: Any, value: Any) -> None:
        key, value = self._key_forms.kept(key), self._kept(value)
        held = self.entries.setdefault(self.scope.entry, {})
        held[key] = (value, self._stamp(held.get(key)))
        self.sweep()

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in self._kept_entries(dict_value).items():
            held = self.entries.setdefault(self.scope.entry, {})
            held[key] = (value, self._stamp(held.get(key)))
        self.sweep()

    def unexpired(self, held: dict[Any, Stamped], now_ms: int) -> dict[Any, Stamped]:
        is_expired = self.is_expired
        kept = {key: pair for key, pair in held.items() if not is_expired(pair[1], now_ms)}
        return held if len(kept) == len(held) else kept

    @staticmethod
    def flatten_stamped(held: list[dict[Any, Stamped]], rows: KeyedRows) -> list[int] | None:
        rows.map_keys = list(chain.from_iterable(held))
        _take_pairs(chain.from_iterable(map(dict.values, held)), rows)
        return list(map(len, held))

    def load(self, rows: KeyedRows) -> None:
        assert rows.map_keys is not None
        for entry, key, value, stamp in zip(
            entries_of(rows), rows.map_keys, rows.values, self._stamps(rows), strict=True
        ):
            self.entries.setdefault(entry, {})[key] = (value, stamp)

    def _pair(self, key: Any) -> Stamped | None:
        entry = self.scope.entry
        held: dict[Any, Stamped] = self.entries.get(entry, {})
        key = self._key_forms.looked_up(key)
        pair = held.get(key)
        if pair is None:
            return None
        now_ms = self._now_ms()
        if self.is_expired(pair[1], now_ms):
            self.remove(key)
            return pair if self.rules.returns_expired else None
        if self.rules.renews_on_read:
            held[key] = (pair[0], self._stamp(pair))
        return pair

    def _held(self) -> Mapping[Any, Any]:
        entry = self.scope.entry
        held: dict[Any, Stamped] = self.entries.get(entry, {})
        now_ms = self._now_ms()
        kept = self.unexpired(held, now_ms)
        if self.rules.renews_on_read:
            kept = {key: (pair[0], self._stamp(pair)) for key, pair in kept.items()}
        if held:
            self._keep(entry, held, kept)
        seen = held if self.rules.returns_expired else kept
        return {key: value for key, (value, _) in seen.items()}


def _take_pairs(pairs: Iterable[Stamped], rows: KeyedRows) -> None:
    stamped = list(pairs)
    rows.values = [value for value, _ in stamped]
    rows.last_accesses = [stamp for _, stamp in stamped]


TTL_HANDLES: Final[dict[type[HeapState], Any]] = {
    HeapValueState: HeapTtlValueState,
    HeapListState: HeapTtlListState,
    HeapMapState: HeapTtlMapState,
    HeapReducingState: HeapTtlReducingState,
    HeapAggregatingState: HeapTtlAggregatingState,
}
