"""ChangeFeed: the changes of a state between two checkpoints of a job, as inserted, updated or deleted rows.

Files that both checkpoints have, by name or by content, are not read: their rows are the same in both. The others are
compared entry by entry, one range of key groups after another. Applied to the rows of the first checkpoint, the changes
yield those of the second. Source: Spark's state data source, `readChangeFeed`.
"""

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.key_groups import key_group_range
from headrace.state.columns import KEY_GROUP, VALUE_ROW_KIND
from headrace.state_processor.edited_rows import identity_columns
from headrace.state_processor.errors import StateProcessorError, StateSchemaError, UnknownStateError
from headrace.state_processor.key_hashing import hashable_rows
from headrace.state_processor.stored_state import (
    BY_KEY_GROUP,
    StoredChunk,
    StoredState,
    chunk_rows,
    converted,
    nullable_schema,
    stored_state,
)
from headrace.state_processor.table_query import STATE_TABLES

CHANGE_TYPE: Final = "change_type"
INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"


@dataclass(frozen=True)
class FeedPart:
    """Key groups that one reader compares, with the files of both checkpoints that have any of them; None: all."""

    before: StoredState | None
    after: StoredState | None
    key_groups: range | None


@dataclass(frozen=True)
class ChangeFeed:
    """A feed that can be read. `schema`: `change_type`, then the columns of the state, which may all be null."""

    schema: pa.Schema
    parts: tuple[FeedPart, ...]

    @classmethod
    def open(
        cls,
        start: CompletedCheckpoint,
        end: CompletedCheckpoint,
        table: str = "keyed",
        operator: str | None = None,
        state: str | None = None,
    ) -> "ChangeFeed":
        """Return the changes of a state from one checkpoint to a later one.

        StateProcessorError if they cannot be computed, as for rows without keys.
        """
        if start.checkpoint_id > end.checkpoint_id:
            raise StateProcessorError(
                f"changes lead from an earlier checkpoint to a later one, but {start.checkpoint_id} is later than "
                f"{end.checkpoint_id}: swap them"
            )
        known = {name for name, one in STATE_TABLES.items() if one in BY_KEY_GROUP}
        if table not in known:
            raise UnknownStateError(
                f"changes of the table '{table}' cannot be computed", sorted(known)
            )
        before = _found(start, table, operator, state)
        after = _found(end, table, operator, state)
        either = after or before
        if either is None:
            stored_state(end.metadata, STATE_TABLES[table], operator, state)  # says what there is
            raise AssertionError("a state that is in neither checkpoint is refused")
        schema = _schema_of_both(before, after)
        if not identity_columns(either):
            raise StateProcessorError(
                f"{either.title} has rows without a key that distinguishes them"
            )
        before, after = _without_common(before, after)
        fields = [pa.field(CHANGE_TYPE, pa.string()), *nullable_schema(schema)]
        parts = tuple(_parts(before and _under(before, schema), after and _under(after, schema)))
        return cls(pa.schema(fields), parts)

    def without_parts(self) -> "ChangeFeed":
        """Return a copy without parts, for readers of a single part."""
        return dataclasses.replace(self, parts=())

    def read(self, part: FeedPart, reader: SnapshotReader) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a part. CheckpointCorruptedError, CheckpointStorageError."""
        state = part.after or part.before
        assert state is not None
        before = _rows(part.before, state.schema, part.key_groups, reader)
        after = _rows(part.after, state.schema, part.key_groups, reader)
        identity = identity_columns(state)
        # The key group follows from the key, and differs only if the number of key groups differs.
        others = [one for one in state.schema.names if one not in (*identity, KEY_GROUP)]
        old_keys = hashable_rows(before, identity)
        old = dict(zip(old_keys, hashable_rows(before, others), strict=True))
        kinds: list[str] = []
        places: list[int] = []
        keys = hashable_rows(after, identity)
        for place, (key, value) in enumerate(zip(keys, hashable_rows(after, others), strict=True)):
            if key not in old:
                kinds.append(INSERT)
                places.append(place)
            elif old[key] != value:
                kinds.append(UPDATE)
                places.append(place)
        yield from self._batch(kinds, after, places)
        there: set[Hashable] = set(keys)
        gone = [place for place, key in enumerate(old_keys) if key not in there]
        yield from self._batch([DELETE] * len(gone), before, gone)

    def read_all(self, reader: SnapshotReader) -> pa.Table:
        """Return all changes."""
        batches = [batch for part in self.parts for batch in self.read(part, reader)]
        return pa.Table.from_batches(batches, schema=self.schema)

    def _batch(
        self, kinds: Sequence[str], rows: pa.Table, places: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        if not places:
            return
        changed = rows.take(pa.array(places, pa.int64()))
        columns: list[pa.Array] = [pa.array(kinds, pa.string())]
        for field in list(self.schema)[1:]:
            columns.append(converted(changed.column(field.name).combine_chunks(), field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _found(
    snapshot: CompletedCheckpoint, table: str, operator: str | None, state: str | None
) -> StoredState | None:
    """Return the state; None if the checkpoint has none with this name, as before its first row.

    StateProcessorError.
    """
    try:
        return stored_state(snapshot.metadata, STATE_TABLES[table], operator, state)
    except UnknownStateError:
        if operator is None or state is None:
            raise
        return None


def _schema_of_both(before: StoredState | None, after: StoredState | None) -> pa.Schema:
    """Return the columns of both states. StateSchemaError if a column has two types."""
    if before is None or after is None:
        either = after or before
        assert either is not None
        return either.schema
    fields = {one.name: one for one in after.schema}
    for one in before.schema:
        known = fields.setdefault(one.name, one)
        if known.type != one.type:
            what = f"'{one.name}' is {one.type} in the earlier checkpoint and {known.type} in the later one"
            raise StateSchemaError(after.title, [what])
    return pa.schema(list(fields.values()))


def _under(state: StoredState, schema: pa.Schema) -> StoredState:
    return dataclasses.replace(state, schema=schema)


def _without_common(
    before: StoredState | None, after: StoredState | None
) -> tuple[StoredState | None, StoredState | None]:
    """Return both states without their common files, which contain equal entries, as an entry is in only one file."""
    if before is None or after is None or before.max_parallelism != after.max_parallelism:
        return before, after
    left = [_content_of(one) for one in before.chunks]
    right = [_content_of(one) for one in after.chunks]
    common = set(left) & set(right)
    return (
        dataclasses.replace(
            before, chunks=tuple(one for one in before.chunks if _content_of(one) not in common)
        ),
        dataclasses.replace(
            after, chunks=tuple(one for one in after.chunks if _content_of(one) not in common)
        ),
    )


def _content_of(one: StoredChunk) -> tuple[bytes, int]:
    return one.chunk.file.digest, one.chunk.file.size_bytes


def _parts(before: StoredState | None, after: StoredState | None) -> Iterator[FeedPart]:
    present = [one for one in (before, after) if one is not None and one.chunks]
    if not present:
        return
    if len({one.max_parallelism for one in present}) > 1:
        yield FeedPart(before, after, None)  # a key is in another group there
        return
    first = max(present, key=lambda one: one.parallelism)
    for index in range(first.parallelism):  # with fewer groups than subtasks, some have none
        groups = key_group_range(index, first.parallelism, first.max_parallelism)
        part = FeedPart(_with_groups(before, groups), _with_groups(after, groups), groups)
        if groups and any(one is not None and one.chunks for one in (part.before, part.after)):
            yield part


def _with_groups(state: StoredState | None, groups: range) -> StoredState | None:
    if state is None:
        return None
    chunks = tuple(one for one in state.chunks if one.may_hold(groups))
    return dataclasses.replace(state, chunks=chunks)


def _rows(
    state: StoredState | None, schema: pa.Schema, groups: range | None, reader: SnapshotReader
) -> pa.Table:
    tables: list[pa.Table] = []
    if state is not None:
        tables = [table for one in state.chunks for table in chunk_rows(state, one, reader, groups)]
    rows = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
    if VALUE_ROW_KIND not in schema.names:
        return rows
    # Files have the column only if some row is not a plain insert.
    kinds = pc.fill_null(rows.column(VALUE_ROW_KIND), pa.scalar(0, pa.int8()))
    return rows.set_column(schema.get_field_index(VALUE_ROW_KIND), VALUE_ROW_KIND, kinds)
