"""Keyed state as files: Parquet with one row per value, element or map entry, ordered by key group.

Columns: `key_group`, `key`, `namespace` (states of windows), `list_pos` (lists), `map_key` (maps), `value`,
`value_row_kind` (if some rows are not plain inserts) and `last_access` (states with a time to live, epoch ms). A reader
of some key groups skips the row groups of others.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.checkpoint.handles import EXPIRED_ROWS, EXPIRED_UNTIL, StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.errors import RecordTypeError
from headrace.core.types.arrow_types import arrow_type_of
from headrace.core.types.type_info import TypeInformation
from headrace.state import columns as state_columns
from headrace.state.columns import (
    KEY,
    KEY_GROUP,
    LAST_ACCESS,
    LIST_POS,
    MAP_KEY,
    NAMESPACE,
    VALUE,
    VALUE_ROW_KIND,
    KeyGroups,
    is_opaque,
)
from headrace.state.evolution import schema_text

KIND: Final = "kind"
SCOPE: Final = "scope"
OPAQUE: Final = "opaque"
"""Attribute with the names of pickled columns: only the program can read them, and their type cannot change."""
SCHEMA: Final = "schema"
"""Attribute with the types of key, map key and value, as `evolution.schema_text` writes them."""
_FILE_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class KeyedStateForm:
    """Description of a state for storage: its kind, the scope of its entries, and its types.

    `scope`: "key" if entries are found by key, "window" if by (key, namespace). `value_type` is that of a single value:
    of a list's elements, of a map's values.
    """

    name: str
    kind: str
    scope: str
    key_type: TypeInformation
    value_type: TypeInformation
    map_key_type: TypeInformation | None = None
    has_ttl: bool = False

    @property
    def is_list(self) -> bool:
        """True if entries are lists."""
        return self.kind == "list"

    @property
    def is_map(self) -> bool:
        """True if entries are dicts."""
        return self.kind == "map"

    def schema(self) -> pa.Schema:
        """Return the Arrow types of key, map key and single value."""
        fields = [pa.field(KEY, arrow_type_of(self.key_type))]
        if self.map_key_type is not None:
            fields.append(pa.field(MAP_KEY, arrow_type_of(self.map_key_type)))
        return pa.schema([*fields, pa.field(VALUE, arrow_type_of(self.value_type))])

    def attributes(self) -> dict[str, str]:
        """Return the attributes by which a chunk describes its state."""
        opaque = [KEY] if is_opaque(self.key_type) else []
        if self.map_key_type is not None and is_opaque(self.map_key_type):
            opaque.append(MAP_KEY)
        if is_opaque(self.value_type):
            opaque.append(VALUE)
        attributes = {KIND: self.kind, SCOPE: self.scope, SCHEMA: schema_text(self.schema())}
        return attributes | ({OPAQUE: ",".join(opaque)} if opaque else {})


def opaque_columns(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the pickled columns according to a chunk's attributes."""
    named = attributes.get(OPAQUE)
    return tuple(named.split(",")) if named else ()


@dataclass
class KeyedRows:
    """Rows to write to a chunk or read from one, one list per column, all of one length."""

    keys: list[Any]
    namespaces: list[Any] | None
    map_keys: list[Any] | None
    list_positions: list[int] | None
    values: list[Any]
    last_accesses: list[int | None] | None

    @classmethod
    def for_form(cls, form: KeyedStateForm) -> "KeyedRows":
        """Return an object without rows."""
        return cls(
            [],
            [] if form.scope == "window" else None,
            [] if form.is_map else None,
            [] if form.is_list else None,
            [],
            [] if form.has_ttl else None,
        )


class Flatten(Protocol):
    """Appends the values of entries as rows, to all columns except keys and namespaces.

    Returns the number of rows of each entry, or None if each has one. Loops run in C if no row needs a decision,
    since the task waits for the interpreter lock meanwhile.
    """

    def __call__(self, held: list[Any], rows: KeyedRows, /) -> list[int] | None: ...


def rows_to_table(form: KeyedStateForm, rows: KeyedRows, groups: KeyGroups) -> pa.Table:
    """Return rows as columns. RecordTypeError, which names the state, if a value does not fit the declared type."""
    try:
        return pa.table(_columns_of(form, rows, groups))
    except RecordTypeError as error:
        raise error.at(f"in state '{form.name}'") from None


def no_rows(form: KeyedStateForm) -> pa.Table:
    """Return the columns of an empty state."""
    return rows_to_table(form, KeyedRows.for_form(form), np.zeros(0, dtype=np.int32))


def _columns_of(form: KeyedStateForm, rows: KeyedRows, groups: KeyGroups) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {
        KEY_GROUP: pa.array(groups),
        KEY: state_columns.encode(rows.keys, form.key_type),
    }
    if rows.namespaces is not None:
        columns[NAMESPACE] = state_columns.encode_namespaces(rows.namespaces)
    if rows.list_positions is not None:
        columns[LIST_POS] = pa.array(rows.list_positions, type=pa.int32())
    if rows.map_keys is not None:
        assert form.map_key_type is not None
        columns[MAP_KEY] = state_columns.encode(rows.map_keys, form.map_key_type)
    columns[VALUE] = state_columns.encode(rows.values, form.value_type)
    kinds = state_columns.encode_row_kinds(rows.values, form.value_type)
    if kinds is not None:
        columns[VALUE_ROW_KIND] = kinds
    if rows.last_accesses is not None:
        columns[LAST_ACCESS] = pa.array(rows.last_accesses, type=pa.int64())
    return columns


class ChunkFiles:
    """Writes tables with a column `key_group` as chunks of bounded size.

    If the groups ascend over all tables, a reader of some groups reads the fewest files and row groups.
    `expired_until_ms`: rows with a last access up to this time (epoch ms) have expired, and are counted.
    """

    def __init__(
        self,
        table: StateTable,
        name: str,
        attributes: Mapping[str, str],
        writer: SnapshotWriter,
        *,
        expired_until_ms: int | None = None,
    ) -> None:
        self._table = table
        self._name = name
        # What was counted once does not hold for rows that are written again.
        counted = (EXPIRED_ROWS, EXPIRED_UNTIL)
        self._attributes = {key: attributes[key] for key in attributes if key not in counted}
        self._expired_until_ms = expired_until_ms
        self._writer = writer
        self._chunks: list[StateChunk] = []
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add rows, which become a row group."""
        if self._waiting and self._waiting[0].schema != table.schema:
            self.flush()
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= _FILE_BYTES:
            self.flush()

    def finish(self) -> list[StateChunk]:
        """Write waiting rows and return all chunks."""
        self.flush()
        return self._chunks

    def flush(self) -> None:
        """End the current file, if there is one."""
        tables, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not tables:
            return
        content = parquet_of(tables)
        file = self._writer.write(f"{self._table.value}-{self._name}", content)
        groups = [table.column(KEY_GROUP).to_numpy() for table in tables]
        first = min(int(one.min()) for one in groups)
        last = max(int(one.max()) for one in groups)
        row_count = sum(table.num_rows for table in tables)
        attributes = self._attributes | self._expired_rows(tables)
        self._chunks.append(
            StateChunk(self._table, self._name, row_count, file, (first, last), attributes)
        )

    def _expired_rows(self, tables: Sequence[pa.Table]) -> dict[str, str]:
        if self._expired_until_ms is None:
            return {}
        timed = [table for table in tables if LAST_ACCESS in table.column_names]
        accesses = [table.column(LAST_ACCESS).drop_null().to_numpy() for table in timed]
        count = sum(int(np.count_nonzero(one <= self._expired_until_ms)) for one in accesses)
        until = {EXPIRED_UNTIL: str(self._expired_until_ms)}
        return until | ({EXPIRED_ROWS: str(count)} if count else {})


def parquet_of(tables: Sequence[pa.Table]) -> memoryview:
    """Return a Parquet file with one row group per table; all have one schema and at least one row."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, tables[0].schema, compression="zstd") as parquet:
        for table in tables:
            parquet.write_table(table, row_group_size=max(1, table.num_rows))
    return sink.getbuffer()


def read_tables(
    chunks: Iterable[StateChunk], reader: SnapshotReader, key_groups: range
) -> Iterator[pa.Table]:
    """Yield the rows of chunks whose key group is in `key_groups`, row group by row group."""
    for chunk in chunks:
        if chunk.key_groups is not None and not _overlap(*chunk.key_groups, key_groups):
            continue
        parquet = pq.ParquetFile(pa.BufferReader(reader.read(chunk.file)))
        group_column = parquet.schema_arrow.get_field_index(KEY_GROUP)
        for index in range(parquet.num_row_groups):
            statistics = _group_statistics(parquet, index)
            if statistics is not None and not _overlap(*statistics, key_groups):
                continue
            table = parquet.read_row_group(index)
            groups = table.column(group_column).to_numpy()
            is_own = (groups >= key_groups.start) & (groups < key_groups.stop)
            own = table if is_own.all() else table.filter(pa.array(is_own))
            if own.num_rows:
                yield own.combine_chunks()


def _group_statistics(parquet: pq.ParquetFile, index: int) -> tuple[int, int] | None:
    metadata = parquet.metadata.row_group(index)
    for column in range(metadata.num_columns):
        column_metadata = metadata.column(column)
        if column_metadata.path_in_schema == KEY_GROUP:
            statistics = column_metadata.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            return statistics.min, statistics.max
    return None


def _overlap(first: int, last: int, key_groups: range) -> bool:
    return first < key_groups.stop and last >= key_groups.start


def table_to_rows(form: KeyedStateForm, table: pa.Table) -> KeyedRows:
    """Return the rows of a chunk's table as Python values of the state's types."""

    def column(name: str) -> pa.Array | None:
        index = table.schema.get_field_index(name)
        return None if index < 0 else table.column(index).combine_chunks()

    def decoded(name: str, type_info: TypeInformation) -> list[Any]:
        array = column(name)
        assert array is not None, f"state '{form.name}' has no column {name}"
        return state_columns.decode(array, type_info)

    values = decoded(VALUE, form.value_type)
    kinds = column(VALUE_ROW_KIND)
    if kinds is not None:
        state_columns.decode_row_kinds(values, kinds)
    namespaces = column(NAMESPACE)
    positions = column(LIST_POS)
    accesses = column(LAST_ACCESS)
    return KeyedRows(
        decoded(KEY, form.key_type),
        None if namespaces is None else state_columns.decode_namespaces(namespaces),
        None if form.map_key_type is None else decoded(MAP_KEY, form.map_key_type),
        None if positions is None else positions.to_pylist(),
        values,
        None if accesses is None else accesses.to_pylist(),
    )
