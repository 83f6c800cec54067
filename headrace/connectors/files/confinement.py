"""Names within a folder, and nowhere else: what a note or a committable names is looked at before it is used.

Whoever may write in a sink's folder could otherwise have the driver delete, or publish, files of its user elsewhere.
"""

import os
from pathlib import PurePosixPath
from typing import Any

from pyarrow import fs

from headrace.core.errors import ErrorDomain, HeadraceError


class PathOutsideError(HeadraceError):
    """A name leads out of the folder that it belongs to. Nothing was done with it."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, folder: str, name: str, reason: str) -> None:
        super().__init__(
            f"'{name}' is no name of a file below {folder}: {reason}; nothing was deleted or moved. See who may write "
            "in that folder"
        )
        self.folder = folder
        self.name = name


def place_below(file_system: Any, folder: str, name: str) -> str:
    """Return the path of `name` below `folder`, which may itself be a link. PathOutsideError.

    Refused are absolute names, `..`, and on local file systems whatever lies behind a link below the folder.
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
    """Whether a path is itself a link of a local file system."""
    return isinstance(file_system, fs.LocalFileSystem) and os.path.islink(path)


def _link_in(folder: str, name: str) -> str:
    below = PurePosixPath(name)
    for part in (*reversed(below.parents), below):
        path = os.path.join(folder, part)
        if part.parts and os.path.islink(path):
            return path
    return ""
