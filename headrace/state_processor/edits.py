"""Edits of a snapshot, which turn metadata into new metadata: replacing, removing and renaming states, deleting keys.

`changing_max_parallelism` changes the number of key groups of an operator. An edit writes only through
the `EditContext`; the parent is never changed.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot, StateChange
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.errors import short_repr
from headrace.core.key_groups import MAX_PARALLELISM_LIMIT
from headrace.graph.operator_ids import uid_hash_of
from headrace.state.columns import KEY
from headrace.state_processor.edited_rows import (
    EditTarget,
    SubtaskChunk,
    WrittenRows,
    without_keys,
    write_chunks,
    write_regrouped,
    write_rows,
)
from headrace.state_processor.errors import StateProcessorError, UnknownStateError
from headrace.state_processor.key_hashing import KeyHashing, hashings_of, key_columns_behind
from headrace.state_processor.selection import operator_in
from headrace.state_processor.stored_state import (
    BY_KEY_GROUP,
    StoredState,
    chunk_rows,
    chunks_of,
    states_of,
    stored_state,
)
from headrace.state_processor.table_query import key_groups_of_keys, stored_keys

_NAMED_KEYS = 5


@dataclass(frozen=True)
class EditContext:
    """Reader and writer of an edit. `folder`: the new savepoint's folder, for writers in other processes."""

    folder: str
    reader: SnapshotReader
    writer: SnapshotWriter
    allow_pickles: bool = False


Edited = tuple[CheckpointMetadata, list[StateChange]]
Edit = Callable[[CheckpointMetadata, EditContext], Edited]
RowsSource = Callable[[EditTarget, EditContext], WrittenRows]
"""Function that checks and writes the rows that replace those of a state; see `write_rows`."""


def rows_of_table(rows: pa.Table) -> RowsSource:
    """Return a source of rows in memory."""

    def write(target: EditTarget, context: EditContext) -> WrittenRows:
        return write_rows(target, rows, context.reader, context.writer)

    return write


def replacing(operator: str, name: str | None, table: StateTable, source: RowsSource) -> Edit:
    """Return an edit that replaces all rows of a state."""

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        _check_editable(table)
        state = stored_state(metadata, table, operator, name)
        written = source(target_of(state, context), context)
        expired_count = sum(one.expired_count for one in state.chunks)
        change = StateChange(
            state.operator,
            state.name,
            f"{table.value} replaced",
            state.row_count,
            written.row_count,
            added_count=written.row_count - written.matched_count,
            changed_count=written.changed_count,
            removed_count=state.row_count - written.matched_count,
            removed_expired_count=expired_count - written.matched_expired_count,
        )
        owner = operator_in(metadata, operator)
        after = with_chunks_instead(owner, state, written.chunks)
        return with_operator(metadata, owner, after), [change]

    return edit


def removing(operator: str, name: str | None, table: StateTable | None) -> Edit:
    """Return an edit that removes a state; without a name all of the operator.

    Without `table` from all editable tables.
    """

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        if table is not None:
            _check_editable(table)
        tables = sorted(BY_KEY_GROUP if table is None else {table}, key=lambda one: one.value)
        chunks = [one.chunk for each in tables for one in chunks_of(owner, each)]
        removed: Counter[tuple[StateTable, str]] = Counter()
        for one in chunks:
            if name is None or one.name == name:
                removed[one.table, one.name] += one.row_count
        if not removed:
            known = sorted({one.name for one in chunks})
            raise UnknownStateError(f"operator {owner.title} has no state '{name}'", known)
        kept = _without(owner, lambda one: (one.table, one.name) in removed)
        changes = [
            StateChange(owner.title, state, f"{one.value} removed", count, 0, removed_count=count)
            for (one, state), count in removed.items()
        ]
        return with_operator(metadata, owner, kept), changes

    return edit


def renaming(operator: str, name: str, new_name: str) -> Edit:
    """Return an edit that renames a keyed state. Its files stay as they are."""

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        names = sorted({one.chunk.name for one in chunks_of(owner, StateTable.KEYED)})
        if name not in names:
            raise UnknownStateError(f"operator {owner.title} has no keyed state '{name}'", names)
        if new_name in names:
            raise StateProcessorError(
                f"operator {owner.title} has a keyed state '{new_name}' already: remove it first, or use another name"
            )

        def renamed(chunk: StateChunk) -> StateChunk:
            is_meant = chunk.table is StateTable.KEYED and chunk.name == name
            return msgspec.structs.replace(chunk, name=new_name) if is_meant else chunk

        count = sum(
            one.chunk.row_count
            for one in chunks_of(owner, StateTable.KEYED)
            if one.chunk.name == name
        )
        change = StateChange(owner.title, new_name, f"renamed from '{name}'", count, count)
        return with_operator(metadata, owner, with_chunks_changed(owner, renamed)), [change]

    return edit


def moving_operator(operator: str, uid: str) -> Edit:
    """Return an edit that moves an operator's state to the operator with another uid."""

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        new_id = uid_hash_of(uid)
        if any(one.operator_id == new_id for one in metadata.operators):
            raise StateProcessorError(
                f"the uid '{uid}' belongs to an operator of the snapshot already: use another one"
            )
        has_output = any(state.committables for state in owner.subtasks.values()) or any(
            one.operator_id == owner.operator_id for one in metadata.pending_commits
        )
        if has_output:
            raise StateProcessorError(
                f"operator {owner.title} has prepared output, which its id identifies: let the job commit it first, "
                f"by a stop with a savepoint"
            )
        moved = msgspec.structs.replace(owner, operator_id=new_id, uid=uid)
        count = sum(chunk.row_count for state in owner.subtasks.values() for chunk in state.chunks)
        change = StateChange(moved.title, "", f"uid was {owner.uid!r}", count, count)
        return with_operator(metadata, owner, moved), [change]

    return edit


def deleting_keys(operator: str, keys: Sequence[Any]) -> Edit:
    """Return an edit that deletes some keys of an operator: keyed state, timers and columnar window state."""

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        changes: list[StateChange] = []
        missing = set(range(len(keys)))
        tables = (StateTable.KEYED, StateTable.TIMERS, StateTable.COLUMNAR)
        for state in states_of(metadata, owner, tables):
            owner, removed_count, found = _without_keys(owner, state, keys, context)
            missing -= found
            changes.append(
                StateChange(
                    state.operator,
                    state.name,
                    f"{state.table.value} without {len(keys)} keys",
                    state.row_count,
                    state.row_count - removed_count,
                    removed_count=removed_count,
                )
            )
        if not changes:
            raise UnknownStateError(f"operator {owner.title} has no keyed state", [])
        if missing:
            named = ", ".join(short_repr(keys[index]) for index in sorted(missing)[:_NAMED_KEYS])
            raise StateProcessorError(
                f"operator {owner.title} has no state for {len(missing)} of the {len(keys)} keys to delete, such as "
                f"{named}: give keys as the column 'key' shows them"
            )
        return with_operator(metadata, owner, owner), changes

    return edit


def _check_editable(table: StateTable) -> None:
    if table not in BY_KEY_GROUP:
        allowed = ", ".join(sorted(one.value for one in BY_KEY_GROUP))
        raise StateProcessorError(
            f"rows of {table.value} are positions and output that a job relies on, and an edit could break "
            f"exactly-once: only {allowed} can be edited"
        )


def target_of(state: StoredState, context: EditContext) -> EditTarget:
    """Return the state with the hashing of its keys. StateProcessorError if the hashing is unknown."""
    hashings = hashings_of(
        stored_rows(state, context),
        state.schema,
        is_opaque=KEY in state.opaque,
        max_parallelism=state.max_parallelism,
    )
    if not hashings:
        raise StateProcessorError(
            f"{state.title} cannot be replaced, as its key groups do not follow from its columns: remove it, or "
            "delete keys"
        )
    hashing, *others = hashings
    is_stored = hashing is KeyHashing.HASHES
    return EditTarget(
        state,
        hashing,
        context.allow_pickles,
        others[0] if others else None,
        key_columns_behind(stored_rows(state, context)) if is_stored else (),
    )


def stored_rows(state: StoredState, context: EditContext) -> Iterator[pa.Table]:
    """Yield all rows of a state in pieces."""
    for chunk in state.chunks:
        yield from chunk_rows(state, chunk, context.reader)


def _without_keys(
    owner: OperatorSnapshot, state: StoredState, keys: Sequence[Any], context: EditContext
) -> tuple[OperatorSnapshot, int, set[int]]:
    """Return the operator without rows of the keys, the number of these rows, and the keys that had rows."""
    stored = stored_keys(state, keys)
    wanted = frozenset(stored)
    found: set[Hashable] = set()
    groups = key_groups_of_keys(state, keys)
    written: list[SubtaskChunk] = []
    replaced: list[StateChunk] = []
    removed_count = 0
    for one in state.chunks:
        if not one.may_hold(groups):
            continue
        tables = list(chunk_rows(state, one, context.reader))
        kept: list[pa.Table] = []
        for table in tables:
            others, had = without_keys(wanted, table)
            kept.append(others)
            found |= had
        count = sum(table.num_rows for table in tables) - sum(table.num_rows for table in kept)
        if count:
            removed_count += count
            replaced.append(one.chunk)
            written += write_chunks(state, pa.concat_tables(kept), context.writer)
    owner = _without(owner, lambda chunk: any(chunk is one for one in replaced))
    indices = {index for index, key in enumerate(stored) if key in found}
    return with_chunks_added(owner, written), removed_count, indices


def _without(
    owner: OperatorSnapshot, is_left_away: Callable[[StateChunk], bool]
) -> OperatorSnapshot:
    subtasks = {
        index: OperatorSubtaskState(
            tuple(one for one in state.chunks if not is_left_away(one)), state.committables
        )
        for index, state in owner.subtasks.items()
    }
    return msgspec.structs.replace(owner, subtasks=subtasks)


def with_chunks_changed(
    owner: OperatorSnapshot, change: Callable[[StateChunk], StateChunk]
) -> OperatorSnapshot:
    """Return the operator with `change` applied to each of its chunks."""
    subtasks = {
        index: OperatorSubtaskState(tuple(map(change, state.chunks)), state.committables)
        for index, state in owner.subtasks.items()
    }
    return msgspec.structs.replace(owner, subtasks=subtasks)


def with_chunks_added(owner: OperatorSnapshot, chunks: Sequence[SubtaskChunk]) -> OperatorSnapshot:
    """Return the operator with additional chunks."""
    subtasks = dict(owner.subtasks)
    for one in chunks:
        state = subtasks.get(one.subtask_index, OperatorSubtaskState())
        subtasks[one.subtask_index] = msgspec.structs.replace(
            state, chunks=(*state.chunks, one.chunk)
        )
    return msgspec.structs.replace(owner, subtasks=subtasks)


def with_chunks_instead(
    owner: OperatorSnapshot, state: StoredState, chunks: Sequence[SubtaskChunk]
) -> OperatorSnapshot:
    """Return the operator with `chunks` instead of those of a state."""
    kept = _without(owner, lambda one: one.table is state.table and one.name == state.name)
    return with_chunks_added(kept, chunks)


def with_operator(
    metadata: CheckpointMetadata, before: OperatorSnapshot, after: OperatorSnapshot
) -> CheckpointMetadata:
    """Return the metadata with one operator replaced."""
    operators = tuple(
        after if one.operator_id == before.operator_id else one for one in metadata.operators
    )
    return msgspec.structs.replace(metadata, operators=operators)


def changing_max_parallelism(operator: str, max_parallelism: int) -> Edit:
    """Return an edit that assigns all rows of an operator to `max_parallelism` key groups by their keys.

    All rows of one state are in memory at a time.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise StateProcessorError(
            f"{max_parallelism} is not a valid max parallelism: it must be from 1 to {MAX_PARALLELISM_LIMIT}"
        )

    def edit(metadata: CheckpointMetadata, context: EditContext) -> Edited:
        owner = operator_in(metadata, operator)
        before = owner.max_parallelism
        states = states_of(metadata, owner, sorted(BY_KEY_GROUP, key=lambda one: one.value))
        if not states:
            raise UnknownStateError(f"operator {owner.title} has no keyed state", [])
        changes: list[StateChange] = []
        for state in states:
            target = target_of(state, context)
            grouped = dataclasses.replace(state, max_parallelism=max_parallelism)
            rows = pa.concat_tables(stored_rows(state, context))
            chunks = write_regrouped(
                dataclasses.replace(target, state=grouped), rows, context.writer
            )
            owner = with_chunks_instead(owner, state, chunks)
            action = f"{state.table.value} in {max_parallelism} key groups instead of {before}"
            count = state.row_count
            changes.append(StateChange(state.operator, state.name, action, count, count))
        owner = msgspec.structs.replace(owner, max_parallelism=max_parallelism)
        return with_operator(metadata, owner, owner), changes

    return edit
