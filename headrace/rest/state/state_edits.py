"""StateEdits: writes a snapshot of a job with changes of single keys as a new savepoint. The snapshot stays unchanged.

The new savepoint is written to the job's folder of savepoints, or if none is set, next to the edited savepoint.
Everything that was not edited is copied through this process, so that the size of the snapshot is limited.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.options import SAVEPOINT_DIRECTORY
from headrace.checkpoint.storage.checkpoint_storage import load_snapshot
from headrace.checkpoint.storage.file_systems import absolute_uri, child_uri, parent_uri
from headrace.core.clock import Clock
from headrace.core.config import Settings, bytes_text
from headrace.core.ids import JobId
from headrace.core.randomness import system_random
from headrace.core.redaction import HIDDEN
from headrace.rest.handler_errors import ConflictError
from headrace.rest.models.state import StateEdit
from headrace.rest.state.job_snapshots import JobSnapshot
from headrace.state_processor.entry_edits import EntryChange
from headrace.state_processor.errors import StateProcessorError
from headrace.state_processor.savepoint_editor import SavepointEditor

_SIZE_MAX: Final = 1 << 30
"""Maximum bytes of a snapshot that is edited here, as the driver reads and writes its files one by one."""


class StateEdits:
    """Edits of one snapshot, in their order."""

    def __init__(
        self, job: JobId, snapshot: JobSnapshot, settings: Settings, edits: Sequence[StateEdit]
    ) -> None:
        self._snapshot: Final = snapshot
        self._settings: Final = settings
        self._edits: Final = edits
        self.folder: Final = _new_folder(job, snapshot, settings)

    def write(self, reason: str, clock: Clock) -> CompletedCheckpoint:
        """Write the new savepoint and return it; blocks.

        StateProcessorError if it fails; then nothing is left of it.
        """
        parent = load_snapshot(self._snapshot.uri, self._settings)
        size = parent.metadata.size_bytes
        if size > _SIZE_MAX:
            raise StateProcessorError(
                f"snapshot {parent.checkpoint_id} has {bytes_text(size)}, but the driver can edit "
                f"{bytes_text(_SIZE_MAX)} at most: edit it with "
                f"headrace.spark.state_writer.StateWriter.from_({parent.uri!r})"
            )
        editor = SavepointEditor(parent, self._settings, clock=clock)
        for place, edits in groupby(self._edits, _place_of):
            _add(editor, place, list(edits))
        return editor.write(self.folder, reason=reason)


def _new_folder(job: JobId, snapshot: JobSnapshot, settings: Settings) -> str:
    directory = settings.get_option(SAVEPOINT_DIRECTORY)
    if not directory and snapshot.kind == "savepoint":
        directory = parent_uri(absolute_uri(snapshot.uri))
    if not directory or HIDDEN in directory:
        raise ConflictError(
            f"There is no folder for the new savepoint: set {SAVEPOINT_DIRECTORY.key} for the job, or take a "
            "savepoint and edit that."
        )
    name = f"savepoint-{job.hex()[:6]}-{system_random().randbytes(6).hex()}"
    return child_uri(absolute_uri(directory), name)


def _place_of(edit: StateEdit) -> tuple[str, str | None, bool]:
    """Return an edit's operator and state, and whether it concerns all states.

    Consecutive edits of one place are merged.
    """
    is_of_all = edit.action == "delete-key"
    return edit.operator, None if is_of_all else edit.state, is_of_all


def _add(
    editor: SavepointEditor, place: tuple[str, str | None, bool], edits: list[StateEdit]
) -> None:
    operator, state, is_of_all = place
    if is_of_all:
        editor.remove_keys(operator, [edit.key for edit in edits])
        return
    changes = [EntryChange(edit.key, edit.value, edit.action == "delete") for edit in edits]
    editor.change_entries(operator, state, changes)
