"""Keyed state that is a table of Arrow columns, stored as COLUMNAR chunks in order of key groups.

`ColumnarState` is the base: it restores, freezes, writes and shows such a state. `ColumnarRows` is the state of
operators that keep whole rows or partial results, with the hash of each row's key in `$key_hash`; `MergedRows` holds
their rows while a task runs. A restore at another parallelism reads only the pieces of its own key groups.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.key_groups import key_groups_of
from headrace.core.process.state_memory import StateMemory
from headrace.core.record_batch import KEY_HASH_COLUMN, RecordBatch
from headrace.state.backend import Snapshotable
from headrace.state.columns import KEY_GROUP
from headrace.state.evolution import StateIncompatibleError
from headrace.state.keyed_chunks import ChunkFiles, read_tables
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.state.queryable.live_rows import (
    LiveRows,
    LiveSource,
    pieces_of_tables,
    refuse_keys,
)

_PENDING_SIZE_MIN: Final = 65_536
_PIECE_ROWS: Final = 65_536
KEY_HASH_FIELD: Final = pa.field(KEY_HASH_COLUMN, pa.int32())
"""Column with the hash of each row's key, in schemas of state."""
FrozenTables = Callable[[], Sequence[pa.Table]]
"""Function that returns the frozen tables; called once, on any thread."""


class ColumnarState(Snapshotable, ABC):
    """Base of a columnar state called `name`; its snapshots are rows with their key group in `key_group`.

    `memory`: the account of the state's size, present after `register`; subclasses keep it up to date.
    """

    memory: StateMemory

    def __init__(self, name: str) -> None:
        self._name = name

    @abstractmethod
    def freeze_tables(self) -> FrozenTables:
        """Return a function that returns the present rows as tables with the column `key_group`."""

    @abstractmethod
    def live_rows(self) -> LiveRows:
        """Return the present rows for a reader that takes them in pieces."""

    def register(self, states: OperatorStateHandler) -> Iterator[pa.Table]:
        """Take part in snapshots; return the restored rows of the subtask's own keys, without `key_group`."""
        self.memory = states.account_of(self._name)
        chunks = states.register(self._name, self)
        tables = read_tables(chunks, states.reader, states.key_space.key_groups)
        return (table.drop_columns([KEY_GROUP]) for table in tables)

    def live_source(self) -> LiveSource:
        """Return the readable state; it can only be read as a whole, as it has no index by key."""

        def opened(keys: pa.Array | None) -> LiveRows:
            refuse_keys(self._name, keys)
            return self.live_rows()

        return LiveSource(StateTable.COLUMNAR, self._name, opened)

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenColumnarState":
        return FrozenColumnarState(self._name, self.freeze_tables())


class FrozenColumnarState:
    """Frozen columnar state, written in order of key groups."""

    def __init__(self, name: str, tables: FrozenTables) -> None:
        self._name = name
        self._tables: FrozenTables | None = tables

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        assert self._tables is not None
        tables = [table for table in self._tables() if table.num_rows]
        if not tables:
            return ()
        # Once: `take` puts the chunks of texts together again for each piece, which is the whole state each time.
        rows = pa.concat_tables(tables).combine_chunks()
        order = np.argsort(rows.column(KEY_GROUP).to_numpy(), kind="stable")
        files = ChunkFiles(StateTable.COLUMNAR, self._name, {}, writer)
        for offset in range(0, len(order), _PIECE_ROWS):
            piece = rows.take(pa.array(order[offset : offset + _PIECE_ROWS]))
            files.add(piece.combine_chunks())
        return files.finish()

    def discard(self) -> None:
        self._tables = None


class ColumnarRows(ColumnarState):
    """The tables of an operator, all with the columns of `schema`, among them `$key_hash` (int32).

    `freeze_rows` returns a function that returns the present rows. Tables are immutable, so that freezing them only
    takes references.
    """

    def __init__(
        self, name: str, schema: pa.Schema, freeze_rows: Callable[[], FrozenTables]
    ) -> None:
        super().__init__(name)
        self._schema = schema
        self._freeze_rows = freeze_rows
        self._max_parallelism = 0

    def restore(self, states: OperatorStateHandler) -> list[pa.Table]:
        """Take part in snapshots; return the restored rows of the subtask's own keys."""
        self._max_parallelism = states.key_space.max_parallelism
        tables = list(self.register(states))
        for rows in tables:
            if rows.schema != self._schema:
                raise StateIncompatibleError(
                    f"'{self._name}' was stored with the columns {_shown(rows.schema)}, now they are "
                    f"{_shown(self._schema)}: give the operator another uid to start with empty state"
                )
        return tables

    def freeze_tables(self) -> FrozenTables:
        rows, max_parallelism = self._freeze_rows(), self._max_parallelism
        return lambda: [_with_groups(table, max_parallelism) for table in rows()]

    def live_rows(self) -> LiveRows:
        tables = [table for table in self._freeze_rows()() if table.num_rows]
        with_groups = partial(_with_groups, max_parallelism=self._max_parallelism)
        return LiveRows(
            partial(pieces_of_tables, tables, with_groups),
            lambda: with_groups(self._schema.empty_table()),
        )


def _with_groups(rows: pa.Table, max_parallelism: int) -> pa.Table:
    groups = key_groups_of(rows.column(KEY_HASH_COLUMN).to_numpy(), max_parallelism)
    return rows.add_column(0, KEY_GROUP, pa.array(groups))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def is_merge_due(pending_size: int, merged_size: int) -> bool:
    """Return whether pending rows are worth a vectorised step, and at least as many as the merged ones."""
    return pending_size >= max(_PENDING_SIZE_MIN, merged_size)


class MergedRows:
    """The table `merged` and, in order of arrival, the `pending` tables that are not merged into it yet.

    `size_of` returns the cost of merging a table, in rows. All tables have the columns of `schema`. `memory`: the
    account of their size.
    """

    def __init__(
        self,
        schema: pa.Schema,
        pending: list[pa.Table],
        memory: StateMemory,
        size_of: Callable[[pa.Table], int] = lambda table: table.num_rows,
    ) -> None:
        self._size_of = size_of
        self.merged: pa.Table = schema.empty_table()
        self.pending = pending
        self._merged_size = 0
        self._pending_size = sum(map(size_of, pending))
        self._memory = memory
        for rows in pending:
            memory.add_rows(rows)

    @property
    def tables(self) -> list[pa.Table]:
        """All rows, merged ones first."""
        return [self.merged, *self.pending]

    @property
    def size_bytes(self) -> int:
        """Bytes that all tables hold."""
        return self._memory.size_bytes

    @property
    def is_merge_due(self) -> bool:
        """True if it is time to merge."""
        return is_merge_due(self._pending_size, self._merged_size)

    def add(self, rows: pa.Table) -> None:
        """Add new rows, at least one."""
        self.pending.append(rows)
        self._pending_size += self._size_of(rows)
        self._memory.add_rows(rows)

    def replace(self, merged: pa.Table) -> None:
        """Hold `merged` in place of all rows."""
        self.merged, self.pending = merged, []
        self._merged_size, self._pending_size = self._size_of(merged), 0
        self._memory.resize(merged.nbytes)


def table_with_hashes(batch: RecordBatch, schema: pa.Schema, *more: pa.Array) -> pa.Table:
    """Return the data columns of a keyed batch, followed by the `more` columns, as a table of `schema`.

    The hashes of keys stand where `schema` has KEY_HASH_FIELD.
    """
    assert batch.key_hashes is not None
    arrays = [*batch.columns().columns, *more]
    arrays.insert(schema.get_field_index(KEY_HASH_COLUMN), pa.array(batch.key_hashes))
    return pa.Table.from_arrays(arrays, schema=schema)
