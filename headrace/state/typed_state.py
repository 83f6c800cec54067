"""Bases of keyed state: `TypedStateBackend` registers the handles of states, and `TypedState` is the base of handles.

A handle converts values to the form of their declared type, the one that a snapshot restores, so that a restore
changes nothing. `KeyForms` converts the keys of map states. Source: Flink AbstractKeyedStateBackend.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from headrace.core.clock import Clock
from headrace.core.errors import RecordTypeError
from headrace.core.types.round_trip_normalizer import RoundTripNormalizer
from headrace.core.types.type_info import TypeInformation
from headrace.functions.state import ListStateDescriptor, MapStateDescriptor, State, StateDescriptor
from headrace.state.backend import (
    NO_KEY,
    EntryScope,
    KeyedStateBackend,
    Snapshotable,
    StateAccessError,
)
from headrace.state.keyed_chunks import KeyedStateForm
from headrace.state.queryable.live_rows import LiveSource
from headrace.state.restored_keyed_state import KeySpace
from headrace.state.ttl import BatchClock, EventClock, TtlClocks, TtlRules


class TypedState(State):
    """Base of the handles: the state of a descriptor, addressed by the current entry of a scope."""

    kind: ClassVar[str]

    def __init__(self, descriptor: StateDescriptor, scope: EntryScope) -> None:
        self.descriptor = descriptor
        self.scope = scope
        # Hot: each update asks for class and bounds, and only other values are looked at.
        check = RoundTripNormalizer.of(self.single_value_type())
        self._fitting = check.fitting
        self._form_of = None if check.keeps_all else check.keep
        self._lowest, self._highest = check.lowest, check.highest
        self._takes_none = isinstance(descriptor, ListStateDescriptor) and descriptor.takes_none

    def single_value_type(self) -> TypeInformation:
        """Return the type of a single value: the type of the column `value` in a snapshot."""
        descriptor = self.descriptor
        if isinstance(descriptor, ListStateDescriptor):
            return descriptor.element_type
        if isinstance(descriptor, MapStateDescriptor):
            return descriptor.value_type
        return descriptor.type_info

    def merge_entry(self, target: Any, source: Any) -> None:
        """Merge the value at `source`, if any, into the value at `target`, and remove it."""
        raise StateAccessError(
            f"{self.kind} state '{self.descriptor.get_name()}' cannot be merged, which merging windows require"
        )

    def _kept(self, value: Any) -> Any:
        """Return `value` in the stored form of the declared type; StateAccessError if it is not of that type."""
        form_of = self._form_of
        if (
            form_of is None
            or (type(value) is int and self._lowest <= value <= self._highest)
            or type(value) in self._fitting
        ):
            return value
        try:
            return form_of(value)
        except RecordTypeError as error:
            raise misfit(self.descriptor, error) from None

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        """Return the elements of a list in the stored form of the declared type."""
        checked = list(values)
        if not self._takes_none and any(value is None for value in checked):
            raise StateAccessError(
                f"list state '{self.descriptor.get_name()}' does not accept None as an element"
            )
        return list(map(self._kept, checked))


Handle = TypeVar("Handle", bound=TypedState)


class TypedStateBackend(KeyedStateBackend, Snapshotable, Generic[Handle]):
    """Base of the backends of keyed state: the current key and namespace, clocks, and registered handles by name."""

    handle_classes: ClassVar[Mapping[type[StateDescriptor], Any]]

    def __init__(self, key_space: KeySpace, clock: Clock) -> None:
        self.key_scope = EntryScope()
        self.window_scope = EntryScope()
        self.event_clock = EventClock()
        self._clocks = TtlClocks(BatchClock(clock), self.event_clock)
        self._key_space = key_space
        self._handles: dict[str, Handle] = {}

    @abstractmethod
    def _new_handle(
        self, handle_class: Any, descriptor: StateDescriptor, scope: EntryScope
    ) -> Handle:
        """Return the handle of a state, registered and with its restored rows."""

    @abstractmethod
    def live_sources(self) -> list[LiveSource]:
        """Return a source of live rows for each state."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; idempotent."""

    def forms(self) -> list[KeyedStateForm]:
        """Return the forms of all requested states."""
        return [self._form(handle) for handle in self._handles.values()]

    def set_current_key(self, key: Any) -> None:
        self.key_scope.entry = key

    def set_current_namespace(self, namespace: Any) -> None:
        self.window_scope.entry = (self.key_scope.entry, namespace)

    def begin_batch(self, row_count: int) -> None:
        self._clocks.processing.begin_batch()

    def end_batch(self) -> None:
        self.key_scope.entry = NO_KEY
        self._clocks.processing.end_batch()
        self.event_clock.end_batch()

    def get_state(self, descriptor: StateDescriptor, scope: EntryScope) -> State:
        return self._handle_of(descriptor, scope)

    def merge_namespaces(
        self, descriptor: StateDescriptor, target: Any, sources: Sequence[Any]
    ) -> None:
        handle = self._handle_of(descriptor, self.window_scope)
        key = self.key_scope.entry
        for source in sources:
            handle.merge_entry((key, target), (key, source))

    def _handle_of(self, descriptor: StateDescriptor, scope: EntryScope) -> Handle:
        name = descriptor.get_name()
        handle_class = self._handle_class(descriptor)
        handle = self._handles.get(name)
        if handle is None:
            return self._new_handle(handle_class, descriptor, scope)
        if handle.kind != handle_class.kind:
            raise StateAccessError(
                f"state '{name}' is already registered as {handle.kind} state: "
                f"give the {handle_class.kind} state another name"
            )
        if handle.scope is not scope:
            raise StateAccessError(
                f"state '{name}' is requested both per key and per window: use two names"
            )
        return handle

    def _handle_class(self, descriptor: StateDescriptor) -> Any:
        for descriptor_class, handle_class in self.handle_classes.items():
            if isinstance(descriptor, descriptor_class):
                return handle_class
        raise StateAccessError(f"{type(descriptor).__name__} does not describe a keyed state")

    def _form(self, handle: Handle) -> KeyedStateForm:
        descriptor = handle.descriptor
        is_map = isinstance(descriptor, MapStateDescriptor)
        return KeyedStateForm(
            name=descriptor.get_name(),
            kind=handle.kind,
            scope="window" if handle.scope is self.window_scope else "key",
            key_type=self._key_space.key_type,
            value_type=handle.single_value_type(),
            map_key_type=descriptor.key_type if is_map else None,
            has_ttl=TtlRules.of(descriptor) is not None,
        )


def no_accumulator() -> TypeError:
    """Return the error for an AggregateFunction whose `add` returned None."""
    return TypeError("AggregateFunction.add must return the accumulator, but it returned None")


def misfit(descriptor: StateDescriptor, error: RecordTypeError) -> StateAccessError:
    """Return the error for a value that is not of the declared type."""
    return StateAccessError(
        f"state '{descriptor.get_name()}' cannot hold {error.shown}: it is declared as {error.type_text}, "
        f"{error.reason}",
        descriptor.get_name(),
        error,
    )


class KeyForms:
    """Converts the keys of a map state to the form that is stored and looked up."""

    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self._descriptor = descriptor
        check = RoundTripNormalizer.of(descriptor.key_type, is_key=True)
        self.converts = not check.keeps_all
        """False for undeclared types, whose keys are kept as they are."""
        self.plain = check.fitting | ({int} if check.lowest <= check.highest else set[type]())
        """Classes of keys that are looked up as they are."""
        self.fitting, self._keep = check.fitting, check.keep
        self._lowest, self._highest = check.lowest, check.highest

    def kept(self, key: Any) -> Any:
        """Return the stored form of `key`; StateAccessError if `key` is not of the declared type."""
        if (type(key) is int and self._lowest <= key <= self._highest) or type(key) in self.fitting:
            return key
        try:
            return self._keep(key)
        except RecordTypeError as error:
            raise misfit(self._descriptor, error) from None

    def looked_up(self, key: Any) -> Any:
        """Return the stored form of `key`, or `key` itself if it has none, so that it is not found."""
        if type(key) in self.plain:
            return key
        try:
            return self._keep(key)
        except RecordTypeError:
            return key
