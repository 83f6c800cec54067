"""HeapKeyedStateBackend: one dict per state, with Python objects in the form that a snapshot gives back.

`value()` returns the stored object itself: changing it without `update` changes the state, and is a bug that other
backends, which store copies, will show. What is emitted is copied on its way out, so that later changes of a state do
not change it. `ListState.get` and the views of `MapState` are copies of the container, so that states may be changed
while they are iterated. Source: Flink HeapKeyedStateBackend.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa

from headrace.core.barriers import CheckpointOptions
from headrace.core.clock import Clock, SystemClock
from headrace.core.types.round_trip_normalizer import integer_bounds
from headrace.core.types.type_info import PickledBytesTypeInfo
from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.backend import EntryScope
from headrace.state.heap.handles import (
    HeapAggregatingState,
    HeapIntegerState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)
from headrace.state.heap.snapshots import EntryPieces, FrozenHeap, FrozenHeapTable
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.heap.ttl import TTL_HANDLES, TtlHeapState
from headrace.state.keyed_chunks import no_rows
from headrace.state.queryable.live_rows import (
    LiveRows,
    LiveSource,
    keyed_source,
    own_keys,
    waiting_sources,
)
from headrace.state.restored_keyed_state import KeySpace, RestoredKeyedState
from headrace.state.ttl import TtlRules
from headrace.state.typed_state import TypedStateBackend

_ALL_KEYS: Final = KeySpace(PickledBytesTypeInfo(), range(128), 128)


class HeapKeyedStateBackend(TypedStateBackend[HeapState]):
    """Keyed state in dicts."""

    handle_classes: ClassVar[Mapping[type[StateDescriptor], type[HeapState]]] = {
        ValueStateDescriptor: HeapValueState,
        ListStateDescriptor: HeapListState,
        MapStateDescriptor: HeapMapState,
        ReducingStateDescriptor: HeapReducingState,
        AggregatingStateDescriptor: HeapAggregatingState,
    }

    def __init__(
        self,
        key_space: KeySpace = _ALL_KEYS,
        restored: RestoredKeyedState | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(key_space, clock or SystemClock())
        self._restored = restored
        self._ttl_handles: list[TtlHeapState] = []

    def has_unclaimed(self, name: str) -> bool:
        return self._restored is not None and self._restored.holds(name)

    def begin_batch(self, row_count: int) -> None:
        if self._ttl_handles:
            super().begin_batch(row_count)
            for handle in self._ttl_handles:
                if handle.rules.cleans_every_record:
                    handle.sweep(handle.rules.cleanup_size * row_count)

    def _new_handle(
        self, handle_class: type[HeapState], descriptor: StateDescriptor, scope: EntryScope
    ) -> HeapState:
        handle = self._empty_handle(handle_class, descriptor, scope)
        if self._restored is not None:
            for rows in self._restored.claim(self._form(handle), descriptor.field_changes):
                handle.load(rows)
        self._handles[descriptor.get_name()] = handle
        return handle

    def _empty_handle(
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

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenHeap":
        tables = [
            FrozenHeapTable(
                self._form(handle),
                handle.flatten_at(),
                handle.freeze_entries(),
                handle.expired_until_ms(),
            )
            for handle in self._handles.values()
        ]
        return FrozenHeap(tables, self._restored, self._key_space.max_parallelism)

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
        return LiveRows(pieces, partial(no_rows, form), entries.release, handle.expired_until_ms())

    def close(self) -> None:
        """Release everything."""
        self._handles.clear()

    def create_timer_queue(self, name: str) -> HeapTimerQueue:
        return HeapTimerQueue()

    def forget_keys(self) -> None:
        for handle in self._handles.values():
            handle.entries.clear()
        self.event_clock.restart()

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        return list(self._handle_of(descriptor, self.key_scope).entries)

    def key_count(self, name: str) -> int:
        handle = self._handles.get(name)
        return 0 if handle is None else len(handle.entries)
