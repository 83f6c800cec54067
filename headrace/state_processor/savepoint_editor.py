"""SavepointEditor: creates a new savepoint from a snapshot and edits. The snapshot itself does not change.

The new savepoint has a folder of its own and refers to no other: files that were not edited are copied. It has the id
and lineage of its parent, which identify prepared output in it, and records its author, parent and reason. Source:
Flink SavepointWriter.fromExistingSavepoint.
"""

import contextlib
import getpass
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.handles import NO_FILE, StateChunk, StateTable
from headrace.checkpoint.metadata import (
    CheckpointMetadata,
    CompletedCheckpoint,
    OperatorSnapshot,
    SnapshotEdit,
    StateChange,
)
from headrace.checkpoint.options import SHARED_FILES
from headrace.checkpoint.storage.checkpoint_storage import publish_metadata
from headrace.checkpoint.storage.file_systems import (
    absolute_uri,
    files_below,
    is_uri,
    make_folder,
    remove_file,
    remove_folder,
)
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.checkpoint.storage.snapshot_files import SnapshotReader, SnapshotWriter
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.clock import Clock, SystemClock
from headrace.core.config import Settings
from headrace.state_processor.edits import (
    Edit,
    EditContext,
    RowsSource,
    changing_max_parallelism,
    deleting_keys,
    moving_operator,
    removing,
    renaming,
    replacing,
    rows_of_table,
    with_chunks_changed,
)
from headrace.state_processor.entry_edits import EntryChange, EntryChanges
from headrace.state_processor.errors import (
    InFlightRecordsError,
    NativeStateError,
    StateProcessorError,
)
from headrace.state_processor.selection import PinnedReader, held, open_snapshot
from headrace.state_processor.stored_state import chunks_of, has_native_state
from headrace.state_processor.window_edits import check_windows, deriving_timers

_FILE_PREFIX = "edited"


class SavepointEditor:
    """Collects edits, which `write` applies in order. StateProcessorError, MetadataError.

    `allow_pickles`: keys of undeclared types may be loaded, which runs code of the snapshot's writer.
    """

    def __init__(
        self,
        parent: CompletedCheckpoint,
        settings: Settings,
        *,
        allow_pickles: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._parent = parent
        self._settings = settings
        self._allow_pickles = allow_pickles
        self._clock = SystemClock() if clock is None else clock
        self._edits: list[Edit] = []

    @classmethod
    def open(
        cls,
        path: str,
        settings: Settings,
        checkpoint: str = "latest",
        *,
        allow_pickles: bool = False,
    ) -> "SavepointEditor":
        """Open the snapshot at a path, or a checkpoint of the job there."""
        parent = open_snapshot(path, settings, checkpoint)
        return cls(parent, settings, allow_pickles=allow_pickles)

    def replace(
        self,
        operator: str,
        state: str | None,
        rows: pa.Table,
        table: StateTable = StateTable.KEYED,
    ) -> "SavepointEditor":
        """Replace all rows of a state by `rows`. Their columns are those of a read; `key_group` may be left out.

        Rows past their time to live are lost unless `rows` were read with them (`TableQuery.includes_expired`).
        """
        return self.replace_from(operator, state, rows_of_table(rows), table)

    def replace_from(
        self, operator: str, state: str | None, source: RowsSource, table: StateTable
    ) -> "SavepointEditor":
        """Replace all rows of a state by those of a source."""
        return self._also(replacing(operator, state, table, source))

    def remove(
        self, operator: str, state: str | None = None, table: StateTable | None = None
    ) -> "SavepointEditor":
        """Remove a state of an operator; without a name all its keyed state and timers."""
        return self._also(removing(operator, state, table))

    def remove_keys(self, operator: str, keys: Sequence[Any]) -> "SavepointEditor":
        """Delete everything that an operator keeps for some keys: state, open windows and timers."""
        return self._also(deleting_keys(operator, keys))

    def change_entries(
        self, operator: str, state: str | None, changes: Sequence[EntryChange]
    ) -> "SavepointEditor":
        """Set or delete single entries of a keyed state; all others stay. Keys and values are JSON values."""
        return self.replace_from(operator, state, EntryChanges(tuple(changes)), StateTable.KEYED)

    def rename(self, operator: str, state: str, new_name: str) -> "SavepointEditor":
        """Rename a keyed state."""
        return self._also(renaming(operator, state, new_name))

    def rename_operator(self, operator: str, uid: str) -> "SavepointEditor":
        """Move an operator's state to the operator with another uid."""
        return self._also(moving_operator(operator, uid))

    def with_max_parallelism(self, operator: str, max_parallelism: int) -> "SavepointEditor":
        """Change the number of key groups of an operator's keyed state. StateProcessorError for an invalid number."""
        return self._also(changing_max_parallelism(operator, max_parallelism))

    def derive_window_timers(
        self, operator: str, *, allowed_lateness_ms: int = 0, is_by_clock: bool = False
    ) -> "SavepointEditor":
        """Add the timers that a job sets for open time windows to windows without a timer at their end or later.

        `allowed_lateness_ms`: the operator's. `is_by_clock`: its windows are of processing time.
        """
        return self._also(deriving_timers(operator, allowed_lateness_ms, is_by_clock=is_by_clock))

    def write(self, folder: str, *, reason: str, author: str = "") -> CompletedCheckpoint:
        """Write the new savepoint and return it. `author`: by default the user of this process.

        StateProcessorError if an edit is refused; then nothing is published, and the folder is removed.
        CheckpointStorageError.
        """
        _check_parent(self._parent)
        uri = absolute_uri(folder)
        if "?" in uri and not is_uri(uri):
            # In metadata, the part after this character would be read as options of a file system.
            raise StateProcessorError(f"{uri} has a '?' in its name: use another folder")
        author = author or _user_name()
        if files_below(uri):
            raise StateProcessorError(
                f"{uri} is not empty: an edit creates a new savepoint, use a new folder"
            )
        make_folder(uri, is_shared=self._settings.get_option(SHARED_FILES))
        try:
            with held(self._parent.uri, clock=self._clock):
                metadata, changes = self._edited(uri)
            edit = SnapshotEdit(
                parent_uri=self._parent.uri,
                parent_checkpoint_id=self._parent.checkpoint_id,
                timestamp_ms=self._clock.now_ms(),
                author=author,
                reason=reason,
                changes=tuple(changes),
            )
            metadata = msgspec.structs.replace(metadata, edit=edit)
            _sweep(uri, metadata)
            return publish_metadata(metadata, uri, metadata_key(self._settings))
        except Exception:
            with contextlib.suppress(CheckpointStorageError):
                remove_folder(uri)
            raise

    def _also(self, edit: Edit) -> "SavepointEditor":
        self._edits.append(edit)
        return self

    def _edited(self, folder: str) -> tuple[CheckpointMetadata, list[StateChange]]:
        writer = edit_storage(folder, self._settings)
        context = EditContext(folder, PinnedReader(self._parent.uri), writer, self._allow_pickles)
        metadata, changes = self._parent.metadata, list[StateChange]()
        for edit in self._edits:
            metadata, made = edit(metadata, context)
            changes += made
        check_windows(self._parent.metadata, metadata, context.reader)
        operators = tuple(
            _standing_alone(one, folder, context.reader, writer) for one in metadata.operators
        )
        # Tables contain rows, which any backend restores, whatever the parent's format.
        kind = metadata.kind.canonical if metadata.kind.is_savepoint else SnapshotKind.SAVEPOINT
        return msgspec.structs.replace(metadata, operators=operators, kind=kind), changes


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # Containers run under user ids without a name.
        return f"uid {os.getuid()}"


def edit_storage(folder: str, settings: Settings, part: int = 0) -> SubtaskStorage:
    """Return the writer of an edited savepoint's files; `part` distinguishes the files of several writers."""
    options = CheckpointOptions(kind=SnapshotKind.SAVEPOINT, exclusive_uri=folder)
    return SubtaskStorage(options, f"{_FILE_PREFIX}-{part}", settings)


def _sweep(folder: str, metadata: CheckpointMetadata) -> None:
    """Delete files that a later edit dropped, or that a repeated task wrote a second time."""
    kept = {file.uri for file in metadata.files()}
    for entry in files_below(folder):
        if entry.uri not in kept:
            remove_file(entry.uri)


def _check_parent(parent: CompletedCheckpoint) -> None:
    for operator in parent.metadata.operators:
        if has_native_state(operator):
            raise NativeStateError(operator.title)
        if chunks_of(operator, StateTable.CHANNELS):
            raise InFlightRecordsError(parent.uri)


def _standing_alone(
    operator: OperatorSnapshot, folder: str, reader: SnapshotReader, writer: SnapshotWriter
) -> OperatorSnapshot:
    """Return the operator with all its files copied to the new folder."""

    def moved(chunk: StateChunk) -> StateChunk:
        file = chunk.file
        if file == NO_FILE or not file.uri or file.uri.startswith(f"{folder}/"):
            return chunk
        copy = writer.write(f"{chunk.table.value}-{chunk.name}", reader.read(file))
        return msgspec.structs.replace(chunk, file=copy)

    return with_chunks_changed(operator, moved)
