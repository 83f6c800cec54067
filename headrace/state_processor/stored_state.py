"""StoredState: all rows of one state of one operator, under one schema, chunk by chunk.

Columns are those of the files (`headrace.state.keyed_chunks`, docs/state.md). Operator state and items have `subtask`
and `pos` before them. `converted` casts rows from other engines to the types of the state: fields must be the same
by name, may be nullable or longer, and numbers may become wider, never narrower; nothing is rounded or cut.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.checkpoint.handles import (
    EXPIRED_ROWS,
    EXPIRED_UNTIL,
    StateChunk,
    StateFile,
    StateTable,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.checkpoint.storage.file_systems import open_input
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.state.columns import (
    KEY,
    KEY_GROUP,
    LAST_ACCESS,
    LIST_POS,
    MAP_KEY,
    NAMESPACE,
    VALUE,
    VALUE_ROW_KIND,
)
from headrace.state.evolution import evolve, is_widening
from headrace.state.keyed_chunks import KIND, opaque_columns, read_tables
from headrace.state_processor.errors import NativeStateError, StateSchemaError, UnknownStateError
from headrace.state_processor.selection import operator_in

SUBTASK: Final = "subtask"
POSITION: Final = "pos"
BY_KEY_GROUP: Final = frozenset({StateTable.KEYED, StateTable.TIMERS, StateTable.COLUMNAR})
OPTIONAL_COLUMNS: Final = frozenset({VALUE_ROW_KIND, LAST_ACCESS})
"""Columns that only some files of a state need to have."""
_KEYED_ORDER: Final = (
    KEY_GROUP,
    KEY,
    NAMESPACE,
    LIST_POS,
    MAP_KEY,
    VALUE,
    VALUE_ROW_KIND,
    LAST_ACCESS,
)
_WORDS: Final = {
    StateTable.KEYED: "keyed state",
    StateTable.TIMERS: "timers",
    StateTable.COLUMNAR: "columnar window state",
    StateTable.OPERATOR: "operator state",
    StateTable.SPLITS: "source splits",
    StateTable.ITEMS: "items of a connector",
}


@dataclass(frozen=True)
class StoredChunk:
    """A chunk, and the subtask that wrote it."""

    subtask_index: int
    chunk: StateChunk

    def may_hold(self, key_groups: Collection[int] | None) -> bool:
        """Return whether the chunk may contain rows of these key groups; None: of any."""
        held = self.chunk.key_groups
        if key_groups is None or self.chunk.table not in BY_KEY_GROUP or held is None:
            return True
        return any(held[0] <= group <= held[1] for group in key_groups)

    @property
    def kind(self) -> str:
        """Return the kind of its keyed state (`value`, `list`, …); empty for other tables."""
        return self.chunk.attributes.get(KIND, "")

    @property
    def opaque(self) -> tuple[str, ...]:
        """Return its pickled columns."""
        return opaque_columns(self.chunk.attributes)

    @property
    def expired_until_ms(self) -> int | None:
        """Return the latest last access (epoch ms) of its expired rows; None if it is unknown."""
        said = self.chunk.attributes.get(EXPIRED_UNTIL)
        return None if said is None else int(said)

    @property
    def expired_count(self) -> int:
        """Return the number of its rows that are known to have expired."""
        is_known = self.expired_until_ms is not None
        return int(self.chunk.attributes.get(EXPIRED_ROWS, 0)) if is_known else 0

    def expired_rows(self, table: pa.Table) -> np.ndarray | None:
        """Return which of its rows had expired when they were stored, shape (num_rows,); None if it is unknown."""
        if LAST_ACCESS not in table.column_names:
            return np.zeros(table.num_rows, dtype=np.bool_)
        if self.expired_until_ms is None:
            return None
        accesses = table.column(LAST_ACCESS)
        # Rows without a last access live from the restore on.
        last = pc.fill_null(accesses, pa.scalar(0, pa.int64())).to_numpy()
        return (last <= self.expired_until_ms) & accesses.is_valid().to_numpy()


@dataclass(frozen=True)
class StoredState:
    """One state. `schema`: stored types, as the union of all files' columns; `opaque`: pickled columns."""

    operator: str
    table: StateTable
    name: str
    parallelism: int
    max_parallelism: int
    chunks: tuple[StoredChunk, ...]
    schema: pa.Schema
    opaque: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """Return the state's title for messages."""
        return _title_of(self.operator, self.table, self.name)

    @property
    def row_count(self) -> int:
        """Return the number of rows of all chunks."""
        return sum(one.chunk.row_count for one in self.chunks)

    @property
    def attributes(self) -> dict[str, str]:
        """Return the attributes of the first chunk: all chunks have the same, except for those about expired rows."""
        return self.chunks[0].chunk.attributes

    @property
    def expired_until_ms(self) -> int | None:
        """Return the last access up to which rows had expired in every subtask (epoch ms); None if it is unknown."""
        said = [one.expired_until_ms for one in self.chunks]
        known = [one for one in said if one is not None]
        return min(known) if known and len(known) == len(said) else None


def stored_state(
    metadata: CheckpointMetadata,
    table: StateTable,
    operator: str | None = None,
    state: str | None = None,
) -> StoredState:
    """Return a state by the names of its operator and itself; each may be left out if there is only one.

    UnknownStateError, NativeStateError; StateSchemaError if its files disagree.
    """
    owner = operator_in(metadata, operator) if operator else _only_owner(metadata, table)
    found = chunks_of(owner, table)
    if table in BY_KEY_GROUP and has_native_state(owner):
        raise NativeStateError(owner.title)
    names = sorted({one.chunk.name for one in found})
    if state is None and len(names) == 1:
        (state,) = names
    if state not in names:
        said = "several states" if state is None else f"no state '{state}'"
        problem = (
            f"operator {owner.title} has {said if names else 'none'} among its {_WORDS[table]}"
        )
        raise UnknownStateError(problem, names)
    return _state_of(owner, table, state, [one for one in found if one.chunk.name == state])


def states_of(
    metadata: CheckpointMetadata, operator: OperatorSnapshot, tables: Iterable[StateTable]
) -> list[StoredState]:
    """Return all states of an operator in some tables, by table and name. NativeStateError, StateSchemaError."""
    return [
        stored_state(metadata, table, operator.operator_id.hex(), name)
        for table in tables
        for name in sorted({one.chunk.name for one in chunks_of(operator, table)})
    ]


def chunks_of(operator: OperatorSnapshot, table: StateTable) -> list[StoredChunk]:
    """Return the chunks of one table, by subtask."""
    return [
        StoredChunk(index, chunk)
        for index, state in sorted(operator.subtasks.items())
        for chunk in state.chunks
        if chunk.table is table
    ]


def has_native_state(operator: OperatorSnapshot) -> bool:
    """Return whether RocksDB's own files contain its keyed state, and perhaps its timers."""
    return bool(chunks_of(operator, StateTable.NATIVE))


def chunk_rows(
    state: StoredState,
    chunk: StoredChunk,
    reader: SnapshotReader,
    key_groups: Collection[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a chunk under the state's schema; only those of `key_groups`, if given.

    CheckpointCorruptedError if the file is damaged.
    """
    if state.table not in BY_KEY_GROUP:
        yield _items(state, chunk, reader)
        return
    for table in _tables_of_groups(state, chunk.chunk, reader, key_groups):
        yield _under(state.schema, table)


def _tables_of_groups(
    state: StoredState,
    chunk: StateChunk,
    reader: SnapshotReader,
    key_groups: Collection[int] | None,
) -> Iterator[pa.Table]:
    if key_groups is None:
        yield from read_tables([chunk], reader, range(state.max_parallelism))
        return
    first, last = chunk.key_groups or (0, state.max_parallelism - 1)
    wanted = [group for group in key_groups if first <= group <= last]
    if not wanted:
        return
    for table in read_tables([chunk], reader, range(min(wanted), max(wanted) + 1)):
        yield table.filter(pa.array(np.isin(table.column(KEY_GROUP).to_numpy(), wanted)))


def _items(state: StoredState, chunk: StoredChunk, reader: SnapshotReader) -> pa.Table:
    table = pq.read_table(pa.BufferReader(reader.read(chunk.chunk.file)))
    count = table.num_rows
    table = table.append_column(SUBTASK, pa.array([chunk.subtask_index] * count, pa.int32()))
    table = table.append_column(POSITION, pa.array(range(count), pa.int32()))
    return _under(state.schema, table)


def _under(schema: pa.Schema, table: pa.Table) -> pa.Table:
    columns = [
        table.column(field.name)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _only_owner(metadata: CheckpointMetadata, table: StateTable) -> OperatorSnapshot:
    owners = [
        one
        for one in metadata.operators
        if chunks_of(one, table) or (table in BY_KEY_GROUP and has_native_state(one))
    ]
    if len(owners) == 1:
        return owners[0]
    said = "several operators have" if owners else "no operator has"
    raise UnknownStateError(
        f"{said} {_WORDS[table]} in snapshot {metadata.checkpoint_id}",
        [one.title for one in owners],
    )


def _title_of(operator: str, table: StateTable, name: str) -> str:
    return f"{_WORDS[table]} '{name}' of operator {operator}"


def _state_of(
    owner: OperatorSnapshot, table: StateTable, name: str, chunks: Sequence[StoredChunk]
) -> StoredState:
    title = _title_of(owner.title, table, name)
    schema = _common_schema(
        title, [parquet_footer(one.chunk.file).schema.to_arrow_schema() for one in chunks]
    )
    if table is StateTable.KEYED:
        schema = pa.schema([schema.field(one) for one in _KEYED_ORDER if one in schema.names])
    elif table not in BY_KEY_GROUP:
        places = [pa.field(SUBTASK, pa.int32()), pa.field(POSITION, pa.int32())]
        schema = pa.schema([*places, *schema])
    return StoredState(
        owner.title,
        table,
        name,
        owner.parallelism,
        owner.max_parallelism,
        tuple(chunks),
        schema,
        _opaque_columns(owner, table, chunks),
    )


def _opaque_columns(
    owner: OperatorSnapshot, table: StateTable, chunks: Sequence[StoredChunk]
) -> frozenset[str]:
    # Timers have the keys of their operator, but do not record whether these are pickles.
    said = chunks if table is StateTable.KEYED else chunks_of(owner, StateTable.KEYED)
    columns = {column for one in said for column in opaque_columns(one.chunk.attributes)}
    if table is StateTable.KEYED:
        return frozenset(columns)
    return frozenset(columns & {KEY}) if table is StateTable.TIMERS else frozenset()


def _common_schema(title: str, schemas: Sequence[pa.Schema]) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.setdefault(field.name, pa.field(field.name, field.type))
            if known.type != field.type:
                what = f"'{field.name}' is {known.type} in one of its files and {field.type} in another"
                raise StateSchemaError(title, [what])
    return pa.schema(list(fields.values()))


def parquet_footer(file: StateFile) -> pq.FileMetaData:
    """Return the footer of a Parquet file; whether the whole file is undamaged must be checked elsewhere."""
    if not file.uri:
        return pq.read_metadata(pa.BufferReader(file.content))
    with open_input(file.uri) as opened:
        return pq.read_metadata(opened)


def nullable_type(stored: pa.DataType) -> pa.DataType:
    """Return the type with nullable fields at any depth, as engines without other fields have them."""
    kinds = pa.types
    if kinds.is_struct(stored):
        return pa.struct([pa.field(one.name, nullable_type(one.type)) for one in stored])
    if kinds.is_list(stored):
        return pa.list_(nullable_type(stored.value_type))
    if kinds.is_map(stored):
        return pa.map_(nullable_type(stored.key_type), nullable_type(stored.item_type))
    return stored


def nullable_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema with nullable columns and fields."""
    return pa.schema([pa.field(one.name, nullable_type(one.type)) for one in stored])


def converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values cast to another type; call `type_differences` first."""
    return evolve(array, wanted)


def type_differences(given: pa.DataType, stored: pa.DataType, path: str) -> Iterator[str]:
    """Yield why values of `given` are not values of the stored type: one sentence per column or field."""
    kinds = pa.types
    if kinds.is_struct(given) and kinds.is_struct(stored):
        yield from _field_differences(given, stored, path)
    elif kinds.is_list(given) and kinds.is_list(stored):
        yield from type_differences(given.value_type, stored.value_type, f"{path}[]")
    elif kinds.is_map(given) and kinds.is_map(stored):
        yield from type_differences(given.key_type, stored.key_type, f"{path}.key")
        yield from type_differences(given.item_type, stored.item_type, f"{path}.value")
    elif not _is_same_leaf(given, stored):
        yield f"'{path}' is {given} and was stored as {stored}: cast it"


def _field_differences(given: pa.DataType, stored: pa.DataType, path: str) -> Iterator[str]:
    names = [one.name for one in stored]
    for one in given:
        if one.name not in names:
            yield f"'{path}.{one.name}' was not stored"
    for one in stored:
        index = given.get_field_index(one.name)
        if index < 0:
            yield f"'{path}.{one.name}' is missing"
        else:
            yield from type_differences(given.field(index).type, one.type, f"{path}.{one.name}")


def _is_same_leaf(given: pa.DataType, stored: pa.DataType) -> bool:
    kinds = pa.types
    if given == stored or is_widening(given, stored):
        return True
    if kinds.is_large_string(given) and kinds.is_string(stored):
        return True
    if kinds.is_large_binary(given) and kinds.is_binary(stored):
        return True
    # The same instant in another time zone.
    is_instant = kinds.is_timestamp(given) and kinds.is_timestamp(stored)
    return is_instant and given.unit == stored.unit and bool(given.tz) == bool(stored.tz)
