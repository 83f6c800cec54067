"""Checks of rows that an edit writes into a state: each raises an error that names the first wrong row.

Columns have the state's types; no key, namespace or position is missing, and no value, map key or row count where the
parent has them all; a stored hash is that of the key; no two rows belong to one entry; positions of lists are
0, 1, 2 …; timers belong to their service.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.state.columns import (
    EXPIRED,
    KEY,
    KEY_GROUP,
    LIST_POS,
    MAP_KEY,
    NAMESPACE,
    TIMER_DOMAIN,
    TIMER_DOMAINS,
    TIMER_SERVICE,
    TIMER_TIME,
    VALUE,
    WINDOW_START,
)
from headrace.state_processor.errors import EditRefusedError, StateSchemaError
from headrace.state_processor.key_hashing import (
    HashedColumns,
    KeyHashing,
    first_with_other_hash,
    hashable_rows,
    row_at,
)
from headrace.state_processor.stored_state import (
    OPTIONAL_COLUMNS,
    StoredState,
    chunk_rows,
    type_differences,
)

TIMER_COLUMNS: Final = (TIMER_SERVICE, TIMER_DOMAIN, TIMER_TIME)
_WINDOW_ROWS: Final = "rows"


@dataclass(frozen=True)
class EditTarget:
    """The state whose rows are replaced, and what may be done to find its key groups.

    `other_hashing`: a second way that gives all rows of the parent their key groups. `hash_columns`: which columns may
    be the key behind a stored hash; none where that is not known.
    """

    state: StoredState
    hashing: KeyHashing
    allow_pickles: bool = False
    other_hashing: KeyHashing | None = None
    hash_columns: tuple[HashedColumns, ...] = ()


def entry_columns(state: StoredState) -> list[str]:
    """Return the columns that say which entry a row belongs to."""
    names = [KEY, NAMESPACE]
    if state.table is StateTable.TIMERS:
        names = [*TIMER_COLUMNS, KEY, NAMESPACE]
    elif state.table is StateTable.COLUMNAR:
        names = [KEY, WINDOW_START]
    return [name for name in names if name in state.schema.names]


def identity_columns(state: StoredState) -> list[str]:
    """Return the columns that no two rows have alike; none where only the operator knows."""
    if state.table is StateTable.COLUMNAR and WINDOW_START not in state.schema.names:
        return []
    within = [name for name in (LIST_POS, MAP_KEY) if name in state.schema.names]
    return [*entry_columns(state), *within]


def null_error(state: StoredState, rows: pa.Table, name: str, reason: str) -> EditRefusedError:
    """Return the error for the first row that has a null in a column."""
    place = pc.index(rows.column(name).is_null(), True).as_py()
    return EditRefusedError(state.title, row_at(rows, place), reason)


def check_nulls(state: StoredState, rows: pa.Table, reader: SnapshotReader) -> None:
    """Refuse a null that the state's own rows never have in its column, such as an outer join leaves behind."""
    checked = [MAP_KEY, _WINDOW_ROWS, *(one for one in rows.column_names if one.startswith("$"))]
    if LIST_POS not in rows.column_names:  # elements of lists may be null
        checked.append(VALUE)
    for name in checked:
        if name not in rows.column_names or not rows.column(name).null_count:
            continue
        stored = (table for one in state.chunks for table in chunk_rows(state, one, reader))
        if not any(table.column(name).null_count for table in stored):
            reason = f"has no {name}, which every row of the parent has"
            raise null_error(state, rows, name, reason)


def check_schema(state: StoredState, given: pa.Schema) -> None:
    """StateSchemaError where columns of these types cannot be a state's rows; `expired` may come along, as read."""
    known = [*state.schema.names, *([EXPIRED] if state.table is StateTable.KEYED else [])]
    differences = [f"'{name}' is no column of it" for name in given.names if name not in known]
    if len(set(given.names)) != len(given.names):
        differences.append("two columns have one name")
    for field in state.schema:
        index = given.get_field_index(field.name)
        if index >= 0:
            differences += type_differences(given.field(index).type, field.type, field.name)
        elif field.name != KEY_GROUP and field.name not in OPTIONAL_COLUMNS:
            differences.append(f"'{field.name}' is missing")
    if differences:
        raise StateSchemaError(state.title, differences)


def check_hashes(
    target: EditTarget, rows: pa.Table, groups: Sequence[int], reader: SnapshotReader
) -> None:
    """Refuse a stored hash that is not that of the row's key or, where the key is not known, not in the parent."""
    if target.hashing is not KeyHashing.HASHES:
        return
    state = target.state
    if target.hash_columns:
        place = first_with_other_hash(rows, target.hash_columns)
        reason = f"has a {KEY_HASH_COLUMN} that is not the hash of its key"
    else:
        stored = [
            table.column(KEY_HASH_COLUMN).to_numpy()
            for one in state.chunks
            for table in chunk_rows(state, one, reader, groups)
        ]
        is_new = ~np.isin(rows.column(KEY_HASH_COLUMN).to_numpy(), np.concatenate([*stored, []]))
        place = int(np.argmax(is_new)) if is_new.any() else None
        reason = f"has a {KEY_HASH_COLUMN} that no row of the parent has"
    if place is not None:
        raise EditRefusedError(state.title, row_at(rows, place), reason)


def check_unique(target: EditTarget, rows: pa.Table) -> None:
    """Refuse two rows of one entry."""
    names = identity_columns(target.state)
    identity = hashable_rows(rows, names)
    if not names or len(set(identity)) == len(identity):
        return
    seen: set[Hashable] = set()
    for place, one in enumerate(identity):
        if one in seen:
            reason = f"is there twice: {', '.join(names)} must differ"
            raise EditRefusedError(target.state.title, row_at(rows, place), reason)
        seen.add(one)


def check_positions(target: EditTarget, rows: pa.Table) -> None:
    """Refuse a list whose positions, in the order of the rows, do not count from 0."""
    if LIST_POS not in rows.column_names:
        return
    expected, last = 0, None
    positions = rows.column(LIST_POS).to_pylist()
    for place, entry in enumerate(hashable_rows(rows, entry_columns(target.state))):
        expected, last = (expected + 1 if entry == last else 0), entry
        if positions[place] != expected:
            reason = f"has list_pos {positions[place]} where {expected} is next"
            raise EditRefusedError(target.state.title, row_at(rows, place), reason)


def check_timers(target: EditTarget, rows: pa.Table) -> None:
    """Refuse a timer of another service, or of no domain."""
    if target.state.table is not StateTable.TIMERS:
        return
    allowed = {TIMER_SERVICE: frozenset({target.state.name}), TIMER_DOMAIN: TIMER_DOMAINS}
    for name, values in allowed.items():
        for place, value in enumerate(rows.column(name).to_pylist()):
            if value not in values:
                reason = f"has a {name} that is none of {', '.join(sorted(values))}"
                raise EditRefusedError(target.state.title, row_at(rows, place), reason)
