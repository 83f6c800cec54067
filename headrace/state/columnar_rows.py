"""ColumnarRows: keyed state that is a table of Arrow columns, with the hash of each row's key in `$key_hash`.

Tables never change once they are made, so freezing is taking references. Snapshots are COLUMNAR chunks in order of key
groups, which a restore at another parallelism reads in parts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.core.barriers import CheckpointOptions
from headrace.core.key_groups import key_groups_of
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.state.backend import SnapshotWriter
from headrace.state.columns import KEY_GROUP
from headrace.state.evolution import StateIncompatibleError
from headrace.state.keyed_chunks import ChunkFiles, read_tables
from headrace.state.operator_states import OperatorStates
from headrace.state.queryable.live_rows import (
    LiveRows,
    LiveSource,
    PiecedRows,
    pieces_of_tables,
    refuse_keys,
)

_PIECE_ROWS: Final = 65_536

FrozenTables = Callable[[], Sequence[pa.Table]]
"""Gives the tables as they were when it was made; called once, on any thread."""


class ColumnarRows:
    """Takes snapshots of an operator's tables under `name`. See Snapshotable.

    `freeze_rows`: returns what gives the rows as they are now; all tables have the columns of `schema`, among them
    `$key_hash` (int32).
    """

    def __init__(
        self, name: str, schema: pa.Schema, freeze_rows: Callable[[], FrozenTables]
    ) -> None:
        self._name = name
        self._schema = schema
        self._freeze_rows = freeze_rows
        self._max_parallelism = 0

    def restore(self, states: OperatorStates) -> list[pa.Table]:
        """Be part of snapshots; return the rows of a restored one whose keys are the subtask's own."""
        chunks = states.register(self._name, self)
        self._max_parallelism = states.key_space.max_parallelism
        tables: list[pa.Table] = []
        for table in read_tables(chunks, states.reader, states.key_space.key_groups):
            rows = table.drop_columns([KEY_GROUP])
            if rows.schema != self._schema:
                raise StateIncompatibleError(
                    f"'{self._name}' was stored with the columns {_shown(rows.schema)}, now they are "
                    f"{_shown(self._schema)}: give the operator another uid to begin anew"
                )
            tables.append(rows)
        return tables

    def live_source(self) -> LiveSource:
        """See LiveReadable. Keys are several columns here, and nobody can ask for some of them."""
        return LiveSource(StateTable.COLUMNAR, self._name, self._live_rows)

    def _live_rows(self, keys: pa.Array | None) -> LiveRows:
        refuse_keys(self._name, keys)
        tables = [table for table in self._freeze_rows()() if table.num_rows]
        with_groups = partial(_with_groups, max_parallelism=self._max_parallelism)
        return PiecedRows(
            partial(pieces_of_tables, tables, with_groups),
            lambda: with_groups(self._schema.empty_table()),
        )

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenColumnarRows":
        """See Snapshotable. Copies nothing."""
        return FrozenColumnarRows(self._name, self._freeze_rows(), self._max_parallelism)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        pass

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        pass


class FrozenColumnarRows:
    """Frozen rows of a columnar state, written as state chunks by key group."""

    def __init__(self, name: str, rows: FrozenTables, max_parallelism: int) -> None:
        self._name = name
        self._rows: FrozenTables | None = rows
        self._max_parallelism = max_parallelism

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        assert self._rows is not None
        tables = [table for table in self._rows() if table.num_rows]
        if not tables:
            return ()
        # Once: `take` puts the chunks of texts together again for each piece, which is the whole state each time.
        rows = _with_groups(pa.concat_tables(tables).combine_chunks(), self._max_parallelism)
        order = np.argsort(rows.column(KEY_GROUP).to_numpy(), kind="stable")
        files = ChunkFiles(StateTable.COLUMNAR, self._name, {}, writer)
        for offset in range(0, len(order), _PIECE_ROWS):
            piece = rows.take(pa.array(order[offset : offset + _PIECE_ROWS]))
            files.add(piece.combine_chunks())
        return files.finish()

    def discard(self) -> None:
        self._rows = None


def _with_groups(rows: pa.Table, max_parallelism: int) -> pa.Table:
    groups = key_groups_of(rows.column(KEY_HASH_COLUMN).to_numpy(), max_parallelism)
    return rows.add_column(0, KEY_GROUP, pa.array(groups))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
