"""Operator state: what belongs to a subtask and not to a key.

Always on the heap. Three modes say what a change of parallelism does with a state: the items of a SPLIT list are dealt
out evenly, a UNION list goes to every subtask as a whole, a BROADCAST map is the same on all of them.

Source: Flink DefaultOperatorStateBackend.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.checkpoint.handles import OperatorStateMode
from headrace.core.errors import RecordTypeError
from headrace.core.types.record_copies import private_copy
from headrace.core.types.round_trip_normalizer import RoundTripNormalizer
from headrace.core.types.type_info import TypeInformation
from headrace.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    StateDescriptor,
)
from headrace.state.backend import StateAccessError


@dataclass(frozen=True)
class FrozenOperatorState:
    """One state of one subtask as it was at the synchronous part of a snapshot; shares nothing with the live state.

    `items`: the values of a list, or the (key, value) pairs of a broadcast state. `type_info` is the descriptor's:
    that of the list or of the map.
    """

    name: str
    mode: OperatorStateMode
    items: tuple[Any, ...]
    type_info: TypeInformation


class OperatorStateBackend(OperatorStateStore):
    """The operator states of one operator on one subtask, by name. Mailbox thread only.

    The same descriptor gives the same handle. What was restored and is never asked for stays in later snapshots.
    """

    def __init__(self) -> None:
        self._states: dict[str, _HeldState] = {}
        self._restored: dict[str, FrozenOperatorState] = {}

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose items are dealt out evenly when the parallelism changes."""
        state = self._state(state_descriptor, OperatorStateMode.SPLIT, OperatorListState)
        assert isinstance(state, OperatorListState)
        return state

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that after a restore holds the items of all subtasks, on each of them."""
        state = self._state(state_descriptor, OperatorStateMode.UNION, OperatorListState)
        assert isinstance(state, OperatorListState)
        return state

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that every subtask must change alike."""
        state = self._state(state_descriptor, OperatorStateMode.BROADCAST, HeapBroadcastState)
        assert isinstance(state, HeapBroadcastState)
        return state

    def freeze(self) -> list[FrozenOperatorState]:
        """Return copies of all states, in the order in which they were first asked for."""
        return [self.freeze_one(name) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all states, those among them that nobody has asked for since the restore."""
        return [*self._states, *self._restored]

    def freeze_one(self, name: str) -> FrozenOperatorState:
        """Return a copy of one of them."""
        state = self._states.get(name)
        if state is None:
            return self._restored[name]
        items = tuple(map(private_copy, state.frozen_items()))
        return FrozenOperatorState(name, state.mode, items, state.type_info)

    def restore(self, states: Sequence[FrozenOperatorState]) -> None:
        """Begin with these states; called once, before any state is asked for."""
        assert not self._states
        # Copies: items of union and broadcast states may be those of other subtasks of this process too.
        self._restored = {
            state.name: replace(state, items=tuple(map(private_copy, state.items)))
            for state in states
        }

    def _state(
        self,
        descriptor: StateDescriptor,
        mode: OperatorStateMode,
        create: "Callable[[Any, OperatorStateMode], _HeldState]",
    ) -> "_HeldState":
        name = descriptor.get_name()
        held = self._states.get(name)
        if held is None:
            _refuse_ttl(descriptor)
            restored = self._restored.get(name)
            if restored is not None:
                _check_same(name, restored.mode, restored.type_info, mode, descriptor.type_info)
            held = create(descriptor, mode)
            if restored is not None:
                held.take_items(restored.items)
                del self._restored[name]
            self._states[name] = held
        else:
            _check_same(name, held.mode, held.type_info, mode, descriptor.type_info)
        return held


class _HeldState:
    """Base of the handles: name, mode, declared type, and the items for a snapshot."""

    def __init__(self, descriptor: StateDescriptor, mode: OperatorStateMode) -> None:
        self.name = descriptor.get_name()
        self.mode = mode
        self.type_info = descriptor.type_info

    def frozen_items(self) -> Iterable[Any]:
        """Items of a snapshot, not yet copied."""
        raise NotImplementedError

    def take_items(self, items: Iterable[Any]) -> None:
        """Begin with the items of a snapshot."""
        raise NotImplementedError

    def _kept(self, check: RoundTripNormalizer, value: Any) -> Any:
        """Return the form in which the declared type keeps `value`; StateAccessError where it is not of that type."""
        try:
            return check.keep(value)
        except RecordTypeError as error:
            raise StateAccessError(
                f"state '{self.name}' cannot hold {error.shown}: it is declared as {error.type_text}, {error.reason}"
            ) from None


class OperatorListState(_HeldState, ListState[Any]):
    """A SPLIT or UNION list; no element is None."""

    def __init__(self, descriptor: ListStateDescriptor, mode: OperatorStateMode) -> None:
        super().__init__(descriptor, mode)
        self._element_check = RoundTripNormalizer.of(descriptor.element_type)
        self._items: list[Any] = []

    def get(self) -> Iterable[Any]:
        return list(self._items)

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        self._items += self._checked(values)

    def update(self, values: list[Any]) -> None:
        self._items = self._checked(values)

    def clear(self) -> None:
        self._items = []

    def frozen_items(self) -> Iterable[Any]:
        return self._items

    def take_items(self, items: Iterable[Any]) -> None:
        self._items = list(items)

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        checked = list(values)
        if any(value is None for value in checked):
            raise StateAccessError(f"list state '{self.name}' takes no None elements")
        return [self._kept(self._element_check, value) for value in checked]


class HeapBroadcastState(_HeldState, BroadcastState[Any, Any]):
    """A BROADCAST map. Iteration is over a copy."""

    def __init__(self, descriptor: MapStateDescriptor, mode: OperatorStateMode) -> None:
        super().__init__(descriptor, mode)
        self._key_check = RoundTripNormalizer.of(descriptor.key_type, is_key=True)
        self._value_check = RoundTripNormalizer.of(descriptor.value_type)
        self._entries: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self._entries.get(self._looked_up(key))

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        kept = {
            self._kept(self._key_check, key): self._kept(self._value_check, value)
            for key, value in dict_value.items()
        }
        self._entries.update(kept)

    def remove(self, key: Any) -> None:
        self._entries.pop(self._looked_up(key), None)

    def contains(self, key: Any) -> bool:
        return self._looked_up(key) in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._entries.items())

    def keys(self) -> Iterable[Any]:
        return list(self._entries)

    def values(self) -> Iterable[Any]:
        return list(self._entries.values())

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def frozen_items(self) -> Iterable[Any]:
        return self._entries.items()

    def take_items(self, items: Iterable[Any]) -> None:
        self._entries = dict(items)

    def _looked_up(self, key: Any) -> Any:
        """Return the form that is kept of `key`, or `key` itself where none is: then nothing is found."""
        try:
            return self._key_check.keep(key)
        except RecordTypeError:
            return key


def _check_same(
    name: str,
    known_mode: OperatorStateMode,
    known_type: TypeInformation,
    mode: OperatorStateMode,
    type_info: TypeInformation,
) -> None:
    """StateAccessError where one name stands for two kinds of state, or for two types."""
    if known_mode is not mode:
        raise StateAccessError(
            f"operator state '{name}' is a {known_mode.name} state already: give the {mode.name} state another name"
        )
    if known_type != type_info:
        raise StateAccessError(
            f"operator state '{name}' holds {known_type}, and is asked for as {type_info}: use one descriptor for both"
        )


def _refuse_ttl(descriptor: StateDescriptor) -> None:
    if descriptor.ttl_config is not None and descriptor.ttl_config.is_enabled():
        raise StateAccessError(
            f"operator state '{descriptor.get_name()}' asks for a time to live, which only keyed state has"
        )
