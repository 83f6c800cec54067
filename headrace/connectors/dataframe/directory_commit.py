"""DirectoryCommit: moves files from a staging folder to a folder of results, once for each checkpoint id.

    nothing ──► written to a staging folder ──► NOTED: these files belong to id n ──► moved ──► noted as done
                          └── a crash: written again                          └── a crash: the rest is moved

The note is in the folder of results. Id n is committed once it is noted; before that, no file of n is visible.

Each attempt writes to a folder of its own, which the note names: a driver that was wrongly taken for dead must not
delete, or write into, the files that its successor has noted.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from pyarrow import fs

from headrace.checkpoint.storage.file_systems import folder_entries
from headrace.connectors.files.paths import file_system_of, is_link, place_below
from headrace.connectors.files.sink.note_file import KeySource, NoteFile, digest_of_scope
from headrace.connectors.files.sink.staging import HIDDEN_PREFIX, delete_file, exists
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.randomness import system_random

ERROR_MODES: Final = ("error", "errorifexists")


class TargetExistsError(HeadraceError):
    """Raised if the target of the first results already holds results."""

    domain, recoverable = ErrorDomain.USER, False


class ResultFileLostError(HeadraceError):
    """Raised if a file of a checkpoint is neither where it was written nor among the results."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class NumberUsedTwiceError(HeadraceError):
    """Raised if new rows have the number of a checkpoint whose rows were committed before.

    The new rows are not dropped.
    """

    domain, recoverable = ErrorDomain.INTERNAL, False


class DirectoryNote(msgspec.Struct, frozen=True):
    """Note of the last commit into a folder in a scope; `last_content` identifies the content committed as `last_id`.

    While `moving_id` is set, a commit is under way: `arriving` files are moved in from the folder of that `attempt`,
    and `leaving` files are removed. `is_ignored`: there were results already, and mode `ignore` keeps them unchanged.
    """

    scope: str
    last_id: int = 0
    last_content: str = ""
    moving_id: int = 0
    attempt: str = ""
    arriving: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    is_ignored: bool = False


class DirectoryCommit:
    """Commits to the folder `path` (a path or URI); one of Spark's save modes applies to the first commit.

    Later commits of the same scope append.
    """

    def __init__(self, path: str, mode: str, key: KeySource) -> None:
        self._path: Final = path.rstrip("/")
        self._mode: Final = mode
        self._key: Final = key
        self._file_system, self._place = file_system_of(self._path)

    def commit(
        self, scope: str, checkpoint_id: int, content: str, write: Callable[[str], None]
    ) -> None:
        """Let `write(folder)` make the files of an id, unless it did so before, and move them to the results.

        `write` may be called again after a crash, and then finds no folder. `content` identifies the id's rows: the
        same at each call, and empty if nothing is left of them. NumberUsedTwiceError if the id was committed with
        another content.
        """
        notes = self._notes(scope)
        note = notes.read() or self._first_note(scope)
        if note.is_ignored:
            notes.write(note)
            return
        if checkpoint_id <= note.last_id:
            is_known = checkpoint_id == note.last_id and content == note.last_content
            if content and not is_known:
                raise NumberUsedTwiceError(
                    f"checkpoint {checkpoint_id} was committed to {self._path} before, with other rows"
                )
            return
        if note.moving_id != checkpoint_id:
            note = self._written(note, checkpoint_id, write)
            notes.write(note)
        self._move(note)
        notes.write(DirectoryNote(scope, last_id=checkpoint_id, last_content=content))
        self._delete_attempts(scope, checkpoint_id)

    def has_committed(self, scope: str) -> bool:
        """Return whether anything was committed in the scope."""
        return self._notes(scope).read() is not None

    def last_committed(self, scope: str) -> int | None:
        """Return the highest id of the scope, including one whose files are being moved, because it is committed."""
        note = self._notes(scope).read()
        return None if note is None else max(note.last_id, note.moving_id)

    def _first_note(self, scope: str) -> DirectoryNote:
        """Return the note before a scope's first commit; TargetExistsError if the mode forbids existing files."""
        present = self._data_files(self._place)
        if present and self._mode in ERROR_MODES:
            raise TargetExistsError(
                f"{self._path} holds results already: remove them, or set mode='overwrite', 'append' or 'ignore'"
            )
        if present and self._mode == "ignore":
            return DirectoryNote(scope, is_ignored=True)
        leaving = tuple(present) if self._mode == "overwrite" else ()
        return DirectoryNote(scope, leaving=leaving)

    def _written(
        self, note: DirectoryNote, checkpoint_id: int, write: Callable[[str], None]
    ) -> DirectoryNote:
        attempt = f"{system_random().getrandbits(32):08x}"
        folder = self._apart(note.scope, checkpoint_id, attempt)
        # The writer is given a place of the same kind as the target's: a URI where that is one.
        write(f"{self._path.rpartition('/')[0]}/{folder.rpartition('/')[2]}")
        return DirectoryNote(
            note.scope,
            last_id=note.last_id,
            last_content=note.last_content,
            moving_id=checkpoint_id,
            attempt=attempt,
            arriving=tuple(self._data_files(folder)),
            leaving=note.leaving,
        )

    def _move(self, note: DirectoryNote) -> None:
        for name in note.leaving:
            delete_file(self._file_system, place_below(self._file_system, self._place, name))
        folder = self._apart(note.scope, note.moving_id, note.attempt)
        for name in note.arriving:
            source = place_below(self._file_system, folder, name)
            target = place_below(self._file_system, self._place, name)
            if exists(self._file_system, source):
                self._file_system.create_dir(target.rpartition("/")[0], recursive=True)
                self._file_system.move(source, target)
            elif not exists(self._file_system, target):
                raise ResultFileLostError(
                    f"{source}, a file of checkpoint {note.moving_id}, is missing, and {target} is missing too"
                )

    def _data_files(self, folder: str) -> Sequence[str]:
        """Return the files below a folder, relative to it, except those that Spark's readers ignore."""
        names = [
            info.path[len(folder) :].lstrip("/")
            for info in folder_entries(self._file_system, folder, is_recursive=True)
            if info.type is fs.FileType.File
        ]
        return sorted(
            name
            for name in names
            if not any(part.startswith((".", "_")) for part in name.split("/"))
        )

    def _apart(self, scope: str, checkpoint_id: int, attempt: str) -> str:
        """Return the folder next to the target in which an attempt makes an id's files."""
        parent, _, beginning = self._all_apart(scope).rpartition("/")
        return place_below(self._file_system, parent, f"{beginning}{checkpoint_id}-{attempt}")

    def _all_apart(self, scope: str) -> str:
        """Return the common prefix of the paths of a scope's staging folders."""
        parent, _, name = self._place.rpartition("/")
        return f"{parent}/.{name}.commit-{digest_of_scope(scope)}-"

    def _delete_attempts(self, scope: str, checkpoint_id: int) -> None:
        """Delete the files of attempts at an id and at earlier ones; files of later ids may belong to a successor."""
        beginning = self._all_apart(scope)
        for info in folder_entries(self._file_system, beginning.rpartition("/")[0]):
            if not info.path.startswith(beginning) or is_link(self._file_system, info.path):
                continue
            number = info.path.removeprefix(beginning).partition("-")[0]
            if number.isdecimal() and int(number) <= checkpoint_id:
                self._file_system.delete_dir(info.path)

    def _notes(self, scope: str) -> NoteFile[DirectoryNote]:
        name = f"{HIDDEN_PREFIX}commits-{digest_of_scope(scope)}"
        path: Any = f"{self._place}/{name}"
        return NoteFile(self._file_system, path, DirectoryNote, scope, self._key)
