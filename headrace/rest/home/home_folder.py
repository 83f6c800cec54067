"""Home: the user's folder through which clusters and commands on one machine find each other, and its files.

Home is HEADRACE_HOME, or `.headrace` in the user's own folder. Its files may contain secrets: only their owner
may access them, and a file that others could have read or written is not used.
"""

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final

from headrace.rest.client_errors import ConnectionFileError, HomeFolderError

HOME_VARIABLE: Final = "HEADRACE_HOME"
_FILE_BYTES_MAX: Final = 1 << 16


def headrace_home() -> Path:
    """Return the folder through which a user's clusters and clients find each other."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".headrace"


@contextlib.contextmanager
def writing_in_home() -> Generator[None]:
    """Context that turns an OSError into HomeFolderError, for code that writes to the user's home."""
    try:
        yield
    except OSError as error:
        is_given = bool(os.environ.get(HOME_VARIABLE))
        raise HomeFolderError(
            headrace_home(), HOME_VARIABLE, is_given=is_given, cause=error
        ) from None


def write_private_file(file: Path, content: bytes) -> None:
    """Write a file for its owner only, atomically; links are not followed."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as out:
            out.write(content)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_private_file(file: Path, size_max_bytes: int = _FILE_BYTES_MAX) -> bytes:
    """Return the content of a file that only its owner could read and write. ConnectionFileError; FileNotFoundError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConnectionFileError(file, f"the file cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as opened:
        # Checked on the open file, as the name may belong to another file a moment later.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConnectionFileError(file, "the file is not a regular file")
        if status.st_uid != os.geteuid():
            raise ConnectionFileError(file, f"another user ({status.st_uid}) owns the file")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConnectionFileError(
                file, "users other than its owner may read it: chmod 600, and restart the cluster"
            )
        return opened.read(size_max_bytes)
