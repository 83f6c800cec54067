"""What local files need to survive a loss of power: their bytes and, apart from those, their names.

Other file systems answer for what they have taken, so that nothing is to be done there.
"""

import os
from collections.abc import Iterable
from typing import Any

from pyarrow import fs


def persist_file(file_system: Any, path: str) -> None:
    """Have a complete file's bytes survive. A name that it is given later needs `persist_names` too. OSError."""
    if isinstance(file_system, fs.LocalFileSystem):
        _sync(path)


def persist_names(file_system: Any, base_path: str, paths: Iterable[str]) -> None:
    """Have the names of files below `base_path` survive, with those of the folders they are in. OSError."""
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
    # The innermost first: what a name stands for is there before the name.
    for folder in sorted(folders, reverse=True):
        _sync(folder)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
