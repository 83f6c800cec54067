"""Which columns of rows with a stored `$key_hash` are the key: those that are hashed to it in every row.

A snapshot does not name them. Where several sets of columns fit all rows, each of them may be the key.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.key_hash import InvalidKeyError, hash_array
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.state.columns import KEY_GROUP

HashedColumns = tuple[str, ...]
_ANY_ORDER_MAX: Final = 3
"""Keys of more columns are found only where these stand beside each other, as all orders would be too many."""
_GLANCE_ROWS: Final = 64
_HashesByColumn = dict[str, npt.NDArray[np.uint32]]


def key_columns_behind(tables: Iterable[pa.Table]) -> tuple[HashedColumns, ...]:
    """Return the sets of columns whose hash is `$key_hash` in all rows of all tables; none if no set is."""
    candidates: list[HashedColumns] | None = None
    for rows in tables:
        if candidates is None:
            glance = rows.slice(0, _GLANCE_ROWS)
            candidates = _fitting(glance, list(_possible(rows.column_names)))
        candidates = _fitting(rows, candidates)
        if not candidates:
            break
    return tuple(candidates or ())


def first_with_other_hash(rows: pa.Table, candidates: Iterable[HashedColumns]) -> int | None:
    """Return the first row whose `$key_hash` is that of none of the keys; None where there is no such row."""
    hashes = _hashes_by_column(rows)
    stored = _stored_hashes(rows)
    fits = np.zeros(rows.num_rows, dtype=np.bool_)
    for columns in candidates:
        if all(name in hashes for name in columns):
            fits |= _combined(hashes, columns) == stored
    wrong = np.flatnonzero(~fits)
    return int(wrong[0]) if wrong.size else None


def _possible(names: Iterable[str]) -> Iterator[HashedColumns]:
    columns = [one for one in names if one != KEY_GROUP and not one.startswith("$")]
    for count in range(1, _ANY_ORDER_MAX + 1):
        yield from itertools.permutations(columns, count)
    for count in range(_ANY_ORDER_MAX + 1, len(columns) + 1):
        yield from (
            tuple(columns[first : first + count]) for first in range(len(columns) - count + 1)
        )


def _fitting(rows: pa.Table, candidates: Iterable[HashedColumns]) -> list[HashedColumns]:
    hashes = _hashes_by_column(rows)
    stored = _stored_hashes(rows)
    return [
        columns
        for columns in candidates
        if all(name in hashes for name in columns)
        and np.array_equal(_combined(hashes, columns), stored)
    ]


def _stored_hashes(rows: pa.Table) -> npt.NDArray[np.uint32]:
    return rows.column(KEY_HASH_COLUMN).to_numpy().astype(np.int32).view(np.uint32)


def _hashes_by_column(rows: pa.Table) -> _HashesByColumn:
    """Hashes of each column that can be part of a key. A struct of one field is hashed as the field, null as 0."""
    hashes: _HashesByColumn = {}
    for name in rows.column_names:
        column = pa.StructArray.from_arrays([rows.column(name).combine_chunks()], names=[name])
        try:
            hashes[name] = hash_array(column).view(np.uint32)
        except InvalidKeyError:
            continue
    return hashes


def _combined(hashes: _HashesByColumn, columns: HashedColumns) -> npt.NDArray[np.uint32]:
    """The hash of several columns, as `hash_array` has it for a struct of them."""
    combined = np.zeros_like(hashes[columns[0]])
    for name in columns:
        combined = combined * np.uint32(31) + hashes[name]
    return combined
