"""The heap backend: one dict per state, Python objects as they are.

What `value()` gives is the stored object itself: changing it without `update` changes the state, and is a bug that
other backends, which store copies, will show. What is emitted is copied on its way out, so that a state which changes
later does not change it. `ListState.get` and the views of `MapState` are copies of the
container, so states may be changed while they are iterated.

Source: Flink HeapKeyedStateBackend.
"""

from collections.abc import Sequence
from typing import Any

from headrace.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueStateDescriptor,
)
from headrace.state.backend import EntryScope, StateAccessError
from headrace.state.heap_handles import (
    HeapAggregatingState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)

_HANDLES: dict[type[StateDescriptor], type[HeapState]] = {
    ValueStateDescriptor: HeapValueState,
    ListStateDescriptor: HeapListState,
    MapStateDescriptor: HeapMapState,
    ReducingStateDescriptor: HeapReducingState,
    AggregatingStateDescriptor: HeapAggregatingState,
}


class HeapKeyedStateBackend:
    """Keyed state in dicts. See `KeyedStateBackend`."""

    def __init__(self) -> None:
        self.key_scope = EntryScope()
        self.window_scope = EntryScope()
        self._handles: dict[str, HeapState] = {}

    def set_current_key(self, key: Any) -> None:
        self.key_scope.entry = key

    def set_current_namespace(self, namespace: Any) -> None:
        self.window_scope.entry = (self.key_scope.entry, namespace)

    def get_state(self, descriptor: StateDescriptor, scope: EntryScope) -> State:
        name = descriptor.get_name()
        handle_class = _handle_class(descriptor)
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = handle_class(descriptor, scope)
        elif type(handle) is not handle_class:
            raise StateAccessError(
                f"state '{name}' is already registered as {handle.kind} state: "
                f"give the {handle_class.kind} state another name"
            )
        elif handle.scope is not scope:
            raise StateAccessError(
                f"state '{name}' is already registered, once per key and once per window: use two names"
            )
        return handle

    def merge_namespaces(
        self, descriptor: StateDescriptor, target: Any, sources: Sequence[Any]
    ) -> None:
        self.get_state(descriptor, self.window_scope)
        handle = self._handles[descriptor.get_name()]
        key = self.key_scope.entry
        for source in sources:
            handle.merge_entry((key, target), (key, source))

    def key_count(self, name: str) -> int:
        handle = self._handles.get(name)
        return 0 if handle is None else len(handle.entries)

    def total_entry_count(self) -> int:
        """Number of entries of all states, to see that nothing is left behind."""
        return sum(len(handle.entries) for handle in self._handles.values())


def _handle_class(descriptor: StateDescriptor) -> type[HeapState]:
    for descriptor_class, handle_class in _HANDLES.items():
        if isinstance(descriptor, descriptor_class):
            return handle_class
    raise StateAccessError(f"{type(descriptor).__name__} describes no kind of keyed state")
