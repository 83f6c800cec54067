"""HeapKeyedStateBackend: one dict per state, with Python objects in the form that a snapshot gives back.

`value()` returns the stored object itself: changing it without `update` changes the state, and is a bug that other
backends, which store copies, will show. What is emitted is copied on its way out, so that later changes of a state do
not change it. `ListState.get` and the views of `MapState` are copies of the container, so that states may be changed
while they are iterated. `EntryPieces` reads live rows from frozen entries, long lists and maps in parts.
Source: Flink HeapKeyedStateBackend.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import Clock, SystemClock
from headrace.core.types.round_trip_normalizer import integer_bounds
from headrace.core.types.type_info import PickledBytesTypeInfo
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state import columns as state_columns
from headrace.state.backend import NO_KEY, EntryScope, StateAccessError, refuse_other_registration
from headrace.state.columns import LIST_POS
from headrace.state.heap.copy_on_write_map import FrozenEntries
from headrace.state.heap.handles import (
    HeapAggregatingState,
    HeapIntegerState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.heap.ttl import TTL_HANDLES, TtlHeapState
from headrace.state.keyed_chunks import (
    Flatten,
    KeyedRows,
    KeyedStateForm,
    no_rows,
    table_of_entries,
    write_keyed_state,
)
from headrace.state.queryable.live_rows import (
    LivePiece,
    LiveRows,
    LiveSource,
    PiecedRows,
    keyed_source,
    own_keys,
    waiting_sources,
)
from headrace.state.restored import FrozenUnclaimed, KeySpace, RestoredKeyedState
from headrace.state.ttl import BatchClock, EventClock, TtlClocks, TtlRules

_PART_ROWS: Final = 256
"""Limit of elements of one list, or entries of one map, that are examined at once."""
_HANDLES: dict[type[StateDescriptor], type[HeapState]] = {
    ValueStateDescriptor: HeapValueState,
    ListStateDescriptor: HeapListState,
    MapStateDescriptor: HeapMapState,
    ReducingStateDescriptor: HeapReducingState,
    AggregatingStateDescriptor: HeapAggregatingState,
}
_ALL_KEYS: Final = KeySpace(PickledBytesTypeInfo(), range(128), 128)


class HeapKeyedStateBackend:
    """Keyed state in dicts."""

    def __init__(
        self,
        key_space: KeySpace = _ALL_KEYS,
        restored: RestoredKeyedState | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.event_clock = EventClock()
        self._clocks = TtlClocks(BatchClock(clock or SystemClock()), self.event_clock)
        self._key_space = key_space
        self._restored = restored
        self.key_scope = EntryScope()
        self.window_scope = EntryScope()
        self._handles: dict[str, HeapState] = {}
        self._ttl_handles: list[TtlHeapState] = []

    def set_current_key(self, key: Any) -> None:
        self.key_scope.entry = key

    def set_current_namespace(self, namespace: Any) -> None:
        self.window_scope.entry = (self.key_scope.entry, namespace)

    def get_state(self, descriptor: StateDescriptor, scope: EntryScope) -> State:
        name = descriptor.get_name()
        handle_class = _handle_class(descriptor)
        handle = self._handles.get(name)
        if handle is None:
            handle = self._new_handle(handle_class, descriptor, scope)
            if self._restored is not None:
                for rows in self._restored.claim(self._form(handle), descriptor.field_changes):
                    handle.load(rows)
            self._handles[name] = handle
        else:
            refuse_other_registration(name, handle, handle_class.kind, scope)
        return handle

    def has_unclaimed(self, name: str) -> bool:
        return self._restored is not None and self._restored.holds(name)

    def begin_batch(self, row_count: int) -> None:
        if self._ttl_handles:
            self._clocks.processing.begin_batch()
            for handle in self._ttl_handles:
                if handle.rules.cleans_every_record:
                    handle.sweep(handle.rules.cleanup_size * row_count)

    def end_batch(self) -> None:
        self.key_scope.entry = NO_KEY
        self._clocks.processing.end_batch()
        self.event_clock.end_batch()

    def _new_handle(
        self, handle_class: type[HeapState], descriptor: StateDescriptor, scope: EntryScope
    ) -> HeapState:
        rules = TtlRules.of(descriptor)
        if rules is None:
            if handle_class is HeapValueState and integer_bounds(descriptor.type_info) is not None:
                return HeapIntegerState(descriptor, scope)
            return handle_class(descriptor, scope)
        clock = self._clocks.of(rules)
        handle: TtlHeapState = TTL_HANDLES[handle_class](descriptor, scope, rules, clock)
        self._ttl_handles.append(handle)
        return handle

    def merge_namespaces(
        self, descriptor: StateDescriptor, target: Any, sources: Sequence[Any]
    ) -> None:
        self.get_state(descriptor, self.window_scope)
        handle = self._handles[descriptor.get_name()]
        key = self.key_scope.entry
        for source in sources:
            handle.merge_entry((key, target), (key, source))

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenHeap":
        tables = [
            _FrozenTable(
                self._form(handle),
                handle.flatten_at(),
                handle.freeze_entries(),
                handle.expired_until_ms(),
            )
            for handle in self._handles.values()
        ]
        return FrozenHeap(tables, self._restored, self._key_space.max_parallelism)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Do nothing: every snapshot is a full one."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass

    def forms(self) -> list[KeyedStateForm]:
        """Return the forms of all requested states."""
        return [self._form(handle) for handle in self._handles.values()]

    def live_sources(self) -> list[LiveSource]:
        """Return a source of live rows for each state."""
        own = [
            keyed_source(self._form(handle), partial(self._live_rows, handle))
            for handle in self._handles.values()
        ]
        return [*own, *waiting_sources(self._restored)]

    def _live_rows(self, handle: HeapState, keys: pa.Array | None) -> LiveRows:
        form, key_space = self._form(handle), self._key_space
        wanted = own_keys(form.name, keys, key_space)
        entries = handle.freeze_entries()
        pieces = EntryPieces(
            form, entries, handle.flatten_all_at(), key_space.max_parallelism, wanted
        )
        return PiecedRows(
            pieces, partial(no_rows, form), entries.release, handle.expired_until_ms()
        )

    def close(self) -> None:
        """Release everything."""
        self._handles.clear()

    def _form(self, handle: HeapState) -> KeyedStateForm:
        descriptor = handle.descriptor
        return KeyedStateForm(
            name=descriptor.get_name(),
            kind=handle.kind,
            scope="window" if handle.scope is self.window_scope else "key",
            key_type=self._key_space.key_type,
            value_type=handle.single_value_type(),
            map_key_type=descriptor.key_type
            if isinstance(descriptor, MapStateDescriptor)
            else None,
            has_ttl=isinstance(handle, TtlHeapState),
        )

    def create_timer_queue(self, name: str) -> HeapTimerQueue:
        return HeapTimerQueue()

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        self.get_state(descriptor, self.key_scope)
        return list(self._handles[descriptor.get_name()].entries)

    def key_count(self, name: str) -> int:
        handle = self._handles.get(name)
        return 0 if handle is None else len(handle.entries)

    def total_entry_count(self) -> int:
        """Return the number of entries of all states, for tests that nothing is left behind."""
        return sum(len(handle.entries) for handle in self._handles.values())


@dataclass(frozen=True)
class _FrozenTable:
    form: KeyedStateForm
    flatten: Flatten
    entries: FrozenEntries
    expired_until_ms: int | None


class FrozenHeap:
    """Frozen state of the heap backend: the entries of all states, and restored states that were never requested."""

    def __init__(
        self,
        tables: Sequence[_FrozenTable],
        restored: RestoredKeyedState | None,
        max_parallelism: int,
    ) -> None:
        self._tables = tables
        self._unclaimed = None if restored is None else FrozenUnclaimed(restored)
        self._max_parallelism = max_parallelism

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        chunks: list[StateChunk] = []
        for table in self._tables:
            chunks += write_keyed_state(
                table.form,
                table.entries,
                table.flatten,
                self._max_parallelism,
                writer,
                table.expired_until_ms,
            )
        if self._unclaimed is not None:
            chunks += self._unclaimed.write(writer)
        return chunks

    def discard(self) -> None:
        for table in self._tables:
            table.entries.release()


def _handle_class(descriptor: StateDescriptor) -> type[HeapState]:
    for descriptor_class, handle_class in _HANDLES.items():
        if isinstance(descriptor, descriptor_class):
            return handle_class
    raise StateAccessError(f"{type(descriptor).__name__} describes no kind of keyed state")


@dataclass(frozen=True)
class _Part:
    """The value of an entry, or a part of it; `begin`: position of its first element; `size`: rows, at least 1."""

    entry: Any
    held: Any
    begin: int
    size: int


@dataclass(frozen=True)
class EntryPieces:
    """Reads frozen entries of a state in pieces, of certain keys or of all (None)."""

    form: KeyedStateForm
    entries: FrozenEntries
    flatten: Flatten
    max_parallelism: int
    keys: Sequence[Any] | None

    def __call__(self, count: Callable[[], int]) -> Iterator[LivePiece]:
        parts = self._parts()
        is_over = False
        while not is_over:
            wanted, looked_at = count(), 0
            piece: list[_Part] = []
            while looked_at < wanted:
                part = next(parts, _END)
                if part is _END:
                    is_over = True
                    break
                looked_at += 1 if part is None else part.size
                if part is not None:
                    piece.append(part)
            if looked_at:
                yield LivePiece(self._table(piece) if piece else None, looked_at)

    def _parts(self) -> Iterator[_Part | None]:
        """Yield each part of each wanted entry, and None for an entry that is not wanted."""
        for entry, is_wanted in self._candidates():
            if not is_wanted:
                yield None
                continue
            (held,) = self.entries.values_of((entry,))
            if self.form.is_list:
                for begin in range(0, len(held), _PART_ROWS):
                    part = held[begin : begin + _PART_ROWS]
                    yield _Part(entry, part, begin, len(part))
            elif self.form.is_map:
                items = iter(held.items())
                while part := dict(islice(items, _PART_ROWS)):
                    yield _Part(entry, part, 0, len(part))
            else:
                yield _Part(entry, held, 0, 1)

    def _candidates(self) -> Iterator[tuple[Any, bool]]:
        """Yield entries, and whether they are wanted; in states without windows the keys are looked up."""
        if self.keys is None:
            for entry in self.entries:
                yield entry, True
        elif self.form.scope == "key":
            for key in self.keys:
                yield key, key in self.entries
        else:
            wanted = set(self.keys)
            for entry in self.entries:
                yield entry, entry[0] in wanted

    def _table(self, piece: Sequence[_Part]) -> pa.Table:
        form = self.form
        entries = [part.entry for part in piece]
        keys = [entry[0] for entry in entries] if form.scope == "window" else entries
        groups = state_columns.key_groups(keys, form.key_type, self.max_parallelism)
        rows = KeyedRows.for_form(form)
        counts = self.flatten([part.held for part in piece], rows)
        table = table_of_entries(form, entries, groups, rows, counts)
        if form.is_list and counts is not None:
            begins = np.repeat(np.array([part.begin for part in piece], np.int32), counts)
            positions = table.column(LIST_POS).to_numpy() + begins
            index = table.schema.get_field_index(LIST_POS)
            table = table.set_column(index, LIST_POS, pa.array(positions, pa.int32()))
        return table


_END: Final = _Part(None, None, 0, 0)
