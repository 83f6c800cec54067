"""ProcessFile: describes a process to the user's commands, in `<home>/<folder>/<process>.json`.

It is used by processes without a REST endpoint, and so without a connection file: standbys and supervisors. The file
is valid as long as its process lives.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from headrace.core.clock import SystemClock
from headrace.core.errors import DECODE_ERRORS
from headrace.core.process.log_files import private_folder
from headrace.core.process.process_start import start_ticks
from headrace.rest.client_errors import ConnectionFileError, HomeFolderError
from headrace.rest.home.home_folder import (
    headrace_home,
    read_private_file,
    write_private_file,
    writing_in_home,
)

_FILES_MAX: Final = 1_000
_LOG: Final = logging.getLogger(__name__)


class ProcessEntry(msgspec.Struct, frozen=True):
    """Content of such a file: the process's name for commands, and its start, which identifies the process."""

    name: str
    pid: int
    start_ticks: int
    started: int
    """Time of the start, epoch ms."""


EntryT = TypeVar("EntryT", bound=ProcessEntry)


class ProcessFile:
    """The file of this process in one folder of home, with the common fields of its entries."""

    def __init__(self, folder: str, name: str) -> None:
        self.name: Final = name
        self.pid: Final = os.getpid()
        self.start_ticks: Final = start_ticks(self.pid)
        self.started: Final = SystemClock().now_ms()
        self._file: Final = headrace_home() / folder / f"{self.pid}.json"

    def write(self, entry: ProcessEntry) -> None:
        """Write the entry in place of an earlier one. HomeFolderError if that fails."""
        with writing_in_home():
            private_folder(headrace_home())
            private_folder(self._file.parent)
            write_private_file(self._file, msgspec.json.encode(entry))

    def show(self, entry: ProcessEntry) -> None:
        """Write the entry if possible; a failure is only logged, as only commands read the file."""
        try:
            self.write(entry)
        except HomeFolderError as error:
            _LOG.warning(
                "'headrace cluster list' cannot show process %d of '%s': %s",
                self.pid,
                self.name,
                error,
            )

    def remove(self) -> None:
        """Remove the file, if it exists."""
        # If home cannot be used, nothing was written.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._file.unlink()


def live_entries(folder: str, kind: type[EntryT]) -> list[EntryT]:
    """Return the entries of live processes; files of ended processes are removed."""
    found: list[EntryT] = []
    for file in sorted((headrace_home() / folder).glob("[0-9]*.json"))[:_FILES_MAX]:
        entry = _read(file, kind)
        if entry is None:
            continue
        if start_ticks(entry.pid) != entry.start_ticks:
            file.unlink(missing_ok=True)
        else:
            found.append(entry)
    return found


def _read(file: Path, kind: type[EntryT]) -> EntryT | None:
    try:
        return msgspec.json.decode(read_private_file(file), type=kind)
    except (FileNotFoundError, ConnectionFileError, *DECODE_ERRORS):
        return None
