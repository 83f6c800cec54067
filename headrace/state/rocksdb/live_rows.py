"""Live rows of keyed state in RocksDB: an iterator over a state's table sees the rows of the moment it was made.

See `headrace.state.queryable.live_rows` for who reads them and when.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace.state.keyed_chunks import KeyedStateForm, rows_to_table
from headrace.state.queryable.live_rows import LivePiece
from headrace.state.rocksdb.keys import CompositeKeys
from headrace.state.rocksdb.snapshots import pieces_of_rows

Stored = tuple[bytes, bytes]


class TablePieces:
    """Rows of a state's table, for certain keys or for all (None). Called as PiecedRows asks; read once."""

    def __init__(
        self,
        form: KeyedStateForm,
        table: Any,
        composites: CompositeKeys,
        keys: Sequence[Any] | None,
    ) -> None:
        self._form = form
        self._composites = composites
        self._keys = keys
        # Made here, and one for all keys: it sees the table as it is now, wherever it is moved to later. (A snapshot of
        # rocksdict would not do: iterators that are made of it see what was written since.)
        self._stored: Any = table.iter()

    def __call__(self, count: Callable[[], int]) -> Iterator[LivePiece]:
        looks = self._all() if self._keys is None else self._of_keys(self._keys)
        found = deque[Stored]()
        pieces = pieces_of_rows(
            self._form, _taken(found), self._composites, piece_size=lambda: len(found)
        )
        while looked_at := _look(looks, found, count()):
            if not found:
                yield LivePiece(None, looked_at)
                continue
            rows, groups = next(pieces)
            table = rows_to_table(self._form, rows, np.array(groups, dtype=np.int32))
            yield LivePiece(table, looked_at)

    def release(self) -> None:
        """Let go of the iterator: while it lives, RocksDB keeps old versions of rows."""
        self._stored = None

    def _all(self) -> Iterator[Stored]:
        return self._from(b"")

    def _of_keys(self, keys: Sequence[Any]) -> Iterator[Stored | None]:
        """The rows of each key, or None for one that has none: it was looked for all the same."""
        for key in keys:
            is_there = False
            for row in self._from(self._composites.of_key(key)):
                is_there = True
                yield row
            if not is_there:
                yield None

    def _from(self, prefix: bytes) -> Iterator[Stored]:
        """Rows that begin with a prefix, until they are released."""
        if self._stored is not None:
            self._stored.seek(prefix)
        while self._stored is not None and self._stored.valid():
            composite = self._stored.key()
            if not composite.startswith(prefix):
                return
            yield composite, self._stored.value()
            if self._stored is not None:
                self._stored.next()


def _look(looks: Iterator[Stored | None], found: deque[Stored], count: int) -> int:
    """Look `count` times, and put aside what is found. Return how often there was something to look at."""
    looked_at = 0
    for one in looks:
        looked_at += 1
        if one is not None:
            found.append(one)
        if looked_at == count:
            break
    return looked_at


def _taken(found: deque[Stored]) -> Iterator[Stored]:
    while True:
        yield found.popleft()
