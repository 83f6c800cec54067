"""RestoredKeyedState: keyed state of a restored checkpoint, until the operator requests it by name.

States are requested late, some only at the first record. States that are never requested go into later snapshots as
they are, so that a job that does not use a state for a while does not lose it. Source: Flink HeapRestoreOperation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.checkpoint.handles import StateChunk, StateTable
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.core.barriers import CheckpointOptions
from headrace.core.types.type_info import TypeInformation
from headrace.state.backend import FrozenState, Snapshotable
from headrace.state.columns import KEY, MAP_KEY, VALUE
from headrace.state.evolution import (
    FieldChanges,
    StateIncompatibleError,
    check_evolution,
    evolve,
    schema_of_text,
)
from headrace.state.keyed_chunks import (
    KIND,
    SCHEMA,
    SCOPE,
    ChunkFiles,
    KeyedRows,
    KeyedStateForm,
    opaque_columns,
    read_tables,
    rows_to_table,
    table_to_rows,
)


@dataclass(frozen=True)
class KeySpace:
    """The keys of one operator on one subtask: their type, and the subtask's own key groups."""

    key_type: TypeInformation
    key_groups: range
    max_parallelism: int


_Part = tuple[dict[str, str], Iterable[pa.Table]]
"""Attributes of a chunk, and its rows."""


class RestoredKeyedState:
    """KEYED chunks by state name. Mailbox thread, except `write_unclaimed`."""

    def __init__(
        self, chunks: Sequence[StateChunk], reader: SnapshotReader, key_groups: range
    ) -> None:
        self._reader = reader
        self._key_groups = key_groups
        self._waiting: dict[str, list[StateChunk]] = {}
        # Set by the writing thread: the files may go as soon as a later checkpoint is complete.
        self._held: dict[str, list[_Part]] = {}
        for chunk in chunks:
            if chunk.table is StateTable.KEYED:
                self._waiting.setdefault(chunk.name, []).append(chunk)

    def claim(
        self, form: KeyedStateForm, changes: FieldChanges | None = None
    ) -> Iterator[KeyedRows]:
        """Yield the rows of a state in the requested form; the caller owns the state from now on.

        `changes`: the declared changes of fields since the rows were stored. StateIncompatibleError if the stored form
        cannot be converted.
        """
        chunks = self._waiting.pop(form.name, [])
        for chunk in chunks:
            check_form(form, chunk.attributes, changes)
        for _, tables in self._parts(form.name, chunks):
            for table in tables:
                yield table_to_rows(form, _evolved(form, table, changes))
        self._held.pop(form.name, None)

    def holds(self, name: str) -> bool:
        """Return whether there is a restored state of that name that was not requested yet."""
        return name in self._waiting

    def unclaimed(self) -> dict[str, list[StateChunk]]:
        """Return the states that were not requested yet, for `write_unclaimed`."""
        return dict(self._waiting)

    def write_unclaimed(
        self, unclaimed: dict[str, list[StateChunk]], writer: SnapshotWriter
    ) -> list[StateChunk]:
        """Write states unchanged; any thread."""
        written: list[StateChunk] = []
        for name, chunks in unclaimed.items():
            parts: list[_Part] = [
                (attributes, list(tables)) for attributes, tables in self._parts(name, chunks)
            ]
            self._held[name] = parts
            for attributes, tables in parts:
                files = ChunkFiles(StateTable.KEYED, name, attributes, writer)
                for table in tables:
                    files.add(table)
                written += files.finish()
        return written

    def _parts(self, name: str, chunks: Sequence[StateChunk]) -> "Iterator[_Part]":
        """Yield the rows chunk by chunk, as former subtasks may have stored a state in different forms."""
        held = self._held.get(name)
        if held is not None:
            yield from held
            return
        for chunk in chunks:
            yield chunk.attributes, read_tables([chunk], self._reader, self._key_groups)


class UnclaimedStates(Snapshotable):
    """Restored keyed state of an operator that no longer has any: it is kept in later snapshots."""

    def __init__(self, restored: RestoredKeyedState) -> None:
        self._restored = restored

    def freeze(self, checkpoint_id: int, options: CheckpointOptions) -> "FrozenUnclaimed":
        return FrozenUnclaimed(self._restored)


class FrozenUnclaimed(FrozenState):
    """Frozen form of the restored states that were never requested."""

    def __init__(self, restored: RestoredKeyedState) -> None:
        self._restored = restored
        self._unclaimed = restored.unclaimed()

    def write(self, writer: SnapshotWriter) -> Sequence[StateChunk]:
        return self._restored.write_unclaimed(self._unclaimed, writer)


def evolved_rows(
    known: KeyedStateForm,
    form: KeyedStateForm,
    rows: KeyedRows,
    groups: Sequence[int],
    changes: FieldChanges | None,
) -> KeyedRows:
    """Return rows of the form `known` in the requested form, after `check_form`."""
    table = rows_to_table(known, rows, np.array(groups, dtype=np.int32))
    return table_to_rows(form, _evolved(form, table, changes))


def _evolved(form: KeyedStateForm, table: pa.Table, changes: FieldChanges | None) -> pa.Table:
    value_type = form.schema().field(VALUE).type
    index = table.schema.get_field_index(VALUE)
    values = table.column(index).combine_chunks()
    if values.type == value_type:
        return table
    return table.set_column(index, VALUE, evolve(values, value_type, changes))


def check_form(
    form: KeyedStateForm, attributes: Mapping[str, str], changes: FieldChanges | None
) -> None:
    """Raise StateIncompatibleError if chunks with `attributes` cannot be read in the requested form."""
    for attribute, wanted, what in ((KIND, form.kind, "kind"), (SCOPE, form.scope, "scope")):
        found = attributes.get(attribute)
        if found != wanted:
            raise StateIncompatibleError(
                f"state '{form.name}' was stored as {found} state but is requested as {wanted} state ({what})",
                "give the new state another name",
            )
    reasons = [
        *_opaque_differences(form, attributes),
        *_schema_differences(form, attributes, changes),
    ]
    if reasons:
        raise StateIncompatibleError(
            f"state '{form.name}' cannot be converted to its new type: {'; '.join(reasons)}",
            "declare renames and defaults with the descriptor's evolve_field, or give the new state another name",
        )


def _opaque_differences(form: KeyedStateForm, attributes: Mapping[str, str]) -> Iterator[str]:
    """Yield the columns that are pickled in one of the two forms and not in the other: both are binary to Arrow."""
    wanted, found = set(opaque_columns(form.attributes())), set(opaque_columns(attributes))
    for column in sorted(wanted ^ found):
        was, now = ("undeclared", "declared") if column in found else ("declared", "undeclared")
        yield f"'{column}' was {was} and is {now} now"


def _schema_differences(
    form: KeyedStateForm, attributes: Mapping[str, str], changes: FieldChanges | None
) -> list[str]:
    text = attributes.get(SCHEMA)
    if text is None:
        return []
    written = schema_of_text(text)
    return check_evolution(written, form.schema(), changes, fixed=frozenset({KEY, MAP_KEY}))
