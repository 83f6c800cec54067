"""NoteFile where two drivers meet at a note that neither has written before."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import fs

from headrace.connectors.files.sink.note_file import NoteChangedError, NoteFile
from tests.unit.connectors.sink_world import key


class Note(msgspec.Struct, frozen=True):
    """What a driver has committed."""

    last_id: int


class WrittenAfterALook:
    """Another driver writes the first note just after this one has looked whether there is one."""

    def __init__(self, file_system: Any, other: NoteFile[Note]) -> None:
        self._file_system = file_system
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_system, name)

    def open_input_stream(self, path: str) -> Any:
        try:
            return self._file_system.open_input_stream(path)
        finally:
            if self._other.read() is None:
                self._other.write(Note(1))


def test_a_note_that_is_written_for_the_first_time_meanwhile_is_not_taken_for_lost(
    tmp_path: Path,
) -> None:
    local: Any = fs.LocalFileSystem()
    path = f"{tmp_path}/note"
    slow = NoteFile(
        WrittenAfterALook(local, NoteFile(local, path, Note, "scope", key)),
        path,
        Note,
        "scope",
        key,
    )

    assert slow.read() is None
    with pytest.raises(NoteChangedError):
        slow.write(Note(1))
    assert NoteFile(local, path, Note, "scope", key).read() == Note(1)
