"""Entry points: things that installed packages offer by name, found without importing any of them."""

import importlib.metadata
from typing import Any


def entry_point_names(group: str) -> tuple[str, ...]:
    """Return the names in `group` of all installed packages, sorted."""
    return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=group)}))


def load_entry_point(group: str, name: str) -> Any:
    """Import and return what `name` stands for in `group`; LookupError where nothing is installed under it."""
    for point in importlib.metadata.entry_points(group=group, name=name):
        return point.load()
    raise LookupError(f"nothing called '{name}' is installed in the entry points of '{group}'")
