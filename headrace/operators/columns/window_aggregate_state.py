"""State of WindowAggregateOperator: accumulators per key and window, and the windows that have yet to fire.

A `SlotTable` gives each key and window a slot, and the accumulators of the slots are columns. In snapshots there is one
row per key and window, with the columns `key_group`, `key` (a struct of the key columns), `window_start` (epoch ms),
`has_fired` and `rows`, the count of values of each input column, and one column per accumulator. Only keys become
Python objects for it.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from sys import getsizeof
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import hash_array, hash_keys
from headrace.core.types.arrow_types import VALUE_COLUMN, arrow_type_of, data_schema
from headrace.operators.columns.accumulator_table import AccumulatorTable, FrozenAccumulators
from headrace.operators.columns.accumulators import SlotIndexes, WindowStarts
from headrace.operators.columns.integer_columns import Codes
from headrace.operators.columns.window_assignment import WindowPairs
from headrace.state.columnar_rows import ColumnarState, FrozenTables
from headrace.state.columns import KEY, KEY_GROUP, WINDOW_START, KeyGroups, is_opaque
from headrace.state.evolution import StateIncompatibleError
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.queryable.live_rows import LivePiece, LiveRows
from headrace.state.restored_keyed_state import KeySpace

_NAME: Final = "window-aggregates"
_HAS_FIRED: Final = "has_fired"
_SLOT_BYTES: Final = 140
"""Bytes of a slot in addition to its key and accumulators: in the window's table, in two lists, and as an integer."""
_SAMPLED_KEYS: Final = 16
_COUNTED_ROWS: Final = 4_096
"""Number of pairs of row and window after which memory is counted again."""


@dataclass(frozen=True)
class FiringWindow:
    """A window that fires: its start, its keys in their order, and their slots."""

    start: int
    keys: Sequence[Any]
    slots: Sequence[int]


class _Window:
    """The slot of each key of a window; keys and slots also in order of arrival, in lists that only grow.

    Freezing a window is cheap: the length of these lists is enough.
    """

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
    """Frozen window: `count` keys from `first` on, and those for which it has fired (None: all). Any thread."""

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
    """Assigns a slot to each pair of window and key while the window lives; slots of removed windows are reused.

    Windows wait to fire in order of their start; all have one size, so that this is also the order of their ends.
    """

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}
        self._free: list[int] = []
        self._unfired: list[int] = []
        self._live: list[int] = []
        # Keys for which a waiting window has fired: after a restore from several subtasks whose event times differed.
        self._fired_keys: dict[int, set[Any]] = {}
        self.capacity = 0

    def slots_of(
        self, starts: WindowStarts, key_codes: npt.NDArray[np.int64], keys: Sequence[Any]
    ) -> SlotIndexes:
        """Return the slot of each row, shape (rows,).

        `starts`: window start of each row; `key_codes`: index of its key in `keys` (hashable). Rows are first grouped
        by Arrow's hash table, so that there is one look-up per distinct pair.
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

    def take_due(self, last_start: int) -> list[FiringWindow]:
        """Return the windows up to `last_start` that have not fired, each for the keys it has not fired for."""
        due: list[FiringWindow] = []
        while self._unfired and self._unfired[0] <= last_start:
            start = heapq.heappop(self._unfired)
            window = self._windows[start].slots
            fired = self._fired_keys.pop(start, set[Any]())
            keys = sorted(window.keys() - fired if fired else window)
            due.append(FiringWindow(start, keys, [window[key] for key in keys]))
        return due

    def mark_fired(self, last_start: int) -> None:
        """Stop waiting to fire windows up to `last_start`, as late rows created and fired them."""
        while self._unfired and self._unfired[0] <= last_start:
            heapq.heappop(self._unfired)

    def drop(self, last_start: int) -> tuple[list[int], list[int]]:
        """Remove windows with start <= `last_start`; return their starts and slots, which may be reused."""
        starts: list[int] = []
        slots: list[int] = []
        while self._live and self._live[0] <= last_start:
            start = heapq.heappop(self._live)
            starts.append(start)
            slots.extend(self._windows.pop(start).arrived_slots)
        self._free.extend(slots)
        return starts, slots

    def freeze(self) -> list[FrozenWindow]:
        """Return all windows, unaffected by later changes."""
        waiting = set(self._unfired)
        frozen: list[FrozenWindow] = []
        for start, window in self._windows.items():
            fired = frozenset(self._fired_keys.get(start, ())) if start in waiting else None
            frozen.append(FrozenWindow(start, window, len(window.arrived_keys), fired))
        return frozen

    def restore(
        self, starts: Sequence[int], keys: Sequence[Any], fired: Sequence[bool]
    ) -> SlotIndexes:
        """Add restored pairs of window and key, none of which exists yet; return their slots."""
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
        """Return the number of pairs of window and key that have accumulators."""
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


@dataclass(frozen=True)
class _KeyColumns:
    """The columns of the key, and the key space of the stream."""

    fields: Sequence[pa.Field]
    key_space: KeySpace

    def struct_of(self, keys: Sequence[tuple[Any, ...]]) -> pa.StructArray:
        """Return keys as one struct column."""
        arrays = [
            pa.array([key[index] for key in keys], type=field.type)
            for index, field in enumerate(self.fields)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self.fields))

    def key_groups(self, keys: pa.StructArray) -> KeyGroups:
        """Return the key group of each key: by the hash that the exchange uses."""
        key_type = self.key_space.key_type
        names = data_schema(key_type).names
        array: pa.Array = keys.field(0)
        if len(self.fields) > 1 or names != [VALUE_COLUMN]:
            array = pa.StructArray.from_arrays(keys.flatten(), names=names)
        if is_opaque(key_type):
            hashes = hash_keys(array.to_pylist())
        else:
            hashes = hash_array(array.cast(arrow_type_of(key_type)))
        return key_groups_of(hashes, self.key_space.max_parallelism)


class WindowAggregateState(ColumnarState):
    """Accumulators of all keys and live windows. `key_fields`: the columns of the key."""

    def __init__(
        self,
        accumulators: AccumulatorTable,
        key_fields: Sequence[pa.Field],
        states: OperatorStateHandler,
    ) -> None:
        super().__init__(_NAME)
        self.slots: Final = SlotTable()
        self._accumulators = accumulators
        self._keys = _KeyColumns(key_fields, states.key_space)
        self._key_bytes = 0.0
        self._row_count = 0
        self._next_counted = 0
        for table in self.register(states):
            self._load(table)

    def fold(
        self, columns: pa.RecordBatch, pairs: WindowPairs, key_codes: Codes, keys: Sequence[Any]
    ) -> SlotIndexes:
        """Add rows to their windows; return the slot of each pair.

        `key_codes`: index of each row's key in `keys`, shape (num_rows,).
        """
        if len(pairs.rows) == 0:
            return pairs.rows
        slots = self.slots.slots_of(pairs.starts, key_codes[pairs.rows], keys)
        self._accumulators.grow(self.slots.capacity)
        self._accumulators.update(columns, pairs.rows, pairs.starts, slots)
        self._row_count += len(pairs.rows)
        if self._row_count >= self._next_counted:
            self._next_counted = self._row_count + min(self._row_count, _COUNTED_ROWS)
            self._count_memory(keys)
        return slots

    def drop(self, last_start: int) -> None:
        """Delete windows up to `last_start`."""
        starts, slots = self.slots.drop(last_start)
        self._accumulators.reset(starts, np.array(slots, dtype=np.int64))
        if starts:
            self._count_memory(())

    def results(self, windows: Sequence[FiringWindow]) -> list[pa.Array]:
        """Return one array per aggregate, for the keys of all windows in their order."""
        slots = np.array([slot for window in windows for slot in window.slots], dtype=np.int64)
        return self._accumulators.results([window.start for window in windows], slots)

    def freeze_tables(self) -> FrozenTables:
        # Copies arrays of numbers only, not Python objects.
        windows, accumulators = self.slots.freeze(), self._accumulators.freeze()
        keys = self._keys
        return lambda: [_rows_of(windows, accumulators, keys)] if windows else []

    def live_rows(self) -> LiveRows:
        windows, accumulators = self.slots.freeze(), self._accumulators.freeze()
        return LiveRows(
            partial(_live_pieces, windows, accumulators, self._keys),
            lambda: _rows_of((), accumulators, self._keys),
        )

    def _load(self, table: pa.Table) -> None:
        key_structs = table.column(KEY).combine_chunks()
        names = [field.name for field in self._keys.fields]
        if key_structs.type != pa.struct(self._keys.fields):
            raise StateIncompatibleError(
                f"window aggregates were stored with the key {key_structs.type}, but the key is now made of {names}: "
                f"a key cannot change"
            )
        keys = list(zip(*(one.to_pylist() for one in key_structs.flatten()), strict=True))
        starts = table.column(WINDOW_START).to_numpy()
        slots = self.slots.restore(starts.tolist(), keys, table.column(_HAS_FIRED).to_pylist())
        self._accumulators.grow(self.slots.capacity)
        self._accumulators.restore(starts, slots, partial(_stored_column, table))
        self._count_memory(keys)

    def _count_memory(self, keys: Sequence[tuple[Any, ...]]) -> None:
        """Count the memory of accumulators, and of keys as if all were as large as some of the latest `keys`."""
        sample = keys[:_SAMPLED_KEYS]
        if sample:
            sizes = (getsizeof(key) + sum(map(getsizeof, key)) for key in sample)
            self._key_bytes = sum(sizes) / len(sample)
        of_slot = self._key_bytes + _SLOT_BYTES
        size = self._accumulators.size_bytes + int(of_slot * self.slots.live_slot_count)
        self.memory.resize(size)


def _stored_column(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        raise StateIncompatibleError(
            f"window aggregates were stored without '{name}': an aggregate cannot be added to open windows; give the "
            f"operator another uid to start with empty state"
        )
    return table.column(name).combine_chunks()


def _rows_of(
    windows: Sequence[FrozenWindow], accumulators: FrozenAccumulators, key_columns: _KeyColumns
) -> pa.Table:
    keys = key_columns.struct_of([key for window in windows for key in window.keys()])
    slots = np.array([slot for one in windows for slot in one.slots()], np.int64)
    counts = np.array([window.count for window in windows], np.int64)
    starts = np.repeat(np.array([one.start for one in windows], np.int64), counts)
    fired = [has_fired for window in windows for has_fired in window.has_fired()]
    columns: dict[str, pa.Array] = {
        KEY_GROUP: pa.array(key_columns.key_groups(keys)),
        KEY: keys,
        WINDOW_START: pa.array(starts),
        _HAS_FIRED: pa.array(fired, pa.bool_()),
    }
    return pa.table(columns | accumulators.stored(starts, slots))


def _live_pieces(
    windows: Sequence[FrozenWindow],
    accumulators: FrozenAccumulators,
    keys: _KeyColumns,
    count: Callable[[], int],
) -> Iterator[LivePiece]:
    for window in windows:
        first = 0
        while first < window.count:
            part = replace(window, first=first, count=min(window.count - first, count()))
            first += part.count
            yield LivePiece(_rows_of([part], accumulators, keys), part.count)
