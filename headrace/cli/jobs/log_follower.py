"""LogFollower: writes what a log file gets, also where the file is put aside and begun anew between two looks at it.

A file that is put aside keeps its id, and gets the numbers 1, 2 and so on behind its name. So what was written to it
after the last look is found there, and then the whole of each file between it and the new one.
"""

from collections.abc import Callable
from typing import Final

from headrace.rest.client import Piece, RestClient, path_of
from headrace.rest.client_errors import RestRefusedError

_NUMBERS_MAX: Final = 100
"""Files behind the newest among which one is looked for."""
_REFUSALS_MAX: Final = 5
"""Looks in turn at which the file may not be there: it is gone for a moment while it is put aside."""


class LogFollower:
    """Follows the file at `path` from the byte `offset` on. `note` tells the user that lines are lost."""

    def __init__(
        self,
        client: RestClient,
        path: str,
        offset: int,
        write: Callable[[bytes], None],
        note: Callable[[str], None],
    ) -> None:
        self._client: Final = client
        self._path: Final = path
        self._write: Final = write
        self._note: Final = note
        self._offset = offset
        self._name = ""  # of the newest file, as the server tells it first
        self._file_id = ""
        self._refusal_count = 0

    def write_new(self) -> None:
        """Write what there is now that was not written yet. RestRefusedError where the file is not there."""
        try:
            while not self._write_from(self._path):
                self._write_put_aside()
        except RestRefusedError:
            self._refusal_count += 1
            if not self._file_id or self._refusal_count >= _REFUSALS_MAX:
                raise
        else:
            self._refusal_count = 0

    def _write_from(self, path: str) -> bool:
        """Write the rest of the file at `path`; return False, and no more, where it is another one than before."""
        for piece in self._client.text(path, self._offset):
            if self._file_id and piece.file_id and piece.file_id != self._file_id:
                return False
            self._name, self._file_id = self._name or piece.file_name, piece.file_id
            self._write(piece.content)
            self._offset = piece.offset + len(piece.content)
        return True

    def _write_put_aside(self) -> None:
        """Write the rest of the file that was read, and go on with the one that was begun after it."""
        number = self._number_of(self._file_id)
        if number is None:
            self._note(
                "lines are missing here: the log was put aside more often than files are kept"
            )
            self._begin(self._client.first_byte(self._path))
            return
        if not self._write_from(self._numbered(number)):
            return  # put aside once more meanwhile: it has another number
        follower = self._client.first_byte(self._numbered(number - 1))
        if self._client.first_byte(self._numbered(number)).file_id == self._file_id:
            self._begin(follower)

    def _begin(self, first: Piece) -> None:
        self._file_id, self._offset = first.file_id, 0

    def _number_of(self, file_id: str) -> int | None:
        for number in range(1, _NUMBERS_MAX):
            try:
                first = self._client.first_byte(self._numbered(number))
            except RestRefusedError:
                return None
            if first.file_id == file_id:
                return number
        return None

    def _numbered(self, number: int) -> str:
        """Return the path of the file that was put aside as the `number`th newest, 0: of the one that is written to."""
        if not number:
            return self._path
        folder = self._path.rpartition("/")[0].removesuffix("/logs")
        return f"{folder}/logs{path_of(f'{self._name}.{number}')}"
