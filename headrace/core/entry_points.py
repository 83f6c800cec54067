"""Entry points: things that installed packages offer by name, found without importing any of them."""

import functools
import importlib.metadata
import sys
from typing import Any


def entry_point_names(group: str) -> tuple[str, ...]:
    """Return the names in `group` of all installed packages, sorted."""
    return tuple(sorted({point.name for point in _of_group(group)}))


def load_entry_point(group: str, name: str) -> Any:
    """Import and return what `name` stands for in `group`; LookupError where nothing is installed under it."""
    for point in _of_group(group):
        if point.name == name:
            return point.load()
    raise LookupError(f"nothing called '{name}' is installed in the entry points of '{group}'")


def _of_group(group: str) -> importlib.metadata.EntryPoints:
    return _installed(group, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _installed(group: str, _path: tuple[str, ...]) -> importlib.metadata.EntryPoints:
    """Return what is found along the path, which is read once: that takes milliseconds, for each source of a job."""
    return importlib.metadata.entry_points(group=group)
