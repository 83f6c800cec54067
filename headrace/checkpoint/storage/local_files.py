"""Files of this machine, written with the operating system's own calls: durable, created only if absent. OSError."""

import contextlib
import errno
import os
from collections.abc import Iterable
from typing import Any, Final

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
OWNER_ONLY: Final = 0o700
"""Permissions of folders that only their owner can access."""


def write_local(path: str, parts: Iterable[bytes | memoryview], *, is_durable: bool = True) -> None:
    """Write a new file; durable when this returns. FileExistsError."""
    with _new_local(path) as file:
        for part in parts:
            file.write(part)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())


def _new_local(path: str) -> Any:
    try:
        return open(path, "xb", opener=_open_as_in_its_folder)
    except FileNotFoundError:
        make_local(os.path.dirname(path), OWNER_ONLY)
        return open(path, "xb", opener=_open_as_in_its_folder)


def _open_as_in_its_folder(path: str, flags: int) -> int:
    """Open a file with the folder's permissions.

    Users without access to the folder then cannot read its files either, even if these are moved or linked elsewhere.
    """
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    return os.open(path, flags, mode)


def make_local(path: str, mode: int) -> None:
    """Make a folder and its parents, if they do not exist."""
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        # A file of that name, or a broken link, is reported below.
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode)
    if missing and not os.path.isdir(missing[0]):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), missing[0])


def put_local(path: str, temporary: str, content: bytes) -> bool:
    """Create a file with this content unless it exists, atomically and durably; return whether it was created.

    `temporary`: an unused name in the same folder.
    """
    try:
        write_local(temporary, [content])
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS or not os.path.exists(temporary):
            raise
        return _put_by_claim(path, temporary)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_path(os.path.dirname(path))
    return True


def _put_by_claim(path: str, temporary: str) -> bool:
    """Publish a file without hard links: only the caller that creates the claim file may rename; claims are kept."""
    try:
        claim = f"{path}.claim"
        os.close(_open_as_in_its_folder(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        return False  # `refuse_claimed` was there before
    except OSError:
        os.unlink(claim)
        raise
    sync_path(os.path.dirname(path))
    return True


def refuse_claimed(path: str) -> None:
    """Prevent a writer that has claimed a file, but has stopped, from publishing it."""
    if os.path.exists(path) or not os.path.exists(f"{path}.claim"):
        return
    folder, name = os.path.split(path)
    for entry in os.listdir(folder):
        if entry.startswith(f".{name}."):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, entry))


def sync_path(path: str) -> None:
    """Sync a file or folder to disk; a file's content also needs its name in the folder to be synced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
