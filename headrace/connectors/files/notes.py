"""NoteFile: what a target says it was given, in a small hidden file that is replaced as a whole."""

import hashlib
from typing import Any, Generic, TypeVar

import msgspec

from headrace.connectors.files.durability import persist_file, persist_names

N = TypeVar("N", bound=msgspec.Struct)


class NoteFile(Generic[N]):
    """A note of type `note_type` at `path`. A crash leaves the old one or the new one."""

    def __init__(self, file_system: Any, path: str, note_type: type[N]) -> None:
        self._file_system = file_system
        self._path = path
        self._type = note_type

    def read(self) -> N | None:
        """Return the note, or None where there is none."""
        try:
            with self._file_system.open_input_stream(self._path) as stream:
                return msgspec.json.decode(stream.read(), type=self._type)
        except FileNotFoundError:
            return None

    def write(self, note: N) -> None:
        """Replace the note; it survives the machine when this returns."""
        folder, new = self._path.rpartition("/")[0], f"{self._path}.new"
        self._file_system.create_dir(folder, recursive=True)
        with self._file_system.open_output_stream(new, compression=None) as stream:
            stream.write(msgspec.json.encode(note))
        persist_file(self._file_system, new)
        self._file_system.move(new, self._path)
        persist_names(self._file_system, folder, [self._path])


def digest_of_scope(scope: str) -> str:
    """Return a short name for a scope of commits, as scopes may hold what no file name can."""
    return hashlib.blake2b(scope.encode(), digest_size=8).hexdigest()
