"""The handles of heap states that user code holds; each finds its value with one dict look-up."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from headrace.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
)
from headrace.state.backend import EntryScope
from headrace.state.heap.copy_on_write_map import CopyOnWriteMap, FrozenEntries
from headrace.state.keyed_chunks import Flatten, KeyedRows
from headrace.state.typed_state import KeyForms, TypedState, no_accumulator


def entries_of(rows: KeyedRows) -> Iterable[Any]:
    """Return the entry of each row: its key, or its key and namespace."""
    return rows.keys if rows.namespaces is None else zip(rows.keys, rows.namespaces, strict=True)


class HeapState(TypedState):
    """Base of the handles; `entries` maps the scope's current entry (a key, or key and window) to the state's value."""

    def __init__(self, descriptor: StateDescriptor, scope: EntryScope) -> None:
        super().__init__(descriptor, scope)
        self.entries: Any = {}
        """A dict, or a CopyOnWriteMap while a snapshot is being written; read it again after each access."""

    def freeze_entries(self) -> FrozenEntries:
        """Return the entries as they are now."""
        if isinstance(self.entries, CopyOnWriteMap):
            return self.entries.freeze()
        self.entries = CopyOnWriteMap(self.entries, self._take_back)
        return self.entries.freeze()

    def _take_back(self, entries: dict[Any, Any]) -> None:
        self.entries = entries

    def flatten_at(self) -> Flatten:
        """Return a function that turns the entries frozen now into rows of a snapshot."""
        return self.flatten_all_at()

    def flatten_all_at(self) -> Flatten:
        """Return a function that turns all entries into rows, including expired ones, which snapshots omit."""
        return self.flatten

    def expired_until_ms(self) -> int | None:
        """Return the latest last access (epoch ms) of entries that have expired by now; None without a time to live."""
        return None

    def clear(self) -> None:
        # Not pop: on an empty dict it does not hash, and so would not notice that no key is current.
        if self.scope.entry in self.entries:
            del self.entries[self.scope.entry]

    @staticmethod
    def flatten(held: list[Any], rows: KeyedRows) -> list[int] | None:
        rows.values = held
        return None

    def load(self, rows: KeyedRows) -> None:
        """Load rows of a snapshot; rows of one entry follow each other."""
        for entry, value in zip(entries_of(rows), rows.values, strict=True):
            self.entries[entry] = value


class HeapValueState(HeapState, ValueState[Any]):
    """State of one value."""

    kind = "value"

    def value(self) -> Any:
        return self.entries.get(self.scope.entry)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            if type(value) not in self._fitting:
                value = self._kept(value)
            self.entries[self.scope.entry] = value


class HeapIntegerState(HeapValueState):
    """State of one value of an integer type: a comparison with its bounds is its check."""

    def update(self, value: Any) -> None:
        if type(value) is int and self._lowest <= value <= self._highest:
            self.entries[self.scope.entry] = value
        else:
            super().update(value)


class HeapListState(HeapState, ListState[Any]):
    """State of a list; an absent one reads as empty, and an empty one is not stored."""

    kind = "list"

    def get(self) -> Iterable[Any]:
        return list(self.entries.get(self.scope.entry, ()))

    def add(self, value: Any) -> None:
        # Not through add_all: windows add every record by itself.
        if value is None:
            self._checked((value,))
        elif (
            self._form_of is not None
            and not (type(value) is int and self._lowest <= value <= self._highest)
            and type(value) not in self._fitting
        ):
            value = self._kept(value)
        entry, entries = self.scope.entry, self.entries
        held = entries.get(entry)
        if held is None:
            entries[entry] = [value]
        else:
            held.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        added = self._checked(values)
        if not added:
            return
        held = self.entries.get(self.scope.entry)
        if held is None:
            self.entries[self.scope.entry] = added
        else:
            held.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        held = self._checked(values)
        if held:
            self.entries[self.scope.entry] = held
        else:
            self.clear()

    def merge_entry(self, target: Any, source: Any) -> None:
        moved = self.entries.pop(source, None)
        if moved is not None:
            self.entries.setdefault(target, []).extend(moved)

    @staticmethod
    def flatten(held: list[Any], rows: KeyedRows) -> list[int] | None:
        counts = list(map(len, held))
        rows.values = list(chain.from_iterable(held))
        rows.list_positions = list(chain.from_iterable(map(range, counts)))
        return counts

    def load(self, rows: KeyedRows) -> None:
        entries = self.entries
        for entry, value in zip(entries_of(rows), rows.values, strict=True):
            entries.setdefault(entry, []).append(value)


class HeapMapState(HeapState, MapState[Any, Any]):
    """State of a map; an empty one is not stored. Iteration is over a copy."""

    kind = "map"

    def __init__(self, descriptor: MapStateDescriptor, scope: EntryScope) -> None:
        super().__init__(descriptor, scope)
        self._key_forms = KeyForms(descriptor)
        self._converts_keys, self._plain_keys = self._key_forms.converts, self._key_forms.plain
        self._fitting_keys = self._key_forms.fitting

    def get(self, key: Any) -> Any:
        if self._converts_keys and type(key) not in self._plain_keys:
            key = self._key_forms.looked_up(key)
        held = self.entries.get(self.scope.entry)
        return None if held is None else held.get(key)

    def put(self, key: Any, value: Any) -> None:
        if self._converts_keys and type(key) not in self._fitting_keys:
            key = self._key_forms.kept(key)
        if (
            self._form_of is not None
            and not (type(value) is int and self._lowest <= value <= self._highest)
            and type(value) not in self._fitting
        ):
            value = self._kept(value)
        entry = self.scope.entry
        held = self.entries.get(entry)
        if held is None:
            self.entries[entry] = {key: value}
        else:
            held[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        if dict_value:
            kept = self._kept_entries(dict_value)
            self.entries.setdefault(self.scope.entry, {}).update(kept)

    def remove(self, key: Any) -> None:
        held = self.entries.get(self.scope.entry)
        if held is not None:
            held.pop(self._key_forms.looked_up(key), None)
            if not held:
                del self.entries[self.scope.entry]

    def contains(self, key: Any) -> bool:
        if self._converts_keys and type(key) not in self._plain_keys:
            key = self._key_forms.looked_up(key)
        return key in self.entries.get(self.scope.entry, ())

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._held().items())

    def keys(self) -> Iterable[Any]:
        return list(self._held())

    def values(self) -> Iterable[Any]:
        return list(self._held().values())

    def is_empty(self) -> bool:
        return not self._held()

    @staticmethod
    def flatten(held: list[Any], rows: KeyedRows) -> list[int] | None:
        rows.map_keys = list(chain.from_iterable(held))
        rows.values = list(chain.from_iterable(map(dict.values, held)))
        return list(map(len, held))

    def load(self, rows: KeyedRows) -> None:
        assert rows.map_keys is not None
        entries = self.entries
        for entry, key, value in zip(entries_of(rows), rows.map_keys, rows.values, strict=True):
            entries.setdefault(entry, {})[key] = value

    def _kept_entries(self, entries: Mapping[Any, Any]) -> dict[Any, Any]:
        return {self._key_forms.kept(key): self._kept(value) for key, value in entries.items()}

    def _held(self) -> Mapping[Any, Any]:
        return self.entries.get(self.scope.entry, {})


class HeapFoldState(HeapState):
    """Base of states of a fold, which can be merged."""

    @abstractmethod
    def _merged(self, held: Any, moved: Any) -> Any:
        """Return the fold of two folds."""

    def merge_entry(self, target: Any, source: Any) -> None:
        entries = self.entries
        if source in entries:
            moved = entries.pop(source)
            if target in entries:
                moved = self._kept(self._merged(entries[target], moved))
            entries[target] = moved


class HeapReducingState(HeapFoldState, ReducingState[Any]):
    """State of the fold of added values; the first value is stored unchanged."""

    kind = "reducing"

    def __init__(self, descriptor: ReducingStateDescriptor, scope: EntryScope) -> None:
        super().__init__(descriptor, scope)
        self._reduce: Callable[[Any, Any], Any] = descriptor.get_reduce_function().reduce

    def get(self) -> Any:
        return self.entries.get(self.scope.entry)

    def add(self, value: Any) -> None:
        entry = self.scope.entry
        entries = self.entries
        folded = self._reduce(entries[entry], value) if entry in entries else value
        entries[entry] = folded if self._form_of is None else self._kept(folded)

    def _merged(self, held: Any, moved: Any) -> Any:
        return self._reduce(held, moved)


class HeapAggregatingState(HeapFoldState, AggregatingState[Any, Any]):
    """State of an accumulator, made at the first add; the result is computed on each read."""

    kind = "aggregating"

    def __init__(self, descriptor: AggregatingStateDescriptor, scope: EntryScope) -> None:
        super().__init__(descriptor, scope)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        entry = self.scope.entry
        if entry not in self.entries:
            return None
        return self._function.get_result(self.entries[entry])

    def add(self, value: Any) -> None:
        entry = self.scope.entry
        entries = self.entries
        held = entries[entry] if entry in entries else self._function.create_accumulator()
        entries[entry] = self._added(value, held)

    def _added(self, value: Any, accumulator: Any) -> Any:
        changed = self._function.add(value, accumulator)
        if changed is None:
            raise no_accumulator()
        return changed if self._form_of is None else self._kept(changed)

    def _merged(self, held: Any, moved: Any) -> Any:
        return self._function.merge(held, moved)
