"""Home: the user's folder in which clusters and commands of one machine meet, and the files in it.

Home is HEADRACE_HOME, or `.headrace` in the user's own folder. What lies there may hold secrets: its files are for
their owner alone, and one that others could have read or written is not followed.
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
    """Return the folder in which a user's clusters and clients meet."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".headrace"


@contextlib.contextmanager
def writing_in_home() -> Generator[None]:
    """Raise HomeFolderError in place of an OSError: for whoever makes folders and files of the user's home here."""
    try:
        yield
    except OSError as error:
        is_given = bool(os.environ.get(HOME_VARIABLE))
        raise HomeFolderError(
            headrace_home(), HOME_VARIABLE, is_given=is_given, cause=error
        ) from None


def write_private_file(file: Path, content: bytes) -> None:
    """Put a file for its owner alone in place, whole or not at all; nobody's link is followed."""
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
    """Return what is in a file that its owner alone could read and write. ConnectionFileError; FileNotFoundError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConnectionFileError(file, f"it cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as opened:
        # Of the file that is read, whatever has the name a moment later.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConnectionFileError(file, "it is not a regular file")
        if status.st_uid != os.geteuid():
            raise ConnectionFileError(file, f"another user ({status.st_uid}) owns it")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConnectionFileError(
                file, "others than its owner may read it: chmod 600, and start the cluster anew"
            )
        return opened.read(size_max_bytes)
