"""Paths and URIs of files: which file system holds them, and which files a path stands for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyarrow import fs


def fixed_place(path: str) -> str:
    """Return a URI as it is, and a path as an absolute one: a relative path means the folder of the program."""
    return path if _is_uri(path) else str(Path(path).absolute())


def file_system_of(path: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a path or URI, and the path on it."""
    if _is_uri(path):
        return fs.FileSystem.from_uri(path)
    return fs.LocalFileSystem(), str(Path(path).absolute())


def list_files(paths: Sequence[str]) -> list[tuple[Any, str]]:
    """Return (file system, file) of every file in the given files and folders, ordered by name.

    Folders are searched through; names that begin with `.` or `_` are hidden, as unfinished output is.
    FileNotFoundError for a path that does not exist.
    """
    found: list[tuple[Any, str]] = []
    for path in paths:
        file_system, place = file_system_of(path)
        info = file_system.get_file_info(place)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"the file source's path '{path}' does not exist")
        if info.type == fs.FileType.File:
            found.append((file_system, place))
            continue
        listed = file_system.get_file_info(fs.FileSelector(place, recursive=True))
        names = sorted(one.path for one in listed if one.type == fs.FileType.File)
        found += [(file_system, name) for name in names if not _is_hidden(name[len(place) :])]
    return found


def _is_uri(path: str) -> bool:
    return "://" in path or path.startswith("file:")


def _is_hidden(relative_path: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative_path.split("/") if part)
