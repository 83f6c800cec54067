"""Checks the rows that an edit writes into a state, and writes them as a job's chunks.

The checks: columns have the state's types; no key, namespace or position is missing, nor a value, map key or row count
if no row of the parent lacks one; the key group and a stored hash are those of the key; no two rows belong to one
entry; positions of lists are 0, 1, 2 …; timers belong to their service. Each raises an error that names the first wrong
row.
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.key_groups import key_group_range, owners_of_groups
from headrace.core.key_hash import InvalidKeyError
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
    VALUE_ROW_KIND,
    WINDOW_START,
    KeyGroups,
)
from headrace.state.keyed_chunks import ChunkFiles
from headrace.state_processor.errors import EditRefusedError, StateSchemaError
from headrace.state_processor.key_hashing import (
    HashedColumns,
    KeyHashing,
    checked_key_groups,
    first_with_other_hash,
    hashable_column,
    hashable_rows,
    key_groups_in,
    row_at,
)
from headrace.state_processor.stored_state import (
    OPTIONAL_COLUMNS,
    StoredState,
    chunk_rows,
    converted,
    type_differences,
)

TIMER_COLUMNS: Final = (TIMER_SERVICE, TIMER_DOMAIN, TIMER_TIME)
_WINDOW_ROWS: Final = "rows"
_PIECE_ROWS: Final = 65_536


@dataclass(frozen=True)
class EditTarget:
    """The state whose rows are replaced, and the ways to find the key groups of its rows.

    `other_hashing`: a second way by which all rows of the parent have their key groups. `hash_columns`: the sets of
    columns that may be the key of a stored hash; empty if they are unknown.
    """

    state: StoredState
    hashing: KeyHashing
    allow_pickles: bool = False
    other_hashing: KeyHashing | None = None
    hash_columns: tuple[HashedColumns, ...] = ()


def entry_columns(state: StoredState) -> list[str]:
    """Return the columns that identify the entry of a row."""
    names = [KEY, NAMESPACE]
    if state.table is StateTable.TIMERS:
        names = [*TIMER_COLUMNS, KEY, NAMESPACE]
    elif state.table is StateTable.COLUMNAR:
        names = [KEY, WINDOW_START]
    return [name for name in names if name in state.schema.names]


def identity_columns(state: StoredState) -> list[str]:
    """Return the columns whose values differ in any two rows; empty if only the operator knows them."""
    if state.table is StateTable.COLUMNAR and WINDOW_START not in state.schema.names:
        return []
    within = [name for name in (LIST_POS, MAP_KEY) if name in state.schema.names]
    return [*entry_columns(state), *within]


def null_error(state: StoredState, rows: pa.Table, name: str, reason: str) -> EditRefusedError:
    """Return the error for the first row that has a null in a column."""
    place = pc.index(rows.column(name).is_null(), True).as_py()
    return EditRefusedError(state.title, row_at(rows, place), reason)


def check_nulls(state: StoredState, rows: pa.Table, reader: SnapshotReader) -> None:
    """Refuse a null in a column in which the parent has none, such as an outer join creates."""
    checked = [MAP_KEY, _WINDOW_ROWS, *(one for one in rows.column_names if one.startswith("$"))]
    if LIST_POS not in rows.column_names:  # elements of lists may be null
        checked.append(VALUE)
    for name in checked:
        if name not in rows.column_names or not rows.column(name).null_count:
            continue
        stored = (table for one in state.chunks for table in chunk_rows(state, one, reader))
        if not any(table.column(name).null_count for table in stored):
            reason = f"has no {name}, but every row of the parent has one"
            raise null_error(state, rows, name, reason)


def check_schema(state: StoredState, given: pa.Schema) -> None:
    """Raise StateSchemaError if columns of these types cannot be a state's rows; a column `expired` is allowed."""
    known = [*state.schema.names, *([EXPIRED] if state.table is StateTable.KEYED else [])]
    differences = [
        f"'{name}' is not a column of the state" for name in given.names if name not in known
    ]
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
    """Refuse a stored hash that differs from that of the row's key or, if the key is unknown, is not in the parent."""
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
            reason = f"occurs twice: {', '.join(names)} must differ"
            raise EditRefusedError(target.state.title, row_at(rows, place), reason)
        seen.add(one)


def check_positions(target: EditTarget, rows: pa.Table) -> None:
    """Refuse a list whose positions, in the order of the rows, are not 0, 1, 2 and so on."""
    if LIST_POS not in rows.column_names:
        return
    expected, last = 0, None
    positions = rows.column(LIST_POS).to_pylist()
    for place, entry in enumerate(hashable_rows(rows, entry_columns(target.state))):
        expected, last = (expected + 1 if entry == last else 0), entry
        if positions[place] != expected:
            reason = f"has list_pos {positions[place]}, but {expected} is next"
            raise EditRefusedError(target.state.title, row_at(rows, place), reason)


def check_timers(target: EditTarget, rows: pa.Table) -> None:
    """Refuse a timer of another service, or without a valid domain."""
    if target.state.table is not StateTable.TIMERS:
        return
    allowed = {TIMER_SERVICE: frozenset({target.state.name}), TIMER_DOMAIN: TIMER_DOMAINS}
    for name, values in allowed.items():
        for place, value in enumerate(rows.column(name).to_pylist()):
            if value not in values:
                reason = f"has a {name} that is not one of {', '.join(sorted(values))}"
                raise EditRefusedError(target.state.title, row_at(rows, place), reason)


class SubtaskChunk(msgspec.Struct, frozen=True):
    """A chunk that was written for a subtask of the parent's parallelism."""

    subtask_index: int
    chunk: StateChunk


class WrittenRows(msgspec.Struct, frozen=True):
    """Chunks and counts of written rows. `matched_count`: rows whose entry the parent has.

    `changed_count`: matched rows that differ from the parent's. `matched_expired_count`: matched rows whose entry had
    expired in the parent.
    """

    chunks: tuple[SubtaskChunk, ...] = ()
    row_count: int = 0
    matched_count: int = 0
    changed_count: int = 0
    matched_expired_count: int = 0

    def __add__(self, other: "WrittenRows") -> "WrittenRows":
        return WrittenRows(
            self.chunks + other.chunks,
            self.row_count + other.row_count,
            self.matched_count + other.matched_count,
            self.changed_count + other.changed_count,
            self.matched_expired_count + other.matched_expired_count,
        )


def write_rows(
    target: EditTarget, rows: pa.Table, reader: SnapshotReader, writer: SnapshotWriter
) -> WrittenRows:
    """Check and write rows; they must include all rows of each key group in them.

    StateProcessorError if a row is wrong.
    """
    if not rows.num_rows:
        return WrittenRows()
    rows = as_stored(target.state, rows)
    check_nulls(target.state, rows, reader)
    groups = key_groups_of_rows(target, rows)
    check_hashes(target, rows, np.unique(groups).tolist(), reader)
    rows, groups = _in_order(target, rows, groups)
    check_unique(target, rows)
    check_positions(target, rows)
    check_timers(target, rows)
    compared = _compared(target, rows, np.unique(groups).tolist(), reader)
    chunks = write_chunks(target.state, rows, writer)
    return WrittenRows(tuple(chunks), rows.num_rows, *compared)


def write_regrouped(
    target: EditTarget, rows: pa.Table, writer: SnapshotWriter
) -> list[SubtaskChunk]:
    """Write stored rows in the key groups that follow from their keys, whatever groups they were in.

    PickledKeysError; EditRefusedError if a row may belong to one of two groups.
    """
    groups = key_groups_of_rows(target, rows.drop_columns([KEY_GROUP]))
    ordered, _ = _in_order(target, rows, groups)
    return write_chunks(target.state, ordered, writer)


def as_stored(state: StoredState, rows: pa.Table) -> pa.Table:
    """Return rows with the columns and types of the stored state, `key_group` only if it is given.

    StateSchemaError or EditRefusedError if they do not fit.
    """
    check_schema(state, rows.schema)
    columns: dict[str, pa.Array] = {}
    for field in state.schema:
        if field.name in rows.column_names:
            array = rows.column(field.name).combine_chunks()
            columns[field.name] = converted(array, field.type)
        elif field.name != KEY_GROUP:
            columns[field.name] = pa.nulls(rows.num_rows, field.type)
    stored = pa.table(columns)
    required = [KEY_GROUP, KEY, LIST_POS, *TIMER_COLUMNS, WINDOW_START]
    if state.table is StateTable.KEYED:
        required.append(NAMESPACE)
    for name in required:
        if name in columns and columns[name].null_count:
            raise null_error(state, stored, name, f"has no {name}")
    return stored


def key_groups_of_rows(target: EditTarget, rows: pa.Table) -> KeyGroups:
    """Return each row's key group, as `checked_key_groups` does. EditRefusedError for a value that cannot be a key."""
    state = target.state
    try:
        groups = checked_key_groups(
            rows,
            target.hashing,
            state.max_parallelism,
            state.title,
            allow_pickles=target.allow_pickles,
        )
        if target.other_hashing is None:
            return groups
        others = key_groups_in(rows, target.other_hashing, state.max_parallelism)
    except InvalidKeyError as error:
        raise EditRefusedError(state.title, "among the new ones", str(error)) from error
    unsure = np.flatnonzero(groups != others)
    if unsure.size:
        reason = (
            f"may be in key group {groups[unsure[0]]} or {others[unsure[0]]}: the rows of the parent do not show "
            "whether the type of its keys was declared"
        )
        raise EditRefusedError(state.title, row_at(rows, int(unsure[0])), reason)
    return groups


def owners_of_rows(target: EditTarget, rows: pa.Table) -> KeyGroups:
    """Return the parent's subtask that owns each row, shape (num_rows,); 0 for all if a row has no key.

    The owner of the rows checks them.
    """
    state = target.state
    if KEY in rows.column_names:
        keys = rows.column(KEY).combine_chunks()
        index = rows.column_names.index(KEY)
        rows = rows.set_column(index, KEY, converted(keys, state.schema.field(KEY).type))
    try:
        groups = key_groups_in(rows, target.hashing, state.max_parallelism)
    except InvalidKeyError:
        groups = np.zeros(rows.num_rows, dtype=np.int32)
    return owners_of_groups(state.parallelism, state.max_parallelism)[groups]


def _in_order(target: EditTarget, rows: pa.Table, groups: KeyGroups) -> tuple[pa.Table, KeyGroups]:
    """Return rows ordered by key group, and by position within lists, with their key groups as a column."""
    if LIST_POS in rows.column_names:
        numbers: dict[Hashable, int] = {}
        entries = [
            numbers.setdefault(entry, len(numbers))
            for entry in hashable_rows(rows, entry_columns(target.state))
        ]
        positions = rows.column(LIST_POS).to_numpy()
        order = np.lexsort((positions, np.array(entries), groups))
    else:
        order = np.argsort(groups, kind="stable")
    columns = {
        name: pa.array(groups) if name == KEY_GROUP else rows.column(name)
        for name in target.state.schema.names
    }
    ordered = pa.table(columns).take(pa.array(order))
    return ordered.combine_chunks(), groups[order]


def _compared(
    target: EditTarget, rows: pa.Table, groups: Sequence[int], reader: SnapshotReader
) -> tuple[int, int, int]:
    """Count the rows whose entry the parent has in these key groups, those that differ, and those that had expired."""
    state, identity = target.state, identity_columns(target.state)
    others = [one for one in state.schema.names if one not in identity and one != KEY_GROUP]
    if not identity:
        identity, others = [one for one in state.schema.names if one != KEY_GROUP], []
    old: dict[Hashable, Hashable] = {}
    expired: set[Hashable] = set()
    for chunk in state.chunks:
        for table in chunk_rows(state, chunk, reader, groups):
            keys = hashable_rows(table, identity)
            old.update(zip(keys, hashable_rows(table, others), strict=True))
            is_expired = chunk.expired_rows(table)
            if is_expired is not None:
                expired.update(keys[place] for place in np.flatnonzero(is_expired))
    new = hashable_rows(rows, identity)
    pairs = zip(new, hashable_rows(rows, others), strict=True)
    matches = [value != old[key] for key, value in pairs if key in old]
    return len(matches), sum(matches), sum(key in expired for key in new)


def write_chunks(state: StoredState, rows: pa.Table, writer: SnapshotWriter) -> list[SubtaskChunk]:
    """Write rows, which are ordered by key group, as the parent's subtasks would have."""
    chunks: list[SubtaskChunk] = []
    groups = rows.column(KEY_GROUP).to_numpy()
    for index in range(state.parallelism):
        own = key_group_range(index, state.parallelism, state.max_parallelism)
        begin, end = np.searchsorted(groups, [own.start, own.stop]).tolist()
        files = ChunkFiles(
            state.table,
            state.name,
            state.attributes,
            writer,
            expired_until_ms=state.expired_until_ms,
        )
        for offset in range(begin, end, _PIECE_ROWS):
            piece = rows.slice(offset, min(_PIECE_ROWS, end - offset))
            for table in _as_jobs_write(state, piece):
                files.add(table.combine_chunks())
        chunks += [SubtaskChunk(index, chunk) for chunk in files.finish()]
    return chunks


def _as_jobs_write(state: StoredState, rows: pa.Table) -> list[pa.Table]:
    """Return rows without columns that are null in all rows, as in files of a job."""
    for name in OPTIONAL_COLUMNS:
        if name in rows.column_names and rows.column(name).null_count == rows.num_rows:
            rows = rows.drop_columns([name])
    if VALUE_ROW_KIND in rows.column_names:
        index = rows.column_names.index(VALUE_ROW_KIND)
        kinds = pc.fill_null(rows.column(VALUE_ROW_KIND), pa.scalar(0, pa.int8()))
        rows = rows.set_column(index, VALUE_ROW_KIND, kinds)
    if state.table is not StateTable.TIMERS or NAMESPACE not in rows.column_names:
        return [rows]
    namespaces = rows.column(NAMESPACE)
    is_without = namespaces.is_null()
    parts = [rows.filter(is_without).drop_columns([NAMESPACE]), rows.filter(namespaces.is_valid())]
    return [part for part in parts if part.num_rows]


def without_keys(
    keys: Collection[Hashable], table: pa.Table
) -> tuple[pa.Table, frozenset[Hashable]]:
    """Return the rows of other keys, and the given keys that it has; keys are in the form of `hashable_column`."""
    held = hashable_column(table.column(KEY))
    found = frozenset(key for key in held if key in keys)
    return table.filter(pa.array([key not in found for key in held], pa.bool_())), found
