"""Paths and URIs of files: finds their file system, lists the files below them, and syncs local ones to disk.

`place_below` keeps names within a folder: otherwise anybody with access to a sink's folder could make the driver delete
or publish its user's files elsewhere, because notes and committables name files.

Local files survive a loss of power only once their bytes and their names are synced; other file systems are durable
themselves.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from headrace.checkpoint.storage.file_systems import is_uri
from headrace.checkpoint.storage.local_files import sync_path
from headrace.core.errors import ErrorDomain, HeadraceError


class PathOutsideError(HeadraceError):
    """Raised if a name leads out of its folder. The file was not touched."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, folder: str, name: str, reason: str) -> None:
        super().__init__(
            f"'{name}' is not the name of a file below {folder}: {reason}; nothing was deleted or moved. Check who "
            "has write access to that folder"
        )
        self.folder = folder
        self.name = name


def place_below(file_system: Any, folder: str, name: str) -> str:
    """Return the path of `name` below `folder`, which may itself be a link. PathOutsideError.

    Absolute names and `..` are refused, and on local file systems also paths through links below the folder.
    """
    if name.startswith("/") or "\0" in name:
        raise PathOutsideError(folder, name, "it is absolute")
    if not name or any(part in ("", ".", "..") for part in name.split("/")):
        raise PathOutsideError(folder, name, "it has an empty part, '.' or '..'")
    path = f"{folder}/{name}"
    if isinstance(file_system, fs.LocalFileSystem):
        link = _link_in(folder, name)
        if link:
            raise PathOutsideError(folder, name, f"{link} is a link")
    return path


def is_link(file_system: Any, path: str) -> bool:
    """Return whether a path is itself a link of a local file system."""
    return isinstance(file_system, fs.LocalFileSystem) and os.path.islink(path)


def _link_in(folder: str, name: str) -> str:
    below = PurePosixPath(name)
    for part in (*reversed(below.parents), below):
        path = os.path.join(folder, part)
        if part.parts and os.path.islink(path):
            return path
    return ""


def fixed_place(path: str) -> str:
    """Return a URI unchanged, and a path as an absolute one, relative to the program's folder."""
    return path if is_uri(path) else str(Path(path).absolute())


def file_system_of(path: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a path or URI, and the path on it."""
    if is_uri(path):
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), str(Path(path).absolute())


@dataclass(frozen=True)
class FoundFile:
    """A file: the path or URI under which it was found, and its name on that file system."""

    root: str
    name: str
    size: int
    modified_ns: int

    @property
    def identity(self) -> str:
        """Return a key that is equal if the same file is found twice, and different on different stores."""
        place = urlsplit(self.root) if is_uri(self.root) else None
        return (
            f"{place.scheme}://{place.netloc}/{self.name}" if place and place.netloc else self.name
        )


class SourcePathNotFoundError(FileNotFoundError):
    """Raised if a file source's path does not exist when the job begins. Not recoverable: restarts would not help."""

    recoverable = False

    def __init__(self, path: str) -> None:
        super().__init__(f"the file source's path '{path}' does not exist")


def list_files(paths: Sequence[str]) -> list[FoundFile]:
    """Return every file in the given files and folders, ordered by name within each of them.

    Folders are searched recursively; names that begin with `.` or `_` are hidden, as unfinished output is.
    SourcePathNotFoundError for a path that does not exist.
    """
    found: list[FoundFile] = []
    for path in paths:
        file_system, place = file_system_of(path)
        info = file_system.get_file_info(place)
        if info.type == fs.FileType.NotFound:
            raise SourcePathNotFoundError(path)
        if info.type == fs.FileType.File:
            found.append(_found(path, info))
            continue
        listed = file_system.get_file_info(fs.FileSelector(place, recursive=True))
        files = [one for one in listed if one.type == fs.FileType.File]
        for one in sorted(files, key=lambda file: file.path):
            if not _is_hidden(one.path[len(place) :]):
                found.append(_found(path, one))
    return found


def _found(root: str, info: Any) -> FoundFile:
    # Some stores do not say when a file was written.
    return FoundFile(root, info.path, info.size, info.mtime_ns or 0)


def _is_hidden(relative_path: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative_path.split("/") if part)


def persist_file(file_system: Any, path: str) -> None:
    """Sync a complete file's bytes to disk. If it is renamed later, `persist_names` is needed too. OSError."""
    if isinstance(file_system, fs.LocalFileSystem):
        sync_path(path)


def persist_names(file_system: Any, base_path: str, paths: Iterable[str]) -> None:
    """Sync the names of files below `base_path`, and of their folders, to disk. OSError."""
    if not isinstance(file_system, fs.LocalFileSystem):
        return
    base_path = base_path.rstrip("/")
    folders: set[str] = set()
    for path in paths:
        folders.add(base_path or "/")
        folder = path.rpartition("/")[0]
        while folder not in folders and folder.startswith(f"{base_path}/"):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    # The innermost first: the content of a name is durable before the name.
    for folder in sorted(folders, reverse=True):
        sync_path(folder)
