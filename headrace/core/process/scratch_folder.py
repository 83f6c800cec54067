"""Scratch folders: for files that end with their process; the next process removes those of a killed one.

    locked by its process ──removed, or the process ends──► unlocked ──another folder is made next to it──► deleted

The kernel's lock (`flock`) on the folder itself shows whether its process lives, in any container. Folders of other
users, links, and folders that were never locked are not touched.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import Final

from headrace.core.process.process_start import kernel_word

_SUFFIX: Final = f".{kernel_word()}"
"""Suffix of the names: the kernel that holds the lock. Another kernel, with a shared disk, may not see the lock."""
_TRIES: Final = 100
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Held:
    """Open folders of this process. Any thread may make or remove a folder."""

    lock: Final = threading.Lock()
    descriptors: Final[dict[Path, int]] = {}


def make_scratch_folder(prefix: str, parent: Path | None = None) -> Path:
    """Make a folder, accessible to this user alone, below `parent`, by default the system's temporary folder. OSError.

    Folders with this prefix in `parent` whose process has ended are removed first.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep(prefix, parent)
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=parent))
        try:
            descriptor = _locked(folder)
        except OSError:
            return folder  # a file system without such locks, where no process sweeps either
        if descriptor is None:
            continue  # another process swept it before it was locked
        with _Held.lock:
            _Held.descriptors[folder] = descriptor
        return folder
    raise FileExistsError(
        f"every new folder '{prefix}…' below {parent} was removed at once by another program"
    )


def remove_scratch_folder(folder: Path) -> None:
    """Remove a folder with everything in it. Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)
    with _Held.lock:
        descriptor = _Held.descriptors.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _sweep(prefix: str, parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in parent.glob(f"{prefix}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            descriptor = _locked(folder)
            if descriptor is not None:
                try:
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """Lock the folder and return its descriptor, or None if another process holds the lock, or the folder is gone.

    OSError.
    """
    descriptor: int | None = None
    try:
        descriptor = os.open(folder, _FLAGS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.lstat()):
            held, descriptor = descriptor, None
            return held
    except (FileNotFoundError, BlockingIOError):
        return None
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return None
