"""Snapshots of the heap backend: frozen entries, written as rows by key group or read live in pieces.

Source: Flink HeapSnapshotStrategy, CopyOnWriteStateTableSnapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.state import columns as state_columns
from headrace.state.columns import LIST_POS, KeyGroups
from headrace.state.heap.copy_on_write_map import FrozenEntries
from headrace.state.keyed_chunks import (
    ChunkFiles,
    Flatten,
    KeyedRows,
    KeyedStateForm,
    rows_to_table,
)
from headrace.state.queryable.live_rows import LivePiece
from headrace.state.restored_keyed_state import FrozenUnclaimed, RestoredKeyedState

_HASH_ROWS: Final = 65_536
_FIRST_PIECE_ENTRIES: Final = 1_024
_PIECE_BYTES: Final = 4 << 20
_PIECE_ENTRIES_MAX: Final = 65_536
_PART_ROWS: Final = 256
"""Limit of elements of one list, or entries of one map, that are examined at once."""


@dataclass(frozen=True)
class FrozenHeapTable:
    """Frozen state: its form, its entries, and the function that turns them into rows."""

    form: KeyedStateForm
    flatten: Flatten
    entries: FrozenEntries
    expired_until_ms: int | None

    def write(self, writer: SnapshotWriter, max_parallelism: int) -> list[StateChunk]:
        """Write every entry; no chunk if there is none."""
        form = self.form
        ordered, groups = self._by_key_group(max_parallelism)
        chunks = ChunkFiles(
            StateTable.KEYED,
            form.name,
            form.attributes(),
            writer,
            expired_until_ms=self.expired_until_ms,
        )
        begin, count = 0, _FIRST_PIECE_ENTRIES
        while begin < len(ordered):
            piece = ordered[begin : begin + count]
            rows = KeyedRows.for_form(form)
            counts = self.flatten(self.entries.values_of(piece), rows)
            table = _table_of(form, piece, groups[begin : begin + count], rows, counts)
            if table.num_rows:
                chunks.add(table)
            begin += len(piece)
            # Pieces of one size in bytes, whatever entries hold; no column may outgrow 32-bit offsets.
            per_entry = max(1, table.nbytes // len(piece))
            count = max(1, min(_PIECE_ENTRIES_MAX, 2 * count, _PIECE_BYTES // per_entry))
        return chunks.finish()

    def _by_key_group(self, max_parallelism: int) -> tuple[list[Any], KeyGroups]:
        """Return all entries ordered by key group, and their key groups. Small steps let other threads run."""
        form = self.form
        found: list[Any] = []
        parts: list[KeyGroups] = []
        remaining = iter(self.entries)
        while piece := list(islice(remaining, _HASH_ROWS)):
            keys = [entry[0] for entry in piece] if form.scope == "window" else piece
            parts.append(state_columns.key_groups(keys, form.key_type, max_parallelism))
            found += piece
        if not found:
            return [], np.zeros(0, dtype=np.int32)
        groups = np.concatenate(parts)
        order = np.argsort(groups, kind="stable")
        return [found[index] for index in order.tolist()], groups[order]


class FrozenHeap:
    """Frozen state of the heap backend: the entries of all states, and restored states that were never requested."""

    def __init__(
        self,
        tables: Sequence[FrozenHeapTable],
        restored: RestoredKeyedState | None,
        max_parallelism: int,
    ) -> None:
        self._tables = tables
        self._unclaimed = None if restored is None else FrozenUnclaimed(restored)
        self._max_parallelism = max_parallelism

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        chunks: list[StateChunk] = []
        for table in self._tables:
            chunks += table.write(writer, self._max_parallelism)
        if self._unclaimed is not None:
            chunks += self._unclaimed.write(writer)
        return chunks

    def discard(self) -> None:
        for table in self._tables:
            table.entries.release()


@dataclass(frozen=True)
class _Part:
    """The value of an entry, or a part of it; `begin`: position of its first element; `size`: rows, at least 1."""

    entry: Any
    held: Any
    begin: int
    size: int


@dataclass(frozen=True)
class EntryPieces:
    """Reads frozen entries of a state in pieces, for the given keys or for all (None)."""

    form: KeyedStateForm
    entries: FrozenEntries
    flatten: Flatten
    max_parallelism: int
    keys: Sequence[Any] | None

    def __call__(self, count: Callable[[], int]) -> Iterator[LivePiece]:
        parts = self._parts()
        is_over = False
        while not is_over:
            wanted, looked_at = count(), 0
            piece: list[_Part] = []
            while looked_at < wanted:
                part = next(parts, _END)
                if part is _END:
                    is_over = True
                    break
                looked_at += 1 if part is None else part.size
                if part is not None:
                    piece.append(part)
            if looked_at:
                yield LivePiece(self._table(piece) if piece else None, looked_at)

    def _parts(self) -> Iterator[_Part | None]:
        """Yield each part of each wanted entry, and None for an entry that is not wanted."""
        for entry, is_wanted in self._candidates():
            if not is_wanted:
                yield None
                continue
            (held,) = self.entries.values_of((entry,))
            if self.form.is_list:
                for begin in range(0, len(held), _PART_ROWS):
                    part = held[begin : begin + _PART_ROWS]
                    yield _Part(entry, part, begin, len(part))
            elif self.form.is_map:
                items = iter(held.items())
                while part := dict(islice(items, _PART_ROWS)):
                    yield _Part(entry, part, 0, len(part))
            else:
                yield _Part(entry, held, 0, 1)

    def _candidates(self) -> Iterator[tuple[Any, bool]]:
        """Yield entries, and whether they are wanted; in states without windows the keys are looked up."""
        if self.keys is None:
            for entry in self.entries:
                yield entry, True
        elif self.form.scope == "key":
            for key in self.keys:
                yield key, key in self.entries
        else:
            wanted = set(self.keys)
            for entry in self.entries:
                yield entry, entry[0] in wanted

    def _table(self, piece: Sequence[_Part]) -> pa.Table:
        form = self.form
        entries = [part.entry for part in piece]
        keys = [entry[0] for entry in entries] if form.scope == "window" else entries
        groups = state_columns.key_groups(keys, form.key_type, self.max_parallelism)
        rows = KeyedRows.for_form(form)
        counts = self.flatten([part.held for part in piece], rows)
        table = _table_of(form, entries, groups, rows, counts)
        if form.is_list and counts is not None:
            begins = np.repeat(np.array([part.begin for part in piece], np.int32), counts)
            positions = table.column(LIST_POS).to_numpy() + begins
            index = table.schema.get_field_index(LIST_POS)
            table = table.set_column(index, LIST_POS, pa.array(positions, pa.int32()))
        return table


_END: Final = _Part(None, None, 0, 0)


def _table_of(
    form: KeyedStateForm,
    piece: Sequence[Any],
    groups: KeyGroups,
    rows: KeyedRows,
    counts: Sequence[int] | None,
) -> pa.Table:
    """Return the rows of entries: their keys, namespaces, and the columns that `flatten` filled."""
    if counts is not None:
        piece = list(chain.from_iterable(map(repeat, piece, counts)))
        groups = np.repeat(groups, counts)
    if rows.namespaces is None:
        rows.keys = list(piece)
    elif piece:
        keys, namespaces = zip(*piece, strict=True)
        rows.keys, rows.namespaces = list(keys), list(namespaces)
    return rows_to_table(form, rows, groups)
