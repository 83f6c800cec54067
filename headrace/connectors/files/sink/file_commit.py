"""FileCommitter: renames prepared files to their final names, in the driver, once for each checkpoint.

A hidden file in a sink's folder notes the highest checkpoint id committed in a scope, so that committed files may be
removed later. Each file appears whole, one after the other; after a crash in between, the next call publishes the rest.
Source: Flink FileCommitter, CompactorOperator.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from pyarrow import fs

from headrace.checkpoint.storage.file_systems import folder_entries
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.connectors.files.paths import file_system_of, persist_file, persist_names, place_below
from headrace.connectors.files.sink.committables import (
    Compaction,
    FileCommittable,
    FileSinkPayload,
    InputEnded,
    PendingFile,
    decode_committable,
    decode_file_payload,
)
from headrace.connectors.files.sink.compaction import Merger, WaitingFile, plan_compaction
from headrace.connectors.files.sink.note_file import KeySource, NoteFile, digest_of_scope
from headrace.connectors.files.sink.staging import (
    HIDDEN_PREFIX,
    IN_PROGRESS,
    PENDING,
    StagingFolder,
    delete_file,
    delete_files,
    exists,
    remove_if_spent,
    staging_folders,
)
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.process.failpoints import Failpoint, reach
from headrace.functions.sink import FINAL_CHECKPOINT, CommitterContext, scope_of
from headrace.graph.pipeline_options import runs_in_batch


class FileCommitError(HeadraceError):
    """Raised if prepared files are missing or were changed by somebody else, so that the commit cannot continue."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class CommitNote(msgspec.Struct, frozen=True):
    """Note of the last commit into a sink's folder in one scope.

    `garbage`: merged files, to be deleted once this note is written. `ended_subtasks`: those that finished writing.
    """

    scope: str
    last_id: int = 0
    waiting: tuple[WaitingFile, ...] = ()
    garbage: tuple[str, ...] = ()
    ended_subtasks: tuple[int, ...] = ()


class FileCommitter:
    """Commits files for one file sink. Implements Committer."""

    def __init__(
        self, payload: FileSinkPayload, key: KeySource, *, commits_once: bool = False
    ) -> None:
        """`commits_once`: there is one commit, at the job's end, and subtasks without rows may never have run."""
        self._commits_once: Final = commits_once
        self._payload: Final = payload
        self._key: Final = key
        self._file_system, self._base_path = file_system_of(payload.base_path)
        self._swept: set[StagingFolder] = set()

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        """Commit a checkpoint's files. FileCommitError if a file is neither in its staging folder nor at its target."""
        scope = scope_of(key)
        notes = self._note_file(scope)
        note = notes.read() or CommitNote(scope)
        self._delete_garbage(note)
        decoded = [decode_committable(content) for content in committables]
        files = [one for one in decoded if isinstance(one, PendingFile)]
        if checkpoint_id <= note.last_id:
            self._check_committed(note, files, checkpoint_id)
        elif decoded or note.waiting:
            note = self._make_visible(notes, note, checkpoint_id, decoded)
        self._sweep(files, note)

    def last_committed(self, scope: str) -> int | None:
        note = self._note_file(scope).read()
        return None if note is None else note.last_id

    def delete_leftovers(self, scope: str, owner: str) -> None:
        """Delete the files that a sink's subtasks staged, and merged files without a final name."""
        for folder in staging_folders(self._file_system, self._base_path):
            if folder.owner == owner:
                place = self._place(folder.name)
                delete_files(self._file_system, place, (PENDING, IN_PROGRESS), frozenset())
                remove_if_spent(self._file_system, place)
        merging = f"{HIDDEN_PREFIX}merging-{self._compacted_prefix(scope)}"
        for info in folder_entries(self._file_system, self._base_path):
            if info.base_name.startswith(merging) and info.type is fs.FileType.File:
                delete_file(self._file_system, info.path)

    def close(self) -> None:
        pass

    def _compacted_prefix(self, scope: str) -> str:
        return f"{self._payload.part_prefix}-compacted-{digest_of_scope(scope)}-"

    def _make_visible(
        self,
        notes: NoteFile[CommitNote],
        note: CommitNote,
        checkpoint_id: int,
        committables: Sequence[FileCommittable],
    ) -> CommitNote:
        reach(Failpoint.COMMIT_BEGUN)
        files = [one for one in committables if isinstance(one, PendingFile)]
        compaction = self._payload.compaction
        # The end of input has no number of its own: a note of it would stand above all ids that may follow.
        last_id = note.last_id if checkpoint_id == FINAL_CHECKPOINT else checkpoint_id
        if compaction is None:
            for file in files:
                name_file(self._file_system, self._base_path, file)
                reach(Failpoint.COMMIT_HALF)
            # The note must not survive a crash that loses the named files.
            finals = [self._place(file.final_path) for file in files]
            persist_names(self._file_system, self._base_path, finals)
            new = CommitNote(note.scope, last_id)
        else:
            new = self._compact(note, checkpoint_id, last_id, compaction, committables)
        reach(Failpoint.COMMIT_DONE)
        notes.write(new)
        self._delete_garbage(new)
        for folder in {file.folder for file in files}:
            remove_if_spent(self._file_system, self._place(folder))
        return new

    def _compact(
        self,
        note: CommitNote,
        checkpoint_id: int,
        last_id: int,
        compaction: Compaction,
        committables: Sequence[FileCommittable],
    ) -> CommitNote:
        known = {one.file for one in note.waiting}
        new = [one for one in committables if isinstance(one, PendingFile) and one not in known]
        ends = [one for one in committables if isinstance(one, InputEnded)]
        ended = {*note.ended_subtasks, *(one.subtask_index for one in ends)}
        is_input_ended = self._commits_once or any(len(ended) >= one.parallelism for one in ends)
        decided = plan_compaction(
            [*note.waiting, *map(WaitingFile, new)], compaction, is_input_ended=is_input_ended
        )
        stem = f"{self._compacted_prefix(note.scope)}{checkpoint_id}"
        merged = publish_groups(
            self._file_system,
            self._base_path,
            Merger(self._file_system, self._base_path, compaction),
            decided.groups,
            stem,
            self._payload.part_suffix,
        )
        garbage = tuple(file.hidden_path for file in merged)
        return CommitNote(note.scope, last_id, decided.waiting, garbage, tuple(sorted(ended)))

    def _check_committed(
        self, note: CommitNote, files: Sequence[PendingFile], checkpoint_id: int
    ) -> None:
        """Refuse to skip files that still wait for their names although their checkpoint id was committed."""
        accounted = {one.file.hidden_path for one in note.waiting} | set(note.garbage)
        for file in files:
            place = self._place(file.hidden_path)
            if file.hidden_path not in accounted and exists(self._file_system, place):
                raise FileCommitError(
                    f"checkpoint {checkpoint_id} was committed to {self._payload.base_path} before, yet its file "
                    f"{place} still waits for its name: was the checkpoint's number used twice?"
                )

    def _delete_garbage(self, note: CommitNote) -> None:
        for path in note.garbage:
            delete_file(self._file_system, self._place(path))
            remove_if_spent(self._file_system, self._place(path.rpartition("/")[0]))

    def _sweep(self, files: Sequence[PendingFile], note: CommitNote) -> None:
        """Delete files of attempts before those of `files` that no checkpoint has.

        Ids commit in order, so every file that a checkpoint has is among `files`, or got its name before.
        """
        newest = {folder for file in files if (folder := StagingFolder.parse(file.folder))}
        unswept = {one for one in newest if one.attempt_number > 0} - self._swept
        if not unswept:
            return
        self._swept |= unswept
        needed = [*files, *(one.file for one in note.waiting)]
        keep = frozenset(file.name for file in needed)
        for folder in staging_folders(self._file_system, self._base_path):
            if any(folder.is_older_attempt_of(one) for one in unswept):
                place = self._place(folder.name)
                delete_files(self._file_system, place, (PENDING, IN_PROGRESS), keep)
                remove_if_spent(self._file_system, place)

    def _place(self, relative_path: str) -> str:
        return place_below(self._file_system, self._base_path, relative_path)

    def _note_file(self, scope: str) -> NoteFile[CommitNote]:
        path = self._place(f"{HIDDEN_PREFIX}commits-{digest_of_scope(scope)}")
        return NoteFile(self._file_system, path, CommitNote, scope, self._key)


def create_file_committer(context: CommitterContext, payload: bytes) -> FileCommitter:
    """Make the committer of a file sink; the entry point `files`."""
    settings = context.settings
    return FileCommitter(
        decode_file_payload(payload),
        partial(metadata_key, settings),
        commits_once=runs_in_batch(settings),
    )


def name_file(file_system: Any, base_path: str, file: PendingFile) -> None:
    """Rename a prepared file to its final name, unless it has it. FileCommitError if it is missing.

    PathOutsideError.
    """
    hidden = place_below(file_system, base_path, file.hidden_path)
    final = place_below(file_system, base_path, file.final_path)
    file_system.create_dir(final.rpartition("/")[0], recursive=True)
    try:
        file_system.move(hidden, final)
        return
    except OSError:  # object stores do not say which error it is
        if exists(file_system, hidden):
            raise
    if not exists(file_system, final):
        raise FileCommitError(
            f"the prepared file {hidden} is missing, and {final} is missing too: its records are lost unless "
            "somebody has moved it"
        )


def publish_groups(
    file_system: Any,
    base_path: str,
    merger: Merger,
    groups: Sequence[Sequence[PendingFile]],
    stem: str,
    suffix: str,
) -> list[PendingFile]:
    """Make each group of files visible durably, merging those with several files.

    Return the files that were merged, to be deleted. The name of the file made of a group is derived from `stem`, so
    that a second call finds the file of the first.
    """
    merges: list[tuple[Sequence[PendingFile], str, str]] = []
    finals: list[str] = []
    for index, group in enumerate(groups):
        if len(group) == 1 or merger.keeps_files:
            for file in group:
                name_file(file_system, base_path, file)
                finals.append(f"{base_path}/{file.final_path}")
            continue
        bucket = f"{group[0].bucket}/" if group[0].bucket else ""
        final = place_below(file_system, base_path, f"{bucket}{stem}-{index}{suffix}")
        finals.append(final)
        if not exists(file_system, final):
            hidden = f"{base_path}/{HIDDEN_PREFIX}merging-{stem}-{index}"
            merges.append((group, hidden, final))
    merger.merge_all([(group, hidden) for group, hidden, _ in merges])
    for _, hidden, final in merges:
        file_system.create_dir(final.rpartition("/")[0], recursive=True)
        persist_file(file_system, hidden)
        file_system.move(hidden, final)
    persist_names(file_system, base_path, finals)
    return [file for group in groups for file in group if len(group) > 1 and not merger.keeps_files]
