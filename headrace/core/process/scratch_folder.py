"""Scratch folders: for files that end with their process; what a killed process has left, the next one removes.

    held by its process ──removed, or the process ends──► held by nobody ──another one is made beside it──► gone

The kernel's lock (`flock`) on the folder itself says whether its process lives, whatever container that is in. Folders
that are not this user's, links, and those that no lock was ever taken on are left alone.
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
"""Ending of the names: the kernel that keeps the lock. Another one, on a shared disk, may know nothing of it."""
_TRIES: Final = 100
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Held:
    """Open folders of this process. Any thread may make or remove one."""

    lock: Final = threading.Lock()
    descriptors: Final[dict[Path, int]] = {}


def make_scratch_folder(prefix: str, parent: Path | None = None) -> Path:
    """Make a folder of this user's alone below `parent`, by default the system's for temporary files. OSError.

    Folders with this prefix beside it whose process has ended are removed first.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep(prefix, parent)
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=parent))
        try:
            descriptor = _locked(folder)
        except OSError:
            return folder  # a file system without such locks, where nobody sweeps either
        if descriptor is None:
            continue  # somebody who sweeps has found it before it was held
        with _Held.lock:
            _Held.descriptors[folder] = descriptor
        return folder
    raise FileExistsError(
        f"no folder '{prefix}…' below {parent} stays: something removes each at once"
    )


def remove_scratch_folder(folder: Path) -> None:
    """Remove a folder with everything in it. Idempotent."""
    shutil.rmtree(folder, ignore_errors=True)
    with _Held.lock:
        descriptor = _Held.descriptors.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def _sweep(prefix: str, parent: Path) -> None:
    """Remove what processes have left that were killed."""
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
    """Return the open folder with its lock, or None where another process has that, or the folder is gone. OSError."""
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
