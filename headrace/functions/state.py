"""Descriptors of states, and the handles through which user functions read and write them.

A descriptor is shipped and has name, types and time to live; a handle comes from the runtime and always refers to the
current key. Absent values read as None, absent collections as empty.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from headrace.core.types.type_info import ListTypeInfo, MapTypeInfo, TypeInformation
from headrace.functions.record import AggregateFunction, ReduceFunction
from headrace.functions.state_ttl import StateTtlConfig

__all__ = [
    "StateDescriptor",
    "ValueStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "AggregatingStateDescriptor",
    "State",
    "ValueState",
    "AppendingState",
    "MergingState",
    "ListState",
    "ReducingState",
    "AggregatingState",
    "MapState",
    "ReadOnlyBroadcastState",
    "BroadcastState",
    "OperatorStateStore",
    "StateTtlConfig",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


@dataclass(frozen=True)
class FieldChange:
    """Rule for filling a field from older snapshots: its old name, or a default. See `StateDescriptor.evolve_field`."""

    renamed_from: str | None = None
    default: Any = None


class StateDescriptor:
    """Name and type of a state; the name is unique in its operator."""

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        self.name = name
        self.type_info = type_info
        self.ttl_config: StateTtlConfig | None = None
        self.field_changes: dict[str, FieldChange] = {}

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire after a time to live."""
        self.ttl_config = ttl_config

    def evolve_field(
        self, path: str, *, renamed_from: str | None = None, default: Any = None
    ) -> None:
        """Define how a field of the declared type is filled from older snapshots.

        `path`: the field's name, for nested fields joined by dots. `renamed_from`: its name in older snapshots.
        `default`: its value if they have none, as Arrow stores it (else null).
        """
        self.field_changes[path] = FieldChange(renamed_from, default)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """Describes one value per key."""

    def __init__(self, name: str, value_type_info: TypeInformation) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a list per key; `type_info` is the type of the list."""

    takes_none: ClassVar[bool] = False
    """True if None may be an element; users' lists refuse it, as in Flink."""

    def __init__(self, name: str, elem_type_info: TypeInformation) -> None:
        super().__init__(name, ListTypeInfo(elem_type_info))
        self.element_type = elem_type_info


class MapStateDescriptor(StateDescriptor):
    """Describes a map per key, or a broadcast state; `type_info` is the type of the map."""

    def __init__(
        self, name: str, key_type_info: TypeInformation, value_type_info: TypeInformation
    ) -> None:
        super().__init__(name, MapTypeInfo(key_type_info, value_type_info))
        self.key_type = key_type_info
        self.value_type = value_type_info


class CallableReduceFunction(ReduceFunction):
    """Wraps a callable of two values as a ReduceFunction."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._function(value1, value2)


class ReducingStateDescriptor(StateDescriptor):
    """Describes one value per key, into which each added value is reduced."""

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        type_info: TypeInformation,
    ) -> None:
        super().__init__(name, type_info)
        if not isinstance(reduce_function, ReduceFunction):
            if not callable(reduce_function):
                raise TypeError("The input must be a ReduceFunction or a callable function!")
            reduce_function = CallableReduceFunction(reduce_function)
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> ReduceFunction:
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes one accumulator per key; `type_info` is the type of the accumulator."""

    def __init__(
        self, name: str, agg_function: AggregateFunction, state_type_info: TypeInformation
    ) -> None:
        super().__init__(name, state_type_info)
        if not isinstance(agg_function, AggregateFunction):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("The input must be an AggregateFunction!")
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        return self._agg_function


class State(ABC):
    """Base of all handles."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the current key's value."""


class ValueState(State, Generic[T]):
    """One value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value, or None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """Base of states to which values are added one by one."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the contents: an iterable for a list, otherwise the result or None."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add one value."""


class MergingState(AppendingState[IN, OUT]):
    """Base of states whose contents can be merged, as windows do."""


class ListState(MergingState[T, Iterable[T]]):
    """Values in the order they were added; also `iter(state)` over them."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Return the values, or an empty iterable."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace all values; an empty list clears the state."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append several values."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class ReducingState(MergingState[T, T]):
    """State that reduces all added values to one."""


class AggregatingState(MergingState[IN, OUT]):
    """State that holds all added values in an accumulator, whose result is read."""


class ReadOnlyMap(State, Generic[K, V]):
    """The reading half of maps; also `state[k]`, `k in state` and `iter(state)` over keys."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value, or None."""

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]: ...

    @abstractmethod
    def keys(self) -> Iterable[K]: ...

    @abstractmethod
    def values(self) -> Iterable[V]: ...

    @abstractmethod
    def is_empty(self) -> bool: ...

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class WritableMap(ReadOnlyMap[K, V]):
    """The writing half of maps; also `state[k] = v` and `del state[k]`."""

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None: ...

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry; no error if there is none."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(WritableMap[K, V]):
    """A map per key."""


class ReadOnlyBroadcastState(ReadOnlyMap[K, V]):
    """A broadcast state on the side that may only read it."""


class BroadcastState(ReadOnlyBroadcastState[K, V], WritableMap[K, V]):
    """A broadcast state on the side that may change it."""


class OperatorStateStore(ABC):
    """States that belong to a subtask and not to a key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose items are distributed evenly when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that after a restore holds the items of all subtasks, on each of them."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that every subtask must change in the same way."""
