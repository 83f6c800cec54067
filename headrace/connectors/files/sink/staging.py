"""Staging folders: they hold the files of a sink before their commit, one hidden folder per attempt of a writer.

    written (`.inprogress`) ── checkpoint ──► prepared (`.pending`) ── commit ──► named, in its bucket

The folder's name identifies its attempt, so that files of a dead attempt can be told from those still needed: a file in
progress is not needed after its attempt, and a prepared file is needed only if a committable names it.

A writer holds a lock on its folder, which the system releases when its process ends in any way, and updates the
folder's time every minute while it has files open. Before it hands files over to a snapshot it writes a marker with the
folder of the job's checkpoints. So a new writer of any job can decide what to delete:

    not locked, unchanged for an hour           delete files in progress: no attempt continues them
    … for a week, and nothing handed over       also delete complete files: no snapshot names them
    … for a week, and checkpoints deleted       also delete files that were handed over to them

The staging folders of DataFrame sinks, next to their targets, are swept in the same way, all after a week. On file
systems that are not local or have no locks, nothing is swept.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, SHARED_FILES
from headrace.checkpoint.storage.checkpoint_storage import job_folder
from headrace.checkpoint.storage.file_systems import folder_entries, is_there
from headrace.connectors.files.paths import is_link
from headrace.core.config import Settings
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import size_text
from headrace.core.randomness import system_random
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import owner_of_sink

IN_PROGRESS: Final = ".inprogress"
PENDING: Final = ".pending"
HIDDEN_PREFIX: Final = ".headrace-"
_NAME: Final = re.compile(r"\.headrace-([0-9a-f]{16})-(\d+)-(\d+)-([0-9a-f]{16})")
_LOG: Final = logging.getLogger(__name__)
_FULL: Final = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "its user's quota is used up"}
QUIET_MS: Final = 3_600_000
"""Time without a change after which an unlocked folder counts as abandoned; a live writer updates it far more often."""
FORGOTTEN_MS: Final = 7 * 24 * 3_600_000
"""Time for which files are kept that a snapshot may name; a restarted driver commits them first."""
MARKER: Final = "handed-over"
_MERGING: Final = f"{HIDDEN_PREFIX}merging-"
_BESIDE: Final = re.compile(r"(\..+\.staging-)[0-9a-f]{16}")
"""Name of a folder in which a DataFrame sink stages Parquet files next to its target."""


class OutputDiskFullError(HeadraceError):
    """Raised if the disk on which a sink writes is full, or the quota of its user is used up."""

    domain, recoverable, repeats = ErrorDomain.EXTERNAL, True, True

    def __init__(self, operator_name: str, folder: str, reason: str) -> None:
        super().__init__(
            f"the sink '{operator_name}' cannot write to {folder}: {reason}; free some space, or let the sink write "
            "to a folder on another disk"
        )
        self.folder = folder


class FullDiskGuard:
    """Context in which a sink writes below `folder`; OutputDiskFullError if there is no space. Reusable."""

    def __init__(self, context: SubtaskContext, folder: str) -> None:
        self._operator_name = context.operator_name
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        reason = _FULL.get(error.errno or 0) if isinstance(error, OSError) else None
        if reason is not None:
            reason = f"{reason} ({_free_text(self._folder)})"
            raise OutputDiskFullError(self._operator_name, self._folder, reason) from error


def _free_text(folder: str) -> str:
    """Return the free space of the disk of a folder, which may not exist yet."""
    place = Path(folder)
    there = next((one for one in (place, *place.parents) if one.exists()), Path("/"))
    return f"{size_text(shutil.disk_usage(there).free)} free"


@dataclass(frozen=True)
class StagingFolder:
    """Staging folder of one attempt. `owner` stands for job and operator, `token` is random for each attempt."""

    owner: str
    subtask_index: int
    attempt_number: int
    token: str

    @property
    def name(self) -> str:
        """Return the folder's name, below the sink's folder."""
        return (
            f"{HIDDEN_PREFIX}{self.owner}-{self.subtask_index}-{self.attempt_number}-{self.token}"
        )

    @staticmethod
    def of(context: SubtaskContext) -> "StagingFolder":
        """Return the folder of a new writer."""
        token = system_random().randbytes(8).hex()
        return StagingFolder(
            owner_of_sink(context), context.subtask_index, context.attempt_number, token
        )

    @staticmethod
    def parse(name: str) -> "StagingFolder | None":
        """Parse a folder's name; None if it is not that of a staging folder."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return StagingFolder(match[1], int(match[2]), int(match[3]), match[4])

    def is_older_attempt_of(self, other: "StagingFolder") -> bool:
        """Return whether the folder belongs to an earlier attempt of the same subtask than `other`."""
        return (
            self.owner == other.owner
            and self.subtask_index == other.subtask_index
            and self.attempt_number < other.attempt_number
        )


def make_staging_folder(file_system: Any, path: str, settings: Settings) -> None:
    """Make a folder in which output waits for its commit; on local file systems only this user can access it.

    Its files have the permissions of results, because they will become results.
    """
    if not isinstance(file_system, fs.LocalFileSystem) or settings.get_option(SHARED_FILES):
        file_system.create_dir(path, recursive=True)
        return
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, mode=0o700)


def staging_folders(file_system: Any, base_path: str) -> Iterator[StagingFolder]:
    """Yield every staging folder below a sink's folder; none if that does not exist."""
    for info in folder_entries(file_system, base_path):
        folder = StagingFolder.parse(info.base_name) if info.type is fs.FileType.Directory else None
        # A link with such a name is not a staging folder: its target must not be deleted.
        if folder is not None and not is_link(file_system, info.path):
            yield folder


def delete_files(
    file_system: Any, folder: str, suffixes: tuple[str, ...], keep: frozenset[str]
) -> None:
    """Delete the files of a folder with these suffixes, except those named in `keep`, and the folder if it is empty."""
    for info in folder_entries(file_system, folder):
        if info.base_name.endswith(suffixes) and info.base_name not in keep:
            delete_file(file_system, info.path)
    remove_if_empty(file_system, folder)


def delete_file(file_system: Any, path: str) -> None:
    """Delete a file that may already have been deleted."""
    with contextlib.suppress(FileNotFoundError):
        file_system.delete_file(path)


def remove_if_empty(file_system: Any, folder: str) -> None:
    """Remove an empty local folder; object stores have no real folders."""
    if isinstance(file_system, fs.LocalFileSystem):
        # Whoever is about to open a file there makes the folder again.
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def exists(file_system: Any, path: str) -> bool:
    """Return whether there is a file or folder of that name."""
    return file_system.get_file_info(path).type is not fs.FileType.NotFound


class StagingLock:
    """Lock on a local staging folder: shows that a writer is alive, and marks files as handed over. One thread."""

    def __init__(self, file_system: Any, path: str) -> None:
        self._is_local = isinstance(file_system, fs.LocalFileSystem)
        self._path = path
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Lock the folder, which must exist; it may have been replaced by one of the same name. OSError."""
        if not self._is_local:
            return
        if self._descriptor is not None:
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                return
            self.release()
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(
            OSError
        ):  # the file system has no locks, so no other process can take one either
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def touch(self) -> None:
        """Update the folder's time."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)

    def mark_handed_over(self, checkpoint_folder: str) -> None:
        """Mark that a snapshot will name files there.

        `checkpoint_folder`: the folder of the job's checkpoints, or empty. OSError.
        """
        if not self._is_local:
            return
        marker = f"{self._path}/{MARKER}"
        if not os.path.exists(marker):
            with open(marker, "w", encoding="utf-8") as file:
                file.write(checkpoint_folder)

    def release(self) -> None:
        """Release the lock, by closing the folder. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        # Also for a writer that was not closed: its process may continue, but the writer must not count as alive.
        self.release()


def checkpoint_folder_of(context: SubtaskContext) -> str:
    """Return the folder of the job's checkpoints; empty if they do not outlive its driver."""
    settings, attempt = context.settings, context.attempt_id
    if attempt is None or not settings.get_option(CHECKPOINT_DIRECTORY):
        return ""
    return job_folder(settings, attempt.job_id)


def is_staging_beside(path: str) -> bool:
    """Return whether a DataFrame sink made the folder next to its target; False for one that the user has named."""
    return _BESIDE.fullmatch(path.rpartition("/")[2]) is not None


def remove_if_spent(file_system: Any, folder: str) -> None:
    """Remove a local staging folder in which no output is left."""
    if not isinstance(file_system, fs.LocalFileSystem):
        return
    with contextlib.suppress(OSError):
        if os.listdir(folder) == [MARKER]:
            marker = f"{folder}/{MARKER}"
            with open(marker, encoding="utf-8") as file:
                content = file.read()
            os.unlink(marker)
            try:
                os.rmdir(folder)
            except OSError:
                # Its writer has begun another file meanwhile, and may have seen the marker.
                with open(marker, "w", encoding="utf-8") as file:
                    file.write(content)
        else:
            os.rmdir(folder)


def sweep_abandoned(file_system: Any, base_path: str, own: StagingFolder, now_ms: int) -> None:
    """Delete unneeded files that dead writers of other jobs left in a sink's folder."""
    if not isinstance(file_system, fs.LocalFileSystem):
        return
    for folder in staging_folders(file_system, base_path):
        if folder.owner != own.owner:
            with contextlib.suppress(
                OSError
            ):  # another writer clears up too, or may not write there
                _sweep_one(
                    file_system, f"{base_path}/{folder.name}", now_ms, (IN_PROGRESS,), (PENDING,)
                )
    with contextlib.suppress(OSError):
        for entry in os.scandir(base_path):
            is_merged = entry.name.startswith(_MERGING) and entry.is_file(follow_symlinks=False)
            if is_merged and now_ms - _changed_ms(entry.path) > FORGOTTEN_MS:
                os.unlink(entry.path)


def sweep_abandoned_beside(file_system: Any, own_path: str, now_ms: int) -> None:
    """Delete files that dead DataFrame sinks of other jobs had staged for the target of `own_path`."""
    parent, _, own_name = own_path.rpartition("/")
    own = _BESIDE.fullmatch(own_name)
    if own is None or not isinstance(file_system, fs.LocalFileSystem):
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            other = _BESIDE.fullmatch(entry.name)
            is_other = other is not None and other[1] == own[1] and entry.name != own_name
            if is_other and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another writer clears up too
                    _sweep_one(file_system, entry.path, now_ms, (), (".parquet",))


def _sweep_one(
    file_system: Any, path: str, now_ms: int, begun: tuple[str, ...], complete: tuple[str, ...]
) -> None:
    """Delete files by suffix: incomplete ones after an hour, complete ones once no snapshot names them."""
    if os.stat(path).st_uid != os.geteuid() or is_link(file_system, path):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = [entry.path for entry in os.scandir(path)]
        quiet_ms = now_ms - max(map(_changed_ms, (path, *files)))
        if quiet_ms < QUIET_MS:
            return
        suffixes = begun
        if _is_named_by_nothing(path, quiet_ms):
            suffixes = (*begun, *complete)
        before = len(files)
        delete_files(file_system, path, suffixes, frozenset())
        remove_if_spent(file_system, path)
        if not os.path.exists(path) or len(os.listdir(path)) < before:
            _LOG.info("%s was left by a writer that died: its unneeded files are deleted", path)
    finally:
        os.close(descriptor)


def _is_named_by_nothing(path: str, quiet_ms: int) -> bool:
    if quiet_ms < FORGOTTEN_MS:
        return False
    marker = f"{path}/{MARKER}"
    if not os.path.exists(marker):
        return True
    with open(marker, encoding="utf-8") as file:
        checkpoints = file.read()
    try:
        return not checkpoints or not is_there(checkpoints)
    except HeadraceError as error:
        _LOG.warning(
            "%s is kept, because it is unknown whether checkpoints name it: %s", path, error
        )
        return False


def _changed_ms(path: str) -> int:
    return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000
