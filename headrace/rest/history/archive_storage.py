"""Folders of archives: their listing, files that are read in pieces, and deletion. All calls block.

Everybody who may write to such a folder can put files there. So only regular files with the name of a job are
read, no link is followed, and opening a file never waits, as it would for a named pipe.
Errors are OSError and CheckpointStorageError.
"""

import contextlib
import os
import re
import stat
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace.checkpoint.storage import file_systems
from headrace.rest.history.archive_file import RangeReader

_JOB_NAME: Final = re.compile(r"[0-9a-f]{32}")
"""Pattern of an id in the form of `JobId.hex`, in lower case."""


@dataclass(frozen=True, slots=True)
class StoredArchive:
    """A file with the name of a job. `modified_ms`: epoch milliseconds."""

    folder: str
    job: str
    size_bytes: int
    modified_ms: int

    @property
    def uri(self) -> str:
        """Return the file's URI."""
        return file_systems.child_uri(self.folder, self.job)


def list_archives(folder: str) -> list[StoredArchive]:
    """Return the files with names of jobs in a folder, the newest first. FileNotFoundError if it does not exist."""
    local = _local_path(folder)
    if local is not None:
        found = _list_local(folder, local)
    else:
        if not file_systems.is_there(folder):
            raise FileNotFoundError(f"{folder} does not exist")
        found = [
            StoredArchive(folder, each.relative_path, each.size_bytes, each.modified_ms or 0)
            for each in file_systems.files_below(folder, is_recursive=False)
            if _JOB_NAME.fullmatch(each.relative_path)
        ]
    return sorted(found, key=lambda each: (-each.modified_ms, each.job))


@contextlib.contextmanager
def open_archive(archive: StoredArchive) -> Generator[RangeReader, None, None]:
    """Open an archive for reading."""
    local = _local_path(archive.folder)
    if local is None:
        with file_systems.open_input(archive.uri) as file:
            yield _RemoteFile(file)
        return
    # Checked on the open file, as the name may belong to another file a moment later.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(local / archive.job, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{local / archive.job} is not a regular file")
        yield _LocalFile(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def delete_archive(archive: StoredArchive) -> None:
    """Delete an archive; a link is deleted itself, not its target."""
    local = _local_path(archive.folder)
    if local is None:
        file_systems.remove_file(archive.uri)
    else:
        (local / archive.job).unlink(missing_ok=True)


class _LocalFile:
    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor: Final = descriptor
        self.size_bytes: Final = size_bytes

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)


class _RemoteFile:
    def __init__(self, file: Any) -> None:
        self._file: Final = file

    @property
    def size_bytes(self) -> int:
        return self._file.size()

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._file.read_at(length, offset))


def _local_path(folder: str) -> Path | None:
    if not file_systems.is_uri(folder):
        return Path(folder)
    parts = urlsplit(folder)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _list_local(folder: str, path: Path) -> list[StoredArchive]:
    found: list[StoredArchive] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if not _JOB_NAME.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            # Deleted meanwhile by another history server.
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                modified_ms = status.st_mtime_ns // 1_000_000
                found.append(StoredArchive(folder, entry.name, status.st_size, modified_ms))
    return found
