"""Log folders of clusters beside each other: those of ended clusters go, by number and age; those in use stay.

A process that writes into a folder holds a shared lock on it, which the kernel takes back however the process ends.
"""

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Final

from headrace.core.config import Settings
from headrace.core.process.log_options import LOG_FOLDERS_AGE, LOG_FOLDERS_MAX

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"headrace-\d{8}-\d{6}-\d+(-\d+)?")
_YOUNG_MS: Final = 15 * 60_000
"""Age below which a folder stays: whoever it was made for may not have begun to write."""
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderInUse:
    """A folder that this process writes into, until `close`. Where it cannot be locked, it is kept by its age alone."""

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(folder, _OPEN_FLAGS)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            _LOG.debug("log folder %s cannot be locked: %s", folder, error)

    def close(self) -> None:
        """Use it no longer. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def remove_ended_folders(parent: Path, settings: Settings, now_ms: int, *, but: Path) -> None:
    """Remove log folders of ended clusters in `parent` that are too old or too many; `but` counts and stays.

    Links, and folders of other names or of other users, are nobody's business here.
    """
    kept_count, age_max_ms = (
        settings.get_option(LOG_FOLDERS_MAX),
        settings.duration_ms(LOG_FOLDERS_AGE),
    )
    try:
        found = sorted(_folders(parent), reverse=True)
    except OSError as error:
        _LOG.warning("old log folders in %s are not removed: %s", parent, error)
        return
    removed = 0
    for place, (modified_ms, folder) in enumerate(found):
        age_ms = now_ms - modified_ms
        is_surplus = place >= kept_count or age_ms > age_max_ms
        if folder != but and is_surplus and age_ms > _YOUNG_MS and _remove(folder):
            removed += 1
    if removed:
        _LOG.warning(
            "removed %d log folders of ended clusters in %s: %s is %d, %s %g days",
            removed, parent, LOG_FOLDERS_MAX.key, kept_count, LOG_FOLDERS_AGE.key, age_max_ms / 86_400_000,
        )  # fmt: skip


def _folders(parent: Path) -> list[tuple[int, Path]]:
    """Return log folders with the times at which something in them was last written."""
    found: list[tuple[int, Path]] = []
    with os.scandir(parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
                if is_ours and _NAME.fullmatch(entry.name):
                    found.append((_modified_ms(Path(entry.path), status), Path(entry.path)))
    return found


def _modified_ms(folder: Path, status: os.stat_result) -> int:
    times = [status.st_mtime_ns]
    with os.scandir(folder) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
    return max(times) // 1_000_000


def _remove(folder: Path) -> bool:
    """Remove a folder unless somebody uses it; return whether it is gone."""
    try:
        descriptor = os.open(folder, _OPEN_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    except OSError as error:
        _LOG.debug("log folder %s stays: %s", folder, error)
        return False
    finally:
        os.close(descriptor)
    return True
