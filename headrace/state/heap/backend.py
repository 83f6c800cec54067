"""HeapKeyedStateBackend: one dict per state, with Python objects in the form that a snapshot gives back.

`value()` returns the stored object itself: changing it without `update` changes the state, and is a bug that other
backends, which store copies, will show. What is emitted is copied on its way out, so that later changes of a state do
not change it. `ListState.get` and the views of `MapState` are copies of the container, so that states may be changed
while they are iterated. Source: Flink HeapKeyedStateBackend.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

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
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.backend import (
    NO_KEY,
    EntryScope,
    Snapshotable,
    StateAccessError,
    refuse_other_registration,
)
from headrace.state.heap.handles import (
    HeapAggregatingState,
    HeapIntegerState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)
from headrace.state.heap.snapshots import EntryPieces, FrozenHeap, FrozenTable
from headrace.state.heap.timers import HeapTimerQueue
from headrace.state.heap.ttl import TTL_HANDLES, TtlHeapState
from headrace.state.keyed_chunks import (
    KeyedStateForm,
    no_rows,
)
from headrace.state.queryable.live_rows import (
    LiveRows,
    LiveSource,
    keyed_source,
    own_keys,
    waiting_sources,
)
from headrace.state.restored_keyed_state import KeySpace, RestoredKeyedState
from headrace.state.ttl import BatchClock, EventClock, TtlClocks, TtlRules

_HANDLES: dict[type[StateDescriptor], type[HeapState]] = {
    ValueStateDescriptor: HeapValueState,
    ListStateDescriptor: HeapListState,
    MapStateDescriptor: HeapMapState,
    ReducingStateDescriptor: HeapReducingState,
    AggregatingStateDescriptor: HeapAggregatingState,
}
_ALL_KEYS: Final = KeySpace(PickledBytesTypeInfo(), range(128), 128)


class HeapKeyedStateBackend(Snapshotable):
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
            FrozenTable(
                self._form(handle),
                handle.flatten_at(),
                handle.freeze_entries(),
                handle.expired_until_ms(),
            )
            for handle in self._handles.values()
        ]
        return FrozenHeap(tables, self._restored, self._key_space.max_parallelism)

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
        return LiveRows(pieces, partial(no_rows, form), entries.release, handle.expired_until_ms())

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


def _handle_class(descriptor: StateDescriptor) -> type[HeapState]:
    for descriptor_class, handle_class in _HANDLES.items():
        if isinstance(descriptor, descriptor_class):
            return handle_class
    raise StateAccessError(f"{type(descriptor).__name__} describes no kind of keyed state")
