"""Where files lie before they have their names: one hidden folder per attempt of a writer, below the sink's own.

    written (`.inprogress`) ── checkpoint ──► prepared (`.pending`) ── commit ──► named, in its bucket

The folder's name says whose it is, so that what a dead attempt left can be told from what is still needed: nothing
that is in progress outlives its attempt, and what is prepared is needed exactly where a committable says so.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from headrace.checkpoint.options import SHARED_FILES
from headrace.connectors.files.confinement import is_link
from headrace.connectors.sink_owner import owner_of_sink
from headrace.core.config import Settings
from headrace.core.randomness import system_random
from headrace.functions.subtask_context import SubtaskContext

IN_PROGRESS: Final = ".inprogress"
PENDING: Final = ".pending"
HIDDEN_PREFIX: Final = ".headrace-"
_NAME: Final = re.compile(r"\.headrace-([0-9a-f]{16})-(\d+)-(\d+)-([0-9a-f]{16})")


@dataclass(frozen=True)
class StagingFolder:
    """A folder of one attempt. `owner` stands for job and operator, `token` is drawn by the attempt."""

    owner: str
    subtask_index: int
    attempt_number: int
    token: str

    @property
    def name(self) -> str:
        """Its name, below the sink's folder."""
        return (
            f"{HIDDEN_PREFIX}{self.owner}-{self.subtask_index}-{self.attempt_number}-{self.token}"
        )

    @staticmethod
    def of(context: SubtaskContext) -> "StagingFolder":
        """Name the folder of a new writer."""
        token = system_random().randbytes(8).hex()
        return StagingFolder(
            owner_of_sink(context), context.subtask_index, context.attempt_number, token
        )

    @staticmethod
    def parse(name: str) -> "StagingFolder | None":
        """Return what a folder's name says, or None where it is not one of these."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return StagingFolder(match[1], int(match[2]), int(match[3]), match[4])

    def is_older_attempt_of(self, other: "StagingFolder") -> bool:
        """Whether an attempt before `other` of the same subtask wrote here."""
        return (
            self.owner == other.owner
            and self.subtask_index == other.subtask_index
            and self.attempt_number < other.attempt_number
        )


def make_staging_folder(file_system: Any, path: str, settings: Settings) -> None:
    """Make a folder in which output waits for its commit; on local file systems for this user alone.

    The files in it have the permissions of results, which they are about to be.
    """
    if not isinstance(file_system, fs.LocalFileSystem) or settings.get_option(SHARED_FILES):
        file_system.create_dir(path, recursive=True)
        return
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, mode=0o700)


def staging_folders(file_system: Any, base_path: str) -> Iterator[StagingFolder]:
    """Every staging folder below a sink's folder; none where that does not exist."""
    for info in file_system.get_file_info(fs.FileSelector(base_path, allow_not_found=True)):
        folder = StagingFolder.parse(info.base_name) if info.type is fs.FileType.Directory else None
        # A link of such a name is nobody's staging folder: what lies behind it is not ours to delete.
        if folder is not None and not is_link(file_system, info.path):
            yield folder


def delete_files(
    file_system: Any, folder: str, suffixes: tuple[str, ...], keep: frozenset[str]
) -> None:
    """Delete the files of a folder whose names end so, but for those to `keep` (names), and the folder where empty."""
    for info in file_system.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        if info.base_name.endswith(suffixes) and info.base_name not in keep:
            delete_file(file_system, info.path)
    remove_if_empty(file_system, folder)


def delete_file(file_system: Any, path: str) -> None:
    """Delete a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        file_system.delete_file(path)


def remove_if_empty(file_system: Any, folder: str) -> None:
    """Remove a local folder that holds nothing; object stores have no folders to speak of."""
    if isinstance(file_system, fs.LocalFileSystem):
        # Whoever is about to open a file there makes the folder again.
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def exists(file_system: Any, path: str) -> bool:
    """Whether there is a file or folder of that name."""
    return file_system.get_file_info(path).type is not fs.FileType.NotFound
