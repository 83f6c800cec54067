"""The interpreter of a process: warms up pyarrow, freezes garbage, extends the import path, tells its flags."""

import gc
import importlib
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final


def settle_interpreter() -> None:
    """Load what the first batch would load, and leave all that is there by now out of garbage collection.

    pyarrow loads pandas, where it is installed, when it first makes an array of numpy's: half a second, in which the
    first records of a task would wait. And a full collection walks through every object of every module, 100,000 of
    them: 50 ms, in which all threads of a TaskManager stand still.
    """
    # Imported late: commands only extend the import path.
    import numpy as np
    import pyarrow as pa

    pa.array(np.empty(0))
    gc.freeze()


ARCHIVES = (".zip", ".egg", ".whl")
_PATH_LOCK: Final = threading.Lock()
"""Tasks begin on threads of their own, and of two that invalidate the same cache one fails (KeyError, up to 3.12)."""


def put_on_path(files: Iterable[Path]) -> None:
    """Make `files` importable here: a module's folder, a package's parent, a plain folder or an archive itself."""
    for path in files:
        entry = str(path if is_archive(path) or is_plain_folder(path) else path.parent)
        with _PATH_LOCK:
            if entry not in sys.path:
                sys.path.insert(1, entry)
                # What was looked for in vain before may be there now.
                importlib.invalidate_caches()


def is_archive(path: Path) -> bool:
    """Return whether Python imports from the file itself."""
    return path.suffix in ARCHIVES


def is_plain_folder(path: Path) -> bool:
    """Return whether it is a folder of modules, and no package."""
    return path.is_dir() and not (path / "__init__.py").exists()


def interpreter_options() -> list[str]:
    """Return the flags that this interpreter was given, never arguments of the program."""
    flags = [
        f"{name}={int(value)}"
        for name in dir(sys.flags)
        if not name.startswith(("_", "n_", "count", "index"))
        and (value := getattr(sys.flags, name))
    ]
    # The only way to the options that were given with -X.
    given = sys._xoptions  # pyright: ignore[reportPrivateUsage]
    extensions = [
        f"-X {name}" if value is True else f"-X {name}={value}" for name, value in given.items()
    ]
    return [*flags, *extensions, *(f"-W {each}" for each in sys.warnoptions)]
