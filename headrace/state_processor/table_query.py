"""TableQuery: a query of a snapshot's table, split into parts that can be read concurrently.

A part is a file, so that one reader per file can share the work. Conditions on keys and key groups exclude
files and parts of files before they filter rows.
"""

import dataclasses
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.errors import short_repr
from headrace.core.key_groups import MAX_PARALLELISM_LIMIT, key_groups_of
from headrace.core.key_hash import InvalidKeyError, hash_array
from headrace.core.types.pickles import unpickle_value
from headrace.state.columns import EXPIRED, KEY
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.json_values import values_of_json
from headrace.state_processor.key_hashing import hashable_column
from headrace.state_processor.stored_state import (
    BY_KEY_GROUP,
    StoredChunk,
    StoredState,
    chunk_rows,
    converted,
    nullable_schema,
    stored_state,
)
from headrace.state_processor.summary_tables import SUMMARY_TABLES, summary_table

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
STATE_TABLES: Final[Mapping[str, StateTable]] = {
    "keyed": StateTable.KEYED,
    "timers": StateTable.TIMERS,
    "windows": StateTable.COLUMNAR,
    "operator_state": StateTable.OPERATOR,
    "source_splits": StateTable.SPLITS,
    "items": StateTable.ITEMS,
}
"""Tables of rows, by the name that users pass."""


@dataclass(frozen=True)
class TablePart:
    """Rows for one reader: a file of a state, or rows in memory."""

    state: StoredState | None
    chunk: StoredChunk | None
    rows: pa.Table | None = None


@dataclass(frozen=True)
class TableQuery:
    """One table of one snapshot. `loads_pickles`: values of undeclared types are shown as Python prints them.

    `key_groups`, `keys`: only rows of these are read; they do not affect tables without key groups.
    `includes_expired`: rows past their time to live are included, and a column `expired` marks them; null
    if it is unknown, as in snapshots of earlier versions, whose rows are all included.
    """

    table: str = "keyed"
    operator: str | None = None
    state: str | None = None
    loads_pickles: bool = False
    key_groups: frozenset[int] | None = None
    keys: tuple[Any, ...] | None = None
    includes_expired: bool = False

    def open(self, snapshot: CompletedCheckpoint) -> "OpenTable":
        """Return the table in a snapshot. StateProcessorError."""
        if self.table in SUMMARY_TABLES:
            rows = summary_table(self.table, snapshot)
            return OpenTable(nullable_schema(rows.schema), (TablePart(None, None, rows),))
        table = STATE_TABLES.get(self.table)
        if table is None:
            known = sorted([*STATE_TABLES, *SUMMARY_TABLES])
            raise UnknownStateError(f"snapshots have no table '{self.table}'", known)
        state = stored_state(snapshot.metadata, table, self.operator, self.state)
        shown = state.opaque if self.loads_pickles else frozenset[str]()
        schema = pa.schema(
            [
                pa.field(one.name, pa.string()) if one.name in shown else one
                for one in nullable_schema(state.schema)
            ]
        )
        if self.includes_expired and table is StateTable.KEYED:
            schema = schema.append(pa.field(EXPIRED, pa.bool_()))
        groups, wanted = self.key_groups, None
        if self.keys is not None and table in BY_KEY_GROUP:
            wanted = frozenset(stored_keys(state, self.keys))
            of_keys = key_groups_of_keys(state, self.keys)
            if of_keys is not None:
                groups = of_keys if groups is None else groups & of_keys
        # Parts are sent one by one, and none needs the others.
        alone = dataclasses.replace(state, chunks=())
        parts = tuple(TablePart(alone, one) for one in state.chunks if one.may_hold(groups))
        return OpenTable(schema, parts, groups, wanted, shown)


@dataclass(frozen=True)
class OpenTable:
    """A table that can be read. `schema`: nullable columns and fields; the same for every part."""

    schema: pa.Schema
    parts: tuple[TablePart, ...]
    key_groups: frozenset[int] | None = None
    keys: frozenset[Hashable] | None = None
    shown: frozenset[str] = frozenset()

    def without_parts(self) -> "OpenTable":
        """Return a copy without parts, for readers of a single part."""
        return dataclasses.replace(self, parts=())

    def read(self, part: TablePart, reader: SnapshotReader) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part. CheckpointCorruptedError, CheckpointStorageError."""
        if part.rows is not None:
            tables = iter([part.rows])
        else:
            assert part.state is not None
            assert part.chunk is not None
            tables = chunk_rows(part.state, part.chunk, reader, self.key_groups)
        for table in tables:
            if part.state is not None and part.state.table is StateTable.KEYED:
                assert part.chunk is not None
                table = self._by_life(table, part.chunk)
            if self.keys is not None:
                is_wanted = [key in self.keys for key in hashable_column(table.column(KEY))]
                table = table.filter(pa.array(is_wanted, pa.bool_()))
            columns = [
                self._column(table.column(one.name).combine_chunks(), one) for one in self.schema
            ]
            if table.num_rows:
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _by_life(self, table: pa.Table, chunk: StoredChunk) -> pa.Table:
        """Return the rows with a column that marks expired ones, or only those that have not expired."""
        expired = chunk.expired_rows(table)
        if EXPIRED in self.schema.names:
            is_known = expired is not None
            shown = pa.array(expired) if is_known else pa.nulls(table.num_rows, pa.bool_())
            return table.append_column(EXPIRED, shown)
        return table if expired is None else table.filter(pa.array(~expired))

    def read_all(self, reader: SnapshotReader) -> pa.Table:
        """Return all rows."""
        batches = [batch for part in self.parts for batch in self.read(part, reader)]
        return pa.Table.from_batches(batches, schema=self.schema)

    def _column(self, column: pa.Array, wanted: pa.Field) -> pa.Array:
        if wanted.name not in self.shown:
            return converted(column, wanted.type)
        texts = [None if one is None else repr(unpickle_value(one)) for one in column.to_pylist()]
        return pa.array(texts, pa.string())


def key_groups_of_keys(state: StoredState, keys: Sequence[Any]) -> frozenset[int] | None:
    """Return the key groups of keys in the form of the key column; None if they cannot be computed from it."""
    if state.table not in (StateTable.KEYED, StateTable.TIMERS) or KEY in state.opaque:
        return None
    key_type = state.schema.field(KEY).type
    if pa.types.is_binary(key_type) and state.table is StateTable.TIMERS:
        return None  # they may be pickles that are not declared as such
    try:
        hashes = hash_array(pa.array(keys, key_type))
    except (pa.ArrowException, InvalidKeyError, OverflowError):
        return None
    groups = key_groups_of(hashes, state.max_parallelism)
    return frozenset(np.unique(groups).tolist())


def keys_of_json(state: StoredState, keys: Sequence[Any]) -> tuple[Any, ...]:
    """Return keys in JSON as keys of a state; unchanged if the state's keys have no declared type. JsonValueError."""
    if KEY not in state.schema.names or KEY in state.opaque:
        return tuple(keys)
    column = values_of_json(keys, state.schema.field(KEY).type, f"a key of {state.title}")
    return tuple(column.to_pylist())


def stored_keys(state: StoredState, keys: Sequence[Any]) -> list[Hashable]:
    """Return each key in the form of a state's rows. StateProcessorError if one has another type."""
    if KEY not in state.schema.names or KEY in state.opaque:
        raise StateProcessorError(
            f"{state.title} has no keys of a declared type, by which rows could be found"
        )
    key_type = state.schema.field(KEY).type
    for key in keys:
        _check_fields(state, key, key_type)
    try:
        return hashable_column(pa.array(keys, key_type))
    except (pa.ArrowException, OverflowError) as error:
        raise StateProcessorError(f"{state.title} has keys of {key_type}: {error}") from error


def _check_fields(state: StoredState, key: Any, key_type: pa.DataType) -> None:
    """Raise StateProcessorError if a dict has other fields than the key: Arrow would take null for a missing one."""
    if not isinstance(key, dict) or not pa.types.is_struct(key_type):
        return
    fields = [one.name for one in key_type]
    if set(key) != set(fields):
        raise StateProcessorError(
            f"{state.title} has keys with the fields {', '.join(fields)}, but {short_repr(key)} has others"
        )
    for one in key_type:
        _check_fields(state, key[one.name], one.type)


def key_groups_in_text(text: str) -> frozenset[int]:
    """Return the key groups of a list like `3,7-9`. StateProcessorError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _NUMBER.fullmatch(first) or (dash and not _NUMBER.fullmatch(last)):
            raise StateProcessorError(
                f"{short_repr(text)} is not a list of key groups, such as 3 or 0-15,64"
            )
        found |= set(range(int(first), min(int(last or first), MAX_PARALLELISM_LIMIT) + 1))
    return frozenset(found)
