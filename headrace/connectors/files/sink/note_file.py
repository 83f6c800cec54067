"""NoteFile: records the commits to a target in a small hidden file that is replaced as a whole.

The note is sealed with the user's key, because others may write in that folder, and a note decides which files are
moved and deleted. An empty file next to it shows that there was a note: otherwise, if somebody deleted the note, rows
would be committed a second time.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from pyarrow import fs

from headrace.checkpoint.errors import RecordNotTrustedError
from headrace.checkpoint.storage.metadata_key import MetadataKey, seal, unseal
from headrace.connectors.files.paths import is_link, persist_file, persist_names
from headrace.connectors.files.sink.staging import delete_file, exists
from headrace.core.errors import DECODE_ERRORS, ErrorDomain, HeadraceError
from headrace.core.randomness import system_random

N = TypeVar("N", bound=msgspec.Struct)
KeySource = Callable[[], MetadataKey]
"""Function that finds or makes the user's key when a note is read."""


class NoteLostError(HeadraceError):
    """Raised if a target's note of its commits is missing, so that it is unknown whether rows were committed."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, path: str, trace: str) -> None:
        super().__init__(
            f"the note {path} of committed rows is missing, but {trace} shows that it existed: it is unknown whether "
            f"rows were committed already. Restore the note, or delete {trace} too if no output of this job must be "
            "kept there"
        )
        self.path = path


class NoteDamagedError(HeadraceError):
    """Raised if a target's note of its commits was changed, or written by another user."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, path: str, trace: str, reason: str) -> None:
        super().__init__(
            f"the note {path} of committed rows is damaged ({reason}): it is unknown whether rows were committed "
            f"already. Restore an intact note, or delete it and {trace} if no output of this job must be kept there"
        )
        self.path = path


class NoteChangedError(HeadraceError):
    """Raised if the driver that took over has written the note meanwhile. That note is kept."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the note {path} of committed rows has changed since this commit began: another driver of the job has "
            "taken over. Its note is kept; a second attempt continues from there"
        )
        self.path = path


class NoteFile(Generic[N]):
    """A note of type `note_type` about `scope`, at `path`. A crash leaves the old note or the new one.

    The note that a writer has read must still be there when it writes: otherwise a driver that was wrongly taken for
    dead would replace its successor's note by its old one. Each writer uses a temporary name of its own, so that it
    moves its own content. A short race between the last check and the move remains, because pyarrow has no conditional
    move.
    """

    def __init__(
        self, file_system: Any, path: str, note_type: type[N], scope: str, key: KeySource
    ) -> None:
        self._file_system = file_system
        self._path = path
        self._trace = f"{path}.made"
        self._type = note_type
        self._subject = f"what was committed in {scope}"
        self._key = key
        self._known: bytes | None = None

    def read(self) -> N | None:
        """Return the note, or None if there never was one. NoteLostError if it was deleted; NoteDamagedError."""
        # Asked before the note is looked at: another driver may just be making both for the first time.
        for path in (self._path, self._trace):
            if is_link(self._file_system, path):
                raise NoteDamagedError(path, self._trace, "it is a link")
        was_made = exists(self._file_system, self._trace)
        self._known = self._content()
        if self._known is not None:
            try:
                content = unseal(self._known, self._subject, self._key(), self._path)
                return msgspec.json.decode(content, type=self._type)
            except RecordNotTrustedError as error:
                raise NoteDamagedError(self._path, self._trace, error.reason) from error
            except DECODE_ERRORS as error:
                raise NoteDamagedError(self._path, self._trace, str(error)) from error
        if was_made:
            raise NoteLostError(self._path, self._trace)
        return None

    def write(self, note: N) -> None:
        """Replace the note that was read, durably. NoteChangedError if the note has changed since."""
        content = seal(msgspec.json.encode(note), self._subject, self._key())
        folder = self._path.rpartition("/")[0]
        new = f"{self._path}.{system_random().getrandbits(64):016x}.new"
        self._file_system.create_dir(folder, recursive=True)
        try:
            self._replace(new, content)
        except (HeadraceError, OSError):
            with suppress(OSError):  # the first error is the one that is reported
                delete_file(self._file_system, new)
            raise
        self._known = content
        persist_names(self._file_system, folder, [self._path])
        # Behind the note: a crash in between leaves a note without a trace, never a trace without a note.
        if not exists(self._file_system, self._trace):
            self._make_trace()
            persist_names(self._file_system, folder, [self._trace])

    def _make_trace(self) -> None:
        if isinstance(self._file_system, fs.LocalFileSystem):
            # Whatever has been put there meanwhile, as a link that leads elsewhere.
            with suppress(FileExistsError):
                os.close(os.open(self._trace, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
        else:
            self._file_system.open_output_stream(self._trace, compression=None).close()

    def _replace(self, new: str, content: bytes) -> None:
        with self._file_system.open_output_stream(new, compression=None) as stream:
            stream.write(content)
        persist_file(self._file_system, new)
        if self._content() != self._known:
            raise NoteChangedError(self._path)
        self._file_system.move(new, self._path)

    def _content(self) -> bytes | None:
        try:
            with self._file_system.open_input_stream(self._path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None


def digest_of_scope(scope: str) -> str:
    """Return a short name for a scope of commits, because scopes may hold characters that file names cannot."""
    return hashlib.blake2b(scope.encode(), digest_size=8).hexdigest()
