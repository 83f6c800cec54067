"""The import path of a process, and the user's modules, packages and archives that come onto it."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

ARCHIVES = (".zip", ".egg", ".whl")


def put_on_path(files: Iterable[Path]) -> None:
    """Make `files` importable here: a module's folder, a package's parent, a plain folder or an archive itself."""
    for path in files:
        entry = str(path if is_archive(path) or is_plain_folder(path) else path.parent)
        if entry not in sys.path:
            sys.path.insert(1, entry)
            # What was looked for in vain before may be there now.
            importlib.invalidate_caches()


def is_archive(path: Path) -> bool:
    """Whether Python imports from the file itself."""
    return path.suffix in ARCHIVES


def is_plain_folder(path: Path) -> bool:
    """Whether it is a folder of modules, and no package."""
    return path.is_dir() and not (path / "__init__.py").exists()
