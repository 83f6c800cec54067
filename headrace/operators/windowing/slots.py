"""Slots: where the accumulators of each (window, key) stand in the aggregate operator's columns."""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SlotIndexes = npt.NDArray[np.int64]
WindowStarts = npt.NDArray[np.int64]


class SlotTable:
    """Gives every (window start, key) a small number while the window lives; numbers of gone windows are reused.

    Windows wait to fire in order of their start; all have one size, so that is the order of their ends too.
    """

    def __init__(self) -> None:
        self._windows: dict[int, dict[Any, int]] = {}
        self._free: list[int] = []
        self._unfired: list[int] = []
        self._live: list[int] = []
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
            slot = window.get(key)
            if slot is None:
                slot = window[key] = self._allocate()
            found.append(slot)
        return np.array(found, dtype=np.int64)[pairs.indices.to_numpy()]

    def take_due(self, last_start: int) -> list[tuple[int, list[Any], list[int]]]:
        """Return (start, keys in order, their slots) of each window not returned before with start <= `last_start`."""
        due: list[tuple[int, list[Any], list[int]]] = []
        while self._unfired and self._unfired[0] <= last_start:
            start = heapq.heappop(self._unfired)
            window = self._windows[start]
            keys = sorted(window)
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
            slots.extend(self._windows.pop(start).values())
        self._free.extend(slots)
        return starts, slots

    @property
    def live_slot_count(self) -> int:
        """Number of (window, key) pairs that hold accumulators."""
        return self.capacity - len(self._free)

    def _window(self, start: int) -> dict[Any, int]:
        window = self._windows.get(start)
        if window is None:
            window = self._windows[start] = {}
            heapq.heappush(self._unfired, start)
            heapq.heappush(self._live, start)
        return window

    def _allocate(self) -> int:
        if self._free:
            return self._free.pop()
        self.capacity += 1
        return self.capacity - 1
