"""Live rows: the rows of a state while its task runs, in the form in which a snapshot would store them.

A reader freezes the state between two batches, as a checkpoint does, and takes its rows in pieces, each between two
other batches; all of this runs on the mailbox thread. `row_sizes` computes the bytes of each row in Arrow's layout,
without its validity bits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.checkpoint.errors import StateKeyMismatchError
from headrace.checkpoint.handles import StateTable
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.errors import RecordTypeError
from headrace.core.key_hash import InvalidKeyError
from headrace.core.types.arrow_types import arrow_type_of
from headrace.state import columns as state_columns
from headrace.state.columns import is_opaque
from headrace.state.keyed_chunks import KIND, KeyedStateForm, opaque_columns
from headrace.state.restored_keyed_state import KeySpace, RestoredKeyedState

AS_ROWS: Final = CheckpointOptions(kind=SnapshotKind.SAVEPOINT)
"""Snapshot options that make every backend freeze rows instead of its own files."""
Sizes = npt.NDArray[np.int64]
_OFFSET_BYTES = 4


@dataclass(frozen=True)
class LivePiece:
    """Rows of one step of a read.

    `looked_at`: number of entries examined; exceeds the rows if only some keys are read.
    """

    table: pa.Table | None
    looked_at: int


class LiveRows:
    """Rows of a frozen state, taken piece by piece. Mailbox thread only.

    `expired_until_ms`: latest last access (epoch ms) of expired rows; None without a time to live.
    """

    def __init__(
        self,
        pieces: Callable[[Callable[[], int]], Iterator[LivePiece]],
        no_rows: Callable[[], pa.Table],
        release: Callable[[], None] = lambda: None,
        expired_until_ms: int | None = None,
    ) -> None:
        """Read from `pieces`, a generator function that takes a function returning each piece's number of entries.

        `no_rows` returns the table without rows.
        """
        self.expired_until_ms = expired_until_ms
        self._no_rows = no_rows
        self._count = 1
        self._pieces: Iterator[LivePiece] = pieces(lambda: self._count)
        self._release = release

    def schema(self) -> pa.Schema:
        """Return the columns; a column that only some rows have may be missing or of type null."""
        return self._no_rows().schema

    def take(self, count: int) -> LivePiece | None:
        """Examine about `count` (> 0) more entries and return their rows; None if there are no more."""
        self._count = count
        return next(self._pieces, None)

    def release(self) -> None:
        """Release the frozen state. Idempotent."""
        self._pieces = iter(())
        self._release()


@dataclass(frozen=True)
class LiveSource:
    """A state that can be read. `open` freezes it, for the keys in an Arrow array or for all (None).

    `open` is None if the state is in the restored checkpoint and was not requested yet.
    """

    table: StateTable
    name: str
    open: Callable[[pa.Array | None], LiveRows] | None
    kind: str = ""
    opaque: tuple[str, ...] = ()


@runtime_checkable
class LiveReadable(Protocol):
    """Readable state that an operator keeps outside of its keyed and operator state."""

    def live_source(self) -> LiveSource:
        """Return the readable state."""
        ...


def pieces_of_tables(
    tables: Iterable[pa.Table], finished: Callable[[pa.Table], pa.Table], count: Callable[[], int]
) -> Iterator[LivePiece]:
    """Yield slices of tables; `finished` is applied to each slice."""
    for table in tables:
        offset = 0
        while offset < table.num_rows:
            piece = table.slice(offset, count())
            offset += piece.num_rows
            yield LivePiece(finished(piece), piece.num_rows)


def own_keys(state: str, keys: pa.Array | None, key_space: KeySpace) -> list[Any] | None:
    """Return the requested keys that belong to the subtask, in the form of its states; None for all keys.

    StateKeyMismatchError if a requested key is not of the type of the state's keys.
    """
    if keys is None:
        return None
    key_type = key_space.key_type
    try:
        if is_opaque(key_type):
            wanted = [_hashable(key) for key in keys.to_pylist()]
        else:
            wanted = state_columns.decode(keys.cast(arrow_type_of(key_type)), key_type)
        groups = state_columns.key_groups(wanted, key_type, key_space.max_parallelism)
    except (pa.ArrowException, RecordTypeError, OverflowError, InvalidKeyError) as error:
        raise StateKeyMismatchError(
            state, f"the keys of the state are {key_type}; {error}"
        ) from None
    found = dict(zip(wanted, groups.tolist(), strict=True))
    return [key for key, group in found.items() if group in key_space.key_groups]


def refuse_keys(state: str, keys: pa.Array | None) -> None:
    """Raise StateKeyMismatchError if keys are requested of a state that has no index by key."""
    if keys is not None:
        raise StateKeyMismatchError(
            state, "the state has no index by key: read all rows and filter"
        )


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def keyed_source(form: KeyedStateForm, opened: Callable[[pa.Array | None], LiveRows]) -> LiveSource:
    """Return the source of live rows of a requested keyed state."""
    opaque = opaque_columns(form.attributes())
    return LiveSource(StateTable.KEYED, form.name, opened, form.kind, opaque)


def waiting_sources(restored: RestoredKeyedState | None) -> list[LiveSource]:
    """Return sources for the restored states that were not requested yet; they cannot be opened."""
    if restored is None:
        return []
    return [
        LiveSource(StateTable.KEYED, name, None, chunks[0].attributes.get(KIND, ""))
        for name, chunks in restored.unclaimed().items()
    ]


def row_sizes(table: pa.Table) -> Sizes:
    """Return the bytes of each row, shape (num_rows,): columns together, offsets of variable lengths included."""
    sizes = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        sizes += _sizes(column.combine_chunks())
    return sizes


def _sizes(array: pa.Array) -> Sizes:
    kind, count = array.type, len(array)
    if pa.types.is_struct(kind):
        total = np.zeros(count, dtype=np.int64)
        for field in array.flatten():
            total += _sizes(field)
        return total
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_sizes(array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.diff(_offsets(array)) + _OFFSET_BYTES
    # Numbers, booleans, dates: all rows alike.
    bits = 0 if pa.types.is_null(kind) else kind.bit_width
    return np.full(count, -(-bits // 8), dtype=np.int64)


def _list_sizes(array: pa.Array) -> Sizes:
    offsets = np.asarray(array.offsets.to_numpy(), dtype=np.int64)
    if pa.types.is_map(array.type):
        elements = _sizes(array.keys) + _sizes(array.items)
    else:
        elements = _sizes(array.values)
    before = np.concatenate([[0], np.cumsum(elements)])
    return before[offsets[1:]] - before[offsets[:-1]] + _OFFSET_BYTES


def _offsets(array: pa.Array) -> Sizes:
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array) + 1, dtype=np.int64)
    offsets = np.frombuffer(buffer, dtype=np.int32)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
