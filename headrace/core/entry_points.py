"""Entry points: plug-ins that installed packages offer by name, found without importing any of them."""

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def entry_point_names(group: str) -> tuple[str, ...]:
    """Return the names in `group` of all installed packages, sorted."""
    return tuple(sorted({point.name for point in _of_group(group)}))


def load_entry_point(group: str, name: str) -> Any:
    """Import and return the object `name` of `group`; LookupError if nothing is installed under the name."""
    for point in _of_group(group):
        if point.name == name:
            return point.load()
    raise LookupError(f"nothing called '{name}' is installed in the entry points of '{group}'")


def _of_group(group: str) -> "EntryPoints":
    return _installed(group, tuple(sys.path))


@functools.lru_cache(maxsize=16)
def _installed(group: str, _path: tuple[str, ...]) -> "EntryPoints":
    """Return the entry points found along the path, which is read once because that takes milliseconds."""
    # Imported late: `headrace list` and its like need none, and it is a tenth of their time.
    from importlib.metadata import entry_points

    return entry_points(group=group)
