"""Slots: where the accumulators of each (window, key) stand in the aggregate operator's columns."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SlotIndexes = npt.NDArray[np.int64]
WindowStarts = npt.NDArray[np.int64]


class _Window:
    """The slot of each key, and both again in order of arrival: lists that only grow, so that freezing is cheap."""

    __slots__ = ("arrived_keys", "arrived_slots", "slots")

    def __init__(self) -> None:
        self.slots: dict[Any, int] = {}
        self.arrived_keys: list[Any] = []
        self.arrived_slots: list[int] = []

    def add(self, key: Any, slot: int) -> None:
        """Give a new key its slot."""
        self.slots[key] = slot
        self.arrived_keys.append(key)
        self.arrived_slots.append(slot)


@dataclass(frozen=True)
class FrozenWindow:
    """A window as it was: `count` keys from `first` on, and for which it has fired (None: all). Any thread."""

    start: int
    window: _Window
    count: int
    fired_keys: frozenset[Any] | None
    first: int = 0

    def keys(self) -> list[Any]:
        """Return the keys, in order of arrival."""
        return self.window.arrived_keys[self.first : self.first + self.count]

    def slots(self) -> list[int]:
        """Return the slot of each key."""
        return self.window.arrived_slots[self.first : self.first + self.count]

    def has_fired(self) -> list[bool]:
        """Return for each key whether the window has fired for it."""
        fired = self.fired_keys
        if fired is None:
            return [True] * self.count
        return [key in fired for key in self.keys()] if fired else [False] * self.count


class SlotTable:
    """Gives every (window start, key) a small number while the window lives; numbers of gone windows are reused.

    Windows wait to fire in order of their start; all have one size, so that is the order of their ends too.
    """

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}
        self._free: list[int] = []
        self._unfired: list[int] = []
        self._live: list[int] = []
        # Windows that wait to fire for some keys and have fired for others: those restored from several subtasks
        # whose event times differed.
        self._fired_keys: dict[int, set[Any]] = {}
        self.capacity = 0

    def slots_of(
        self, starts: WindowStarts, key_codes: npt.NDArray[np.int64], keys: Sequence[Any]
    ) -> SlotIndexes:
        """Return the slot of each row, shape (rows,).

        `starts`: window start of each row; `key_codes`: index of its key in `keys` (hashable). One look-up per distinct
        pair: rows are first brought together by Arrow's hash table.
        """
        distinct_starts, start_codes = np.unique(starts, return_inverse=True)
        pairs = pa.array(start_codes * len(keys) + key_codes).dictionary_encode()
        start_list: list[int] = distinct_starts.tolist()
        found: list[int] = []
        for pair in pairs.dictionary.to_pylist():
            start_code, key_code = divmod(pair, len(keys))
            window = self._window(start_list[start_code])
            key = keys[key_code]
            if self._fired_keys:
                self._fired_keys.get(start_list[start_code], set[Any]()).discard(key)
            slot = window.slots.get(key)
            if slot is None:
                slot = self._allocate()
                window.add(key, slot)
            found.append(slot)
        return np.array(found, dtype=np.int64)[pairs.indices.to_numpy()]

    def take_due(self, last_start: int) -> list[tuple[int, list[Any], list[int]]]:
        """Return (start, keys in order, their slots) of each window not returned before with start <= `last_start`."""
        due: list[tuple[int, list[Any], list[int]]] = []
        while self._unfired and self._unfired[0] <= last_start:
            start = heapq.heappop(self._unfired)
            window = self._windows[start].slots
            fired = self._fired_keys.pop(start, set[Any]())
            keys = sorted(window.keys() - fired if fired else window)
            due.append((start, keys, [window[key] for key in keys]))
        return due

    def mark_fired(self, last_start: int) -> None:
        """Forget that windows up to `last_start` wait: they were made by late rows, which fire them themselves."""
        while self._unfired and self._unfired[0] <= last_start:
            heapq.heappop(self._unfired)

    def drop(self, last_start: int) -> tuple[list[int], list[int]]:
        """Remove windows with start <= `last_start`; return their starts and slots, which may be given out again."""
        starts: list[int] = []
        slots: list[int] = []
        while self._live and self._live[0] <= last_start:
            start = heapq.heappop(self._live)
            starts.append(start)
            slots.extend(self._windows.pop(start).arrived_slots)
        self._free.extend(slots)
        return starts, slots

    def freeze(self) -> list[FrozenWindow]:
        """Return all windows; later changes do not show."""
        waiting = set(self._unfired)
        frozen: list[FrozenWindow] = []
        for start, window in self._windows.items():
            fired = frozenset(self._fired_keys.get(start, ())) if start in waiting else None
            frozen.append(FrozenWindow(start, window, len(window.arrived_keys), fired))
        return frozen

    def restore(
        self, starts: Sequence[int], keys: Sequence[Any], fired: Sequence[bool]
    ) -> SlotIndexes:
        """Begin with these pairs of window and key, none of which is there yet; return their slots."""
        slots: list[int] = []
        unfired = set(self._unfired)
        for start, key, has_fired in zip(starts, keys, fired, strict=True):
            known = self._windows.get(start)
            if known is None:
                known = self._windows[start] = _Window()
                heapq.heappush(self._live, start)
            if not has_fired and start not in unfired:
                unfired.add(start)
                heapq.heappush(self._unfired, start)
                self._fired_keys[start] = set(known.slots)
            elif has_fired and start in unfired:
                self._fired_keys.setdefault(start, set()).add(key)
            slot = self._allocate()
            known.add(key, slot)
            slots.append(slot)
        return np.array(slots, dtype=np.int64)

    @property
    def live_slot_count(self) -> int:
        """Number of (window, key) pairs that hold accumulators."""
        return self.capacity - len(self._free)

    def _window(self, start: int) -> _Window:
        window = self._windows.get(start)
        if window is None:
            window = self._windows[start] = _Window()
            heapq.heappush(self._unfired, start)
            heapq.heappush(self._live, start)
        return window

    def _allocate(self) -> int:
        if self._free:
            return self._free.pop()
        self.capacity += 1
        return self.capacity - 1
