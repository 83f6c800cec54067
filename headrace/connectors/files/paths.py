"""Paths and URIs of files: which file system holds them, and which files a path stands for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs


def fixed_place(path: str) -> str:
    """Return a URI as it is, and a path as an absolute one: a relative path means the folder of the program."""
    return path if _is_uri(path) else str(Path(path).absolute())


def file_system_of(path: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a path or URI, and the path on it."""
    if _is_uri(path):
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), str(Path(path).absolute())


@dataclass(frozen=True)
class FoundFile:
    """A file, by the path or URI that it was looked for under and its name on that file system."""

    root: str
    name: str
    size: int
    modified_ns: int

    @property
    def identity(self) -> str:
        """The same for a file that is found twice, different for files of equal names on two stores."""
        place = urlsplit(self.root) if _is_uri(self.root) else None
        return (
            f"{place.scheme}://{place.netloc}/{self.name}" if place and place.netloc else self.name
        )


class SourcePathNotFoundError(FileNotFoundError):
    """What a job was told to read is not there when it begins: it would be restarted again and again for nothing."""

    recoverable = False

    def __init__(self, path: str) -> None:
        super().__init__(f"the file source's path '{path}' does not exist")


def list_files(paths: Sequence[str]) -> list[FoundFile]:
    """Return every file in the given files and folders, for each of them ordered by name.

    Folders are searched through; names that begin with `.` or `_` are hidden, as unfinished output is.
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


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:")


def _is_hidden(relative_path: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative_path.split("/") if part)
