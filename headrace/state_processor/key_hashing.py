"""Key groups of stored keys, computed from the column alone with the hash that the exchange used.

`key_columns_behind` finds the key columns of rows with a stored `$key_hash`, which a snapshot does not name: the
columns whose hash is the stored one in every row. If several sets of columns fit all rows, each of them may be the key.
"""

import enum
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import InvalidKeyError, hash_array, hash_keys
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.core.types.pickles import unpickle_values
from headrace.state.columns import KEY, KEY_GROUP, KeyGroups
from headrace.state_processor.errors import EditRefusedError, PickledKeysError

HashedColumns = tuple[str, ...]
_ANY_ORDER_MAX: Final = 3
"""Keys of more columns are only found if these are adjacent, as there would be too many orders."""
_GLANCE_ROWS: Final = 64
_HashesByColumn = dict[str, npt.NDArray[np.uint32]]


class KeyHashing(enum.Enum):
    """Input for the hash of a row's key."""

    COLUMN = "the column of keys, whose type was declared"
    PICKLES = "the values that the column of keys holds as pickles"
    VALUES = "the column of keys, whose type was not declared"
    HASHES = "a column of hashes that is stored with the rows"


def hashings_of(
    stored: Iterable[pa.Table], schema: pa.Schema, *, is_opaque: bool, max_parallelism: int
) -> tuple[KeyHashing, ...]:
    """Return the possible hashings of the stored rows: several if each of them fits all rows; empty if none does.

    `is_opaque`: keys are pickles, which are not loaded here. Tables are read until one hashing is left.
    """
    if is_opaque:
        return (KeyHashing.PICKLES,)
    candidates: tuple[KeyHashing, ...] = ()
    if KEY_HASH_COLUMN in schema.names:
        candidates = (KeyHashing.HASHES,)
    elif KEY in schema.names:
        is_one = _is_hashed_alike(schema.field(KEY).type)
        candidates = (KeyHashing.COLUMN,) if is_one else (KeyHashing.COLUMN, KeyHashing.VALUES)
    for table in stored:
        candidates = tuple(one for one in candidates if _fits(table, one, max_parallelism))
        if len(candidates) < 2:
            break
    return candidates


def _fits(stored: pa.Table, hashing: KeyHashing, max_parallelism: int) -> bool:
    try:
        groups = key_groups_in(stored, hashing, max_parallelism)
    except InvalidKeyError:
        return False
    return np.array_equal(groups, stored.column(KEY_GROUP).to_numpy())


def _is_hashed_alike(key_type: pa.DataType) -> bool:
    """Return whether a key of this type has the same hash whether or not the type is declared."""
    return pa.types.is_int64(key_type) or pa.types.is_string(key_type)


def key_groups_in(rows: pa.Table, hashing: KeyHashing, max_parallelism: int) -> KeyGroups:
    """Return the key group of each row, shape (num_rows,). InvalidKeyError if a value cannot be a key."""
    if hashing is KeyHashing.HASHES:
        stored = rows.column(KEY_HASH_COLUMN)
        if stored.null_count:
            raise InvalidKeyError(
                "is null, but each row needs the hash of its key", f"the column {KEY_HASH_COLUMN}"
            )
        hashes = stored.to_numpy().astype(np.int32)
        return key_groups_of(hashes, max_parallelism)
    keys = rows.column(KEY).combine_chunks()
    match hashing:
        case KeyHashing.COLUMN:
            hashes = hash_array(keys)
        case KeyHashing.PICKLES:
            hashes = hash_keys(unpickle_values(keys.to_pylist()))
        case _:
            fields = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
            columns = [field.to_pylist() for field in fields]
            values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            hashes = hash_keys(values)
    return key_groups_of(hashes, max_parallelism)


def checked_key_groups(
    rows: pa.Table, hashing: KeyHashing, max_parallelism: int, state: str, *, allow_pickles: bool
) -> KeyGroups:
    """Return the key group of each row; a given column `key_group` must be equal.

    EditRefusedError names the first row that differs; PickledKeysError.
    """
    if hashing is KeyHashing.PICKLES and not allow_pickles:
        raise PickledKeysError(state)
    groups = key_groups_in(rows, hashing, max_parallelism)
    if KEY_GROUP in rows.column_names:
        wrong = np.flatnonzero(rows.column(KEY_GROUP).to_numpy() != groups)
        if wrong.size:
            place = int(wrong[0])
            reason = (
                f"belongs to key group {groups[place]} by its key: leave out the column key_group"
            )
            raise EditRefusedError(state, row_at(rows, place), reason)
    return groups


def row_at(rows: pa.Table, index: int) -> dict[str, Any]:
    """Return one row as a dict by column name."""
    (row,) = rows.slice(index, 1).to_pylist()
    return row


class _Unequal(enum.Enum):
    """Replaces values that do not equal themselves in Python, such as NaN; works across processes."""

    NAN = "not a number"


def hashable_column(column: pa.ChunkedArray | pa.Array) -> list[Hashable]:
    """Return a column's values in hashable form: equal if the stored values are equal, also NaN."""
    values = column.to_pylist()
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        return [_hashable(value) for value in values]
    return values


def hashable_rows(rows: pa.Table, names: Sequence[str]) -> list[tuple[Hashable, ...]]:
    """Return the rows of some columns as hashable tuples."""
    if not names:
        return [()] * rows.num_rows
    return list(zip(*(hashable_column(rows.column(name)) for name in names), strict=True))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple((name, _hashable(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(one) for one in value)
    if isinstance(value, float) and math.isnan(value):
        return _Unequal.NAN
    return value


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
    """Return the first row whose `$key_hash` differs from those of all candidate keys; None if there is none."""
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
    """Return the hashes of each column that may be part of a key.

    A struct of one field has the field's hash, null has 0.
    """
    hashes: _HashesByColumn = {}
    for name in rows.column_names:
        column = pa.StructArray.from_arrays([rows.column(name).combine_chunks()], names=[name])
        try:
            hashes[name] = hash_array(column).view(np.uint32)
        except InvalidKeyError:
            continue
    return hashes


def _combined(hashes: _HashesByColumn, columns: HashedColumns) -> npt.NDArray[np.uint32]:
    """Return the hash of several columns, as `hash_array` computes it for a struct of them."""
    combined = np.zeros_like(hashes[columns[0]])
    for name in columns:
        combined = combined * np.uint32(31) + hashes[name]
    return combined
