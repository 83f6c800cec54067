"""Log files: their options, their list in a folder, their content in pieces; and the log folders of clusters.

A name from outside is opened only if it names a regular file directly in the folder; links are not followed.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.config import ConfigOption, Settings, SizeBytes
from headrace.core.errors import ConfigurationError, ErrorDomain, HeadraceError
from headrace.core.ids import ResourceId

_LOG: Final = logging.getLogger(__name__)
_FOLDER_NAME: Final = re.compile(r"headrace-\d{8}-\d{6}-\d+(-\d+)?")
_YOUNG_MS: Final = 15 * 60_000
"""Age below which a folder is kept, because its owner may not have begun to write."""
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
JOB_MANAGER: Final = "jobmanager"
"""Name of the driver's files, without `.log` and `.out`."""
PIECE_SIZE_MAX_BYTES: Final = 1 << 20
"""Largest piece of a file that is read at once, because it must fit into a message."""
_FILE_COUNT_MAX: Final = 4096
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")
LOG_DIR: Final = ConfigOption(
    "env.log.dir",
    str,
    "",
    "Folder on each host in which every cluster makes a folder of its own for log files. Unset: the cluster's "
    "temporary folder, which is deleted when the cluster ends; of a daemon ~/.headrace/logs.",
)
LOG_MAX: Final = ConfigOption(
    "env.log.max",
    int,
    10,
    "Number of full log files, and of full output files, that are kept of each process in addition to the current "
    "ones.",
)
LOG_MAX_SIZE: Final = ConfigOption(
    "env.log.max-size",
    SizeBytes,
    SizeBytes(10 << 20),
    "Size at which a log file is full and a new one is begun.",
    least=SizeBytes(4 << 10),
)
LOG_FOLDERS_MAX: Final = ConfigOption(
    "headrace.log.folders-max",
    int,
    50,
    "Number of log folders that are kept in env.log.dir, or in ~/.headrace/logs. The next cluster that starts there "
    "removes "
    "older ones whose clusters have ended.",
    least=1,
)
LOG_FOLDERS_AGE: Final = ConfigOption(
    "headrace.log.folders-max-age",
    timedelta,
    timedelta(days=90),
    "Time since the last write after which the log folder of an ended cluster is removed by the next cluster that "
    "starts in the same place.",
    least=timedelta(hours=1),
)
LOG_LEVEL: Final = ConfigOption(
    "env.log.level",
    str,
    "INFO",
    "Least level at which Headrace's own loggers write into log files; those of the program keep the levels that the "
    "program set.",
    choices=("DEBUG", "INFO", "WARN", "ERROR"),
    synonyms=("WARNING",),
)
LOG_FORMAT: Final = ConfigOption(
    "headrace.log.format",
    str,
    "plain",
    "Format of log files: a text line for each message, or a JSON object on a line.",
    choices=("plain", "json"),
)


class FolderInUse:
    """A folder that this process uses until `close`. Without a lock, only its age protects it.

    The lock is shared, and the kernel releases it when the process ends in any way.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(folder, _FOLDER_FLAGS)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            _LOG.debug("log folder %s cannot be locked: %s", folder, error)

    def close(self) -> None:
        """Stop using the folder. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def remove_ended_folders(parent: Path, settings: Settings, now_ms: int, *, but: Path) -> None:
    """Remove log folders of ended clusters in `parent` that are too old or too many; `but` counts, but is kept.

    Links, and folders with other names or of other users, are not touched.
    """
    kept_count, age_max_ms = (
        settings.get_option(LOG_FOLDERS_MAX),
        settings.duration_ms(LOG_FOLDERS_AGE),
    )
    try:
        found = sorted(_folders(parent), reverse=True)
    except OSError as error:
        _LOG.warning("old log folders in %s are not removed: %s", parent, error)
        return
    removed = 0
    for place, (modified_ms, folder) in enumerate(found):
        age_ms = now_ms - modified_ms
        is_surplus = place >= kept_count or age_ms > age_max_ms
        if folder != but and is_surplus and age_ms > _YOUNG_MS and _remove(folder):
            removed += 1
    if removed:
        _LOG.warning(
            "removed %d log folders of ended clusters in %s: %s is %d, %s %g days",
            removed, parent, LOG_FOLDERS_MAX.key, kept_count, LOG_FOLDERS_AGE.key, age_max_ms / 86_400_000,
        )  # fmt: skip


def _folders(parent: Path) -> list[tuple[int, Path]]:
    """Return log folders with the time of the last write in them."""
    found: list[tuple[int, Path]] = []
    with os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
                if is_ours and _FOLDER_NAME.fullmatch(entry.name):
                    found.append((_modified_ms(Path(entry.path), status), Path(entry.path)))
    return found


def _modified_ms(folder: Path, status: os.stat_result) -> int:
    times = [status.st_mtime_ns]
    with os.scandir(folder) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
    return max(times) // 1_000_000


def _remove(folder: Path) -> bool:
    """Remove a folder unless it is in use; return whether it was removed."""
    try:
        descriptor = os.open(folder, _FOLDER_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except OSError as error:
        _LOG.debug("log folder %s is kept: %s", folder, error)
        return False
    finally:
        os.close(descriptor)
    return True


class LogFile(msgspec.Struct, frozen=True):
    """One file of a log folder."""

    name: str
    size_bytes: int
    modified_ms: int


class LogPiece(msgspec.Struct, frozen=True):
    """Part of a file from `offset` on; `size_bytes` is the size that the whole file has now.

    `file_id` stays the same when the file is renamed by rotation; a new file of the same name has another one.
    """

    offset: int
    size_bytes: int
    content: bytes
    file_id: str = ""


class LogFileNotFoundError(HeadraceError):
    """Raised if there is no log file of this name: it was rotated or deleted, or the name is not valid."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, name: str, place: str = "") -> None:
        """`place`: host and folder of the file, if it was written on another host."""
        super().__init__(
            f"the log file {name!r} is not on the driver's host: its TaskManager has ended and wrote it to {place}: "
            "look there"
            if place
            else f"there is no log file {name!r} here: list the files again, because old ones are deleted"
        )
        self.name = name
        self.place = place


def task_manager_file_name(resource_id: ResourceId) -> str:
    """Return the name of a TaskManager's files, without `.log` and `.out`."""
    return f"taskmanager-{_NOT_IN_NAMES.sub('_', str(resource_id))}"


def log_files(folder: Path, process_name: str = "") -> tuple[LogFile, ...]:
    """Return the log files in `folder`, newest first: all of them, or those of one process.

    At most 4096 files, the newest; empty if there is no folder.
    """
    try:
        with os.scandir(folder) as entries:
            found = list(_regular_files(entries, process_name))
    except FileNotFoundError:
        return ()
    found.sort(key=lambda file: (-file.modified_ms, file.name))
    return tuple(found[:_FILE_COUNT_MAX])


def read_log_file(
    folder: Path, name: str, offset: int = 0, max_bytes: int = PIECE_SIZE_MAX_BYTES
) -> LogPiece:
    """Return the content of a file from `offset` on, at most `max_bytes` and at most a mebibyte.

    A negative `offset` counts from the end. An offset after the end gives an empty piece. Raises LogFileNotFoundError.
    """
    descriptor = _open_plain(folder, name)
    try:
        found = os.fstat(descriptor)
        size_bytes = found.st_size
        begin = max(0, size_bytes + offset) if offset < 0 else min(offset, size_bytes)
        length = max(0, min(max_bytes, PIECE_SIZE_MAX_BYTES, size_bytes - begin))
        content = os.pread(descriptor, length, begin)
        return LogPiece(begin, size_bytes, content, f"{found.st_dev:x}-{found.st_ino:x}")
    finally:
        os.close(descriptor)


def read_log_file_of(
    folder: Path, process_name: str, name: str, offset: int, max_bytes: int
) -> LogPiece:
    """Return the content of a file, as `read_log_file` does, if it belongs to `process_name`; LogFileNotFoundError."""
    if not is_of_process(name, process_name):
        raise LogFileNotFoundError(name)
    return read_log_file(folder, name, offset, max_bytes)


def delete_log_files(folder: Path, process_name: str) -> None:
    """Delete the files of one process, as far as possible."""
    for file in log_files(folder, process_name):
        (folder / file.name).unlink(missing_ok=True)


def named_log_folder(settings: Settings, now_ms: int) -> Path | None:
    """Make the log folder of a new cluster below `env.log.dir`, named by time and process; None if that is not set.

    ConfigurationError if it cannot be made.
    """
    configured = settings.get_option(LOG_DIR)
    if not configured:
        return None
    time = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    parent = Path(configured).absolute()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(100):
            folder = parent / f"headrace-{time}-{os.getpid()}{f'-{number}' if number else ''}"
            try:
                folder.mkdir(0o700)
            except FileExistsError:
                continue
            remove_ended_folders(parent, settings, now_ms, but=folder)
            return folder
    except OSError as error:
        reason = f"no folder can be created there: {error.strerror}"
        raise ConfigurationError(LOG_DIR.key, configured, reason) from error
    raise ConfigurationError(
        LOG_DIR.key, configured, "too many folders were created there in this second"
    )


def private_folder(folder: Path) -> Path:
    """Make `folder`, accessible to its owner alone, unless it exists. OSError if it belongs to others, or is a link."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is a link, or belongs to another user")
    if found.st_mode & 0o022:
        raise PermissionError(f"other users may write in {folder}")
    return folder


def _regular_files(entries: Iterator[os.DirEntry[str]], process_name: str) -> Iterator[LogFile]:
    for entry in entries:
        try:
            if is_of_process(entry.name, process_name) and entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield LogFile(entry.name, found.st_size, found.st_mtime_ns // 1_000_000)
        except FileNotFoundError:
            continue  # put aside meanwhile


def is_of_process(name: str, process_name: str) -> bool:
    """Return whether a file belongs to the process; the dot tells worker 12 from worker 1."""
    return not process_name or name.startswith(f"{process_name}.")


def _open_plain(folder: Path, name: str) -> int:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise LogFileNotFoundError(name)
    try:
        # Not waiting for the writer of a named pipe, which is refused below.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(folder / name, flags)
    except (OSError, UnicodeError) as error:
        raise LogFileNotFoundError(name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogFileNotFoundError(name)
    return descriptor
