"""The interpreter of a process: warms up pyarrow, freezes garbage, extends the import path, and returns its flags."""

import gc
import importlib
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final


def settle_interpreter() -> None:
    """Load everything that the first batch would load, and exclude all existing objects from garbage collection.

    pyarrow loads pandas, if installed, when it first converts a numpy array: this takes half a second, for which the
    first records of a task would wait. A full garbage collection visits every object of every module, 100,000 of them:
    this stops all threads of a TaskManager for 50 ms.
    """
    # Imported late: commands only extend the import path.
    import numpy as np
    import pyarrow as pa

    pa.array(np.empty(0))
    gc.freeze()


ARCHIVES = (".zip", ".egg", ".whl")
_PATH_LOCK: Final = threading.Lock()
"""Lock for the import path: tasks begin on threads of their own, and concurrent cache invalidation fails (KeyError, up
to 3.12).
"""


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
    """Return whether the path is a folder of modules, but not a package."""
    return path.is_dir() and not (path / "__init__.py").exists()


def interpreter_options() -> list[str]:
    """Return the flags of this interpreter, without arguments of the program."""
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
