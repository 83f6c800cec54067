"""Operator state as files: one chunk per state, a row per item of a list or per entry of a broadcast map.

Columns: `map_key` (broadcast) and `value`. The coordinator deals out items by the attributes alone.

State that is a list of opaque items, such as a source's splits: redistributed item by item, never opened here.

Written as Parquet with one binary column `item`. Source: Flink OperatorStateHandle.
"""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

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
from headrace.core.types.type_info import ListTypeInfo, MapTypeInfo, TypeInformation
from headrace.state import columns as state_columns
from headrace.state.columns import MAP_KEY, VALUE, VALUE_ROW_KIND
from headrace.state.keyed_chunks import parquet_of
from headrace.state.operator_state import FrozenOperatorState, OperatorStateBackend
from headrace.state.queryable.live_rows import (
    LivePiece,
    LiveRows,
    LiveSource,
    PiecedRows,
    refuse_keys,
)

_SCHEMA: Final = pa.schema([pa.field("item", pa.binary(), nullable=False)])


class ItemState:
    """Items of one table and name. `items` is what the next checkpoint holds. See Snapshotable."""

    def __init__(self, table: StateTable, name: str) -> None:
        self._table = table
        self._name = name
        self.items: Sequence[bytes] = ()

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenItems":
        """See Snapshotable: items are bytes, which nobody changes."""
        return FrozenItems(self._table, self._name, tuple(self.items))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """See Snapshotable. Nothing is referred to again."""

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """See Snapshotable. Nothing is referred to again."""


class FrozenItems:
    """See FrozenState."""

    def __init__(self, table: StateTable, name: str, items: tuple[bytes, ...]) -> None:
        self._table = table
        self._name = name
        self._items = items

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        """See FrozenState. Without items there is nothing to write."""
        if not self._items:
            return ()
        sink = io.BytesIO()
        pq.write_table(pa.table([pa.array(self._items, pa.binary())], schema=_SCHEMA), sink)
        file = writer.write(f"{self._table.value}-{self._name}", sink.getvalue())
        count = len(self._items)
        attributes = {ITEM_COUNT: str(count), ITEM_MODE: OperatorStateMode.SPLIT.name}
        return (StateChunk(self._table, self._name, count, file, None, attributes),)

    def discard(self) -> None:
        pass


def read_items(chunks: Sequence[StateChunk], reader: SnapshotReader) -> list[bytes]:
    """Return the items of restored chunks that are this subtask's own, in order."""
    items: list[bytes] = []
    for chunk in chunks:
        table = pq.read_table(pa.BufferReader(reader.read(chunk.file)))
        found: list[bytes] = table.column("item").to_pylist()
        items += found[item_slice(chunk)]
    return items


def item_slice(chunk: StateChunk) -> slice:
    """Which items of an assigned chunk are the subtask's own."""
    text = chunk.attributes.get(ITEM_RANGE)
    if text is None:
        return slice(None)
    start, _, stop = text.partition(":")
    return slice(int(start), int(stop))


_TYPE: Final = "type"


class OperatorStateSnapshots:
    """Takes snapshots of an OperatorStateBackend. See Snapshotable."""

    def __init__(self, backend: OperatorStateBackend) -> None:
        self._backend = backend

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenOperatorStates":
        """See Snapshotable. Items are copied here: they are few, and no version is kept of each."""
        return FrozenOperatorStates(self._backend.freeze())

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        pass

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass


class FrozenOperatorStates:
    """See FrozenState."""

    def __init__(self, states: Sequence[FrozenOperatorState]) -> None:
        self._states = states

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        return [_write(state, writer) for state in self._states if state.items]

    def discard(self) -> None:
        pass


def live_operator_states(backend: OperatorStateBackend) -> list[LiveSource]:
    """Return how each state is read while the task runs: it is copied at once, as for a snapshot, and cut later."""

    def source(name: str) -> LiveSource:
        def opened(keys: pa.Array | None) -> LiveRows:
            refuse_keys(name, keys)
            state = backend.freeze_one(name)
            return PiecedRows(
                partial(_pieces_of, state), lambda: _table_of(replace(state, items=()))
            )

        return LiveSource(StateTable.OPERATOR, name, opened)

    return [source(name) for name in backend.names()]


def _pieces_of(state: FrozenOperatorState, count: Callable[[], int]) -> Iterator[LivePiece]:
    items = iter(state.items)
    while piece := tuple(islice(items, count())):
        yield LivePiece(_table_of(replace(state, items=piece)), len(piece))


def restore_operator_state(
    backend: OperatorStateBackend, chunks: Sequence[StateChunk], reader: SnapshotReader
) -> None:
    """Let the backend begin with what OPERATOR chunks hold of this subtask's own."""
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
