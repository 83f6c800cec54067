"""Operator state: state that belongs to a subtask and not to a key. It is always on the heap.

The mode of a state says how it is redistributed at another parallelism: the items of a SPLIT list are dealt out evenly,
every subtask receives a whole UNION list, and a BROADCAST map is the same on all subtasks.

A snapshot has one Parquet chunk per state, with a row per item of a list or entry of a broadcast map, in the columns
`map_key` (broadcast) and `value`. The coordinator deals out items by the chunk's attributes alone. `ItemState` is a
list of opaque items, such as a source's splits, in one binary column `item`.
Source: Flink DefaultOperatorStateBackend, OperatorStateHandle.
"""

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.checkpoint.handles import (
    ITEM_COUNT,
    ITEM_MODE,
    ITEM_RANGE,
    OperatorStateMode,
    StateChunk,
    StateTable,
)
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.errors import RecordTypeError
from headrace.core.types.pickles import pickle_value, unpickle_value
from headrace.core.types.record_copies import private_copy
from headrace.core.types.round_trip_normalizer import RoundTripNormalizer
from headrace.core.types.type_info import ListTypeInfo, MapTypeInfo, TypeInformation
from headrace.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    StateDescriptor,
)
from headrace.state import columns as state_columns
from headrace.state.backend import FrozenState, Snapshotable, StateAccessError
from headrace.state.columns import MAP_KEY, VALUE, VALUE_ROW_KIND
from headrace.state.keyed_chunks import parquet_of
from headrace.state.queryable.live_rows import (
    LivePiece,
    LiveRows,
    LiveSource,
    refuse_keys,
)

_SCHEMA: Final = pa.schema([pa.field("item", pa.binary(), nullable=False)])
_TYPE: Final = "type"


@dataclass(frozen=True)
class FrozenOperatorState:
    """Frozen operator state of one subtask; shares nothing with the live state.

    `items`: the values of a list, or the (key, value) pairs of a broadcast state. `type_info`: the declared type of
    the whole list or map.
    """

    name: str
    mode: OperatorStateMode
    items: tuple[Any, ...]
    type_info: TypeInformation


class OperatorStateBackend(OperatorStateStore):
    """The operator states of one operator on one subtask, by name. Mailbox thread only.

    The same descriptor gives the same handle. Restored states that are never requested stay in later snapshots.
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
        """Return a map that must be changed in the same way on every subtask."""
        state = self._state(state_descriptor, OperatorStateMode.BROADCAST, HeapBroadcastState)
        assert isinstance(state, HeapBroadcastState)
        return state

    def freeze(self) -> list[FrozenOperatorState]:
        """Return copies of all states, in the order of their first request."""
        return [self.freeze_one(name) for name in self.names()]

    def names(self) -> list[str]:
        """Return the names of all states, including restored ones that were not requested yet."""
        return [*self._states, *self._restored]

    def freeze_one(self, name: str) -> FrozenOperatorState:
        """Return a copy of one state."""
        state = self._states.get(name)
        if state is None:
            return self._restored[name]
        items = tuple(map(private_copy, state.frozen_items()))
        return FrozenOperatorState(name, state.mode, items, state.type_info)

    def restore(self, states: Sequence[FrozenOperatorState]) -> None:
        """Restore these states; called once, before any state is requested."""
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
        """Return the items for a snapshot, without copying them."""
        raise NotImplementedError

    def take_items(self, items: Iterable[Any]) -> None:
        """Restore the state from the items of a snapshot."""
        raise NotImplementedError

    def _kept(self, check: RoundTripNormalizer, value: Any) -> Any:
        """Return `value` in the stored form of the declared type; StateAccessError if it is not of that type."""
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
            raise StateAccessError(f"list state '{self.name}' does not accept None as an element")
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
        """Return the stored form of `key`, or `key` itself if it has none, so that it is not found."""
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
    """Raise StateAccessError if one name stands for two kinds of state, or for two types."""
    if known_mode is not mode:
        raise StateAccessError(
            f"operator state '{name}' is a {known_mode.name} state already: give the {mode.name} state another name"
        )
    if known_type != type_info:
        raise StateAccessError(
            f"operator state '{name}' holds {known_type}, but is requested as {type_info}: use one descriptor for both"
        )


def _refuse_ttl(descriptor: StateDescriptor) -> None:
    if descriptor.ttl_config is not None and descriptor.ttl_config.is_enabled():
        raise StateAccessError(
            f"operator state '{descriptor.get_name()}' requests a time to live, which only keyed state has"
        )


class ItemState(Snapshotable):
    """List of opaque items of one table and name; `items` are written at the next checkpoint."""

    def __init__(self, table: StateTable, name: str) -> None:
        self._table = table
        self._name = name
        self.items: Sequence[bytes] = ()

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenItems":
        """Return the present items, which are immutable bytes."""
        return FrozenItems(self._table, self._name, tuple(self.items))


class FrozenItems(FrozenState):
    """Frozen items of one operator state, each as bytes."""

    def __init__(self, table: StateTable, name: str, items: tuple[bytes, ...]) -> None:
        self._table = table
        self._name = name
        self._items = items

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """Write the items as one table; no chunk if there are none."""
        if not self._items:
            return ()
        sink = io.BytesIO()
        pq.write_table(pa.table([pa.array(self._items, pa.binary())], schema=_SCHEMA), sink)
        file = writer.write(f"{self._table.value}-{self._name}", sink.getvalue())
        count = len(self._items)
        attributes = {ITEM_COUNT: str(count), ITEM_MODE: OperatorStateMode.SPLIT.name}
        return (StateChunk(self._table, self._name, count, file, None, attributes),)


def read_items(chunks: Sequence[StateChunk], reader: SnapshotReader) -> list[bytes]:
    """Return this subtask's own items of the restored chunks, in order."""
    items: list[bytes] = []
    for chunk in chunks:
        table = pq.read_table(pa.BufferReader(reader.read(chunk.file)))
        found: list[bytes] = table.column("item").to_pylist()
        items += found[item_slice(chunk)]
    return items


def item_slice(chunk: StateChunk) -> slice:
    """Return the slice of an assigned chunk's items that belongs to the subtask."""
    text = chunk.attributes.get(ITEM_RANGE)
    if text is None:
        return slice(None)
    start, _, stop = text.partition(":")
    return slice(int(start), int(stop))


class OperatorStateSnapshots(Snapshotable):
    """Takes snapshots of an OperatorStateBackend."""

    def __init__(self, backend: OperatorStateBackend) -> None:
        self._backend = backend

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenOperatorStates":
        """Return copies of all items; there are few."""
        return FrozenOperatorStates(self._backend.freeze())


class FrozenOperatorStates(FrozenState):
    """Frozen operator states of one operator, written as one chunk each."""

    def __init__(self, states: Sequence[FrozenOperatorState]) -> None:
        self._states = states

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        return [_write(state, writer) for state in self._states if state.items]


def live_operator_states(backend: OperatorStateBackend) -> list[LiveSource]:
    """Return a source of live rows per state; each copies its state when it is opened, and returns it in slices."""

    def source(name: str) -> LiveSource:
        def opened(keys: pa.Array | None) -> LiveRows:
            refuse_keys(name, keys)
            state = backend.freeze_one(name)
            return LiveRows(partial(_pieces_of, state), lambda: _table_of(replace(state, items=())))

        return LiveSource(StateTable.OPERATOR, name, opened)

    return [source(name) for name in backend.names()]


def _pieces_of(state: FrozenOperatorState, count: Callable[[], int]) -> Iterator[LivePiece]:
    items = iter(state.items)
    while piece := tuple(islice(items, count())):
        yield LivePiece(_table_of(replace(state, items=piece)), len(piece))


def restore_operator_state(
    backend: OperatorStateBackend, chunks: Sequence[StateChunk], reader: SnapshotReader
) -> None:
    """Restore the backend with this subtask's items of OPERATOR chunks."""
    states: dict[str, FrozenOperatorState] = {}
    for chunk in chunks:
        if chunk.table is not StateTable.OPERATOR:
            continue
        part = _read(chunk, reader)
        known = states.get(chunk.name)
        items = part.items if known is None else known.items + part.items
        states[chunk.name] = FrozenOperatorState(part.name, part.mode, items, part.type_info)
    if states:
        backend.restore(list(states.values()))


def _write(state: FrozenOperatorState, writer: SnapshotWriter) -> StateChunk:
    try:
        table = _table_of(state)
    except RecordTypeError as error:
        raise error.at(f"in state '{state.name}'") from None
    file = writer.write(f"operator-state-{state.name}", parquet_of([table]))
    count = len(state.items)
    attributes = {
        ITEM_COUNT: str(count),
        ITEM_MODE: state.mode.name,
        _TYPE: base64.b64encode(pickle_value(state.type_info)).decode(),
    }
    return StateChunk(StateTable.OPERATOR, state.name, count, file, None, attributes)


def _table_of(state: FrozenOperatorState) -> pa.Table:
    key_type, value_type = _types(state.type_info)
    columns: dict[str, pa.Array] = {}
    values = state.items
    if key_type is not None:
        columns[MAP_KEY] = state_columns.encode([item[0] for item in state.items], key_type)
        values = [item[1] for item in state.items]
    columns[VALUE] = state_columns.encode(values, value_type)
    kinds = state_columns.encode_row_kinds(values, value_type)
    if kinds is not None:
        columns[VALUE_ROW_KIND] = kinds
    return pa.table(columns)


def _read(chunk: StateChunk, reader: SnapshotReader) -> FrozenOperatorState:
    # Unpickled inside the task that owns the state; the coordinator looks at the other attributes only.
    type_info: TypeInformation = unpickle_value(base64.b64decode(chunk.attributes[_TYPE]))
    key_type, value_type = _types(type_info)
    table = pq.read_table(pa.BufferReader(reader.read(chunk.file))).combine_chunks()
    items = state_columns.decode(_column(table, VALUE), value_type)
    if VALUE_ROW_KIND in table.column_names:
        state_columns.decode_row_kinds(items, _column(table, VALUE_ROW_KIND))
    if key_type is not None:
        keys = state_columns.decode(_column(table, MAP_KEY), key_type)
        items = list(zip(keys, items, strict=True))
    mode = OperatorStateMode[chunk.attributes[ITEM_MODE]]
    return FrozenOperatorState(chunk.name, mode, tuple(items[item_slice(chunk)]), type_info)


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _types(type_info: TypeInformation) -> tuple[TypeInformation | None, TypeInformation]:
    if isinstance(type_info, MapTypeInfo):
        return type_info.key_type, type_info.value_type
    assert isinstance(type_info, ListTypeInfo)
    return None, type_info.element_type
