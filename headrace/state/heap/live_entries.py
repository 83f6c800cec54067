"""Live rows of the heap's keyed state: frozen entries in pieces, long lists and maps in parts.

See `live_rows` for who reads them and when.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.state import columns as state_columns
from headrace.state.columns import LIST_POS
from headrace.state.heap.copy_on_write_map import FrozenEntries
from headrace.state.keyed_chunks import Flatten, KeyedRows, KeyedStateForm, table_of_entries
from headrace.state.queryable.live_rows import LivePiece

_PART_ROWS: Final = 256
"""So many elements of one list, or entries of one map, are looked at in one go at most."""


@dataclass(frozen=True)
class _Part:
    """What an entry holds, or a part of it: `begin` is the position of its first element. `size`: rows, at least 1."""

    entry: Any
    held: Any
    begin: int
    size: int


@dataclass(frozen=True)
class EntryPieces:
    """Frozen entries of a state, for certain keys or for all (None). Called as PiecedRows asks."""

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
        """Each part of each entry that is wanted, None for those that are not."""
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
        """Entries, and whether they are wanted. Of states without windows single keys are looked up."""
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
        table = table_of_entries(form, entries, groups, rows, counts)
        if form.is_list and counts is not None:
            begins = np.repeat(np.array([part.begin for part in piece], np.int32), counts)
            positions = table.column(LIST_POS).to_numpy() + begins
            index = table.schema.get_field_index(LIST_POS)
            table = table.set_column(index, LIST_POS, pa.array(positions, pa.int32()))
        return table


_END: Final = _Part(None, None, 0, 0)
