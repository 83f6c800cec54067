"""Verification of a snapshot: each file exists as it was written, and its content has the schema of its state.

No row becomes a Python value and nothing is unpickled, so that a snapshot from an untrusted source can be verified. For
RocksDB's own files, whose content only RocksDB can read, length and digest are checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.checkpoint.errors import CheckpointCorruptedError, CheckpointError
from headrace.checkpoint.handles import ChannelPart, StateChunk, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.core.ids import OperatorId
from headrace.state.evolution import schema_of_text
from headrace.state.keyed_chunks import SCHEMA
from headrace.state_processor.stored_state import parquet_footer

_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError)
"""Errors that Arrow raises for content that is not in the expected format."""

_Types = dict[tuple[OperatorId, StateTable, str, str], pa.DataType]
"""Types by operator, table, state and column."""


@dataclass(frozen=True)
class DamagedFile:
    """A damaged file of a snapshot. `place`: operator, subtask and state; `reason`: the damage."""

    place: str
    reason: str


@dataclass(frozen=True)
class Verification:
    """Result of verifying a snapshot's files. `unverified`: places that were not checked."""

    damaged: tuple[DamagedFile, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """True if all files were verified, and are undamaged."""
        return not self.damaged and not self.unverified


def places_of(metadata: CheckpointMetadata) -> list[str]:
    """Return the place of each piece of state that has content, as text. No file is read."""
    return [place for _, place, _ in _placed_chunks(metadata)]


def unsound_files(metadata: CheckpointMetadata) -> Iterator[DamagedFile]:
    """Read every file and yield those that are missing, changed or unreadable."""
    reader = StateReader()
    types: _Types = {}
    for operator_id, place, chunk in _placed_chunks(metadata):
        try:
            if chunk.table is StateTable.CHANNELS:
                _check_frames(chunk, reader)
                continue
            reader.verify(chunk.file)
            if chunk.table is not StateTable.NATIVE:
                _check_rows(chunk, operator_id, types)
        except CheckpointError as error:
            yield DamagedFile(place, str(error))


def _placed_chunks(metadata: CheckpointMetadata) -> Iterator[tuple[OperatorId, str, StateChunk]]:
    """Yield each chunk that has content, with its operator and its place as text.

    Chunks without content consist of attributes only.
    """
    for operator in metadata.operators:
        for index, state in operator.subtasks.items():
            for chunk in state.chunks:
                if chunk.file.digest:
                    named = f"{chunk.table.value} '{chunk.name}'"
                    place = f"{operator.title}, subtask {index}, {named}"
                    yield operator.operator_id, place, chunk


def _check_rows(chunk: StateChunk, owner: OperatorId, types: _Types) -> None:
    """Raise CheckpointCorruptedError if a table's columns differ from its state's, or its number of rows is wrong."""
    try:
        # The digest has shown that the rest is undamaged.
        stored = parquet_footer(chunk.file)
        schema = stored.schema.to_arrow_schema()
        declared = schema_of_text(chunk.attributes[SCHEMA]) if SCHEMA in chunk.attributes else None
    except _UNREADABLE as error:
        raise _corrupted(chunk, f"its schema cannot be read: {error}") from error
    missing = [name for name in (declared.names if declared else ()) if name not in schema.names]
    if missing:
        raise _corrupted(chunk, f"the file has no column {', '.join(map(repr, missing))}")
    for field in schema:
        known = types.setdefault((owner, chunk.table, chunk.name, field.name), field.type)
        if known != field.type:
            what = f"'{field.name}' is {field.type} in this file, but {known} in another file of the state"
            raise _corrupted(chunk, what)
    _check_count(chunk, stored.num_rows)


def _check_frames(chunk: StateChunk, reader: StateReader) -> None:
    """Raise CheckpointCorruptedError or MetadataError if data in flight is not an Arrow stream or names no channel.

    The whole content is in memory, as when it is restored; rows are counted only after its digest was checked.
    """
    content = reader.read(chunk.file)
    ChannelPart.of(chunk)
    try:
        with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
            count = sum(batch.num_rows for batch in stream)
    except _UNREADABLE as error:
        raise _corrupted(chunk, f"it is not a stream of batches: {error}") from error
    _check_count(chunk, count)


def _check_count(chunk: StateChunk, found: int) -> None:
    if found != chunk.row_count:
        raise _corrupted(
            chunk, f"the file has {found} rows, but {chunk.row_count} according to the metadata"
        )


def _corrupted(chunk: StateChunk, what: str) -> CheckpointCorruptedError:
    return CheckpointCorruptedError(chunk.file.uri, what)
