"""How the key group of a stored key is found again: by the hash that the exchange used, from the column alone."""

import enum
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.key_groups import key_groups_of
from headrace.core.key_hash import InvalidKeyError, hash_array, hash_keys
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.core.types.pickles import unpickle_values
from headrace.state.columns import KEY, KEY_GROUP, KeyGroups
from headrace.state_processor.errors import EditRefusedError, PickledKeysError


class KeyHashing(enum.Enum):
    """What of a row is hashed."""

    COLUMN = "the column of keys, whose type was declared"
    PICKLES = "the values that the column of keys holds as pickles"
    VALUES = "the column of keys, whose type was not declared"
    HASHES = "a column of hashes that is stored with the rows"


def hashings_of(
    stored: Iterable[pa.Table], schema: pa.Schema, *, is_opaque: bool, max_parallelism: int
) -> tuple[KeyHashing, ...]:
    """Return what gives the stored rows their key groups: several where all rows fit each of them, or nothing.

    `is_opaque`: keys are pickles, which are not loaded here. Tables are read until one answer is left.
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
    """Whether a key of this type has one hash, declared or not."""
    return pa.types.is_int64(key_type) or pa.types.is_string(key_type)


def key_groups_in(rows: pa.Table, hashing: KeyHashing, max_parallelism: int) -> KeyGroups:
    """Return the key group of each row, shape (num_rows,). InvalidKeyError."""
    if hashing is KeyHashing.HASHES:
        stored = rows.column(KEY_HASH_COLUMN)
        if stored.null_count:
            raise InvalidKeyError(
                f"the column {KEY_HASH_COLUMN}", "is null: each row has the hash of its key"
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
    """Return the key group of each row; a column `key_group` that came along must say the same.

    EditRefusedError names the first row where it does not; PickledKeysError.
    """
    if hashing is KeyHashing.PICKLES and not allow_pickles:
        raise PickledKeysError(state)
    groups = key_groups_in(rows, hashing, max_parallelism)
    if KEY_GROUP in rows.column_names:
        wrong = np.flatnonzero(rows.column(KEY_GROUP).to_numpy() != groups)
        if wrong.size:
            place = int(wrong[0])
            reason = f"is in key group {groups[place]} by its key: leave the column key_group out"
            raise EditRefusedError(state, row_at(rows, place), reason)
    return groups


def row_at(rows: pa.Table, index: int) -> dict[str, Any]:
    """Return one row by column name."""
    (row,) = rows.slice(index, 1).to_pylist()
    return row


class _Unequal(enum.Enum):
    """Stands for values that Python takes for others than themselves, in other processes too."""

    NAN = "not a number"


def hashable_column(column: pa.ChunkedArray | pa.Array) -> list[Hashable]:
    """Return a column's values as what sets and dicts take: equal where the stored values are, NaN too."""
    values = column.to_pylist()
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        return [_hashable(value) for value in values]
    return values


def hashable_rows(rows: pa.Table, names: Sequence[str]) -> list[tuple[Hashable, ...]]:
    """Return the rows of some columns as tuples that sets and dicts take."""
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
