"""OverviewCache: what a history server has read from its archives, in a file, so that it need not read them all again.

It saves time and nothing else: an entry counts only where the archive still has the size and the time that it had, and
a file that is damaged is made anew.
"""

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.errors import DECODE_ERRORS
from headrace.rest.client_errors import ConnectionFileError
from headrace.rest.home import (
    read_private_file,
    write_private_file,
)

_LOG: Final = logging.getLogger(__name__)
_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 1 << 29


class CachedOverview(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One archive: its folder, name, size and time, and the job as lists show it, as JSON."""

    folder: str
    job: str
    size_bytes: int
    modified_ms: int
    overview: bytes


class _Content(msgspec.Struct, frozen=True):
    version: int
    overviews: list[CachedOverview]


class OverviewCache:
    """A file of this machine, for its owner alone. `folders`: those whose archives it is about. Calls block."""

    def __init__(self, directory: Path, folders: Iterable[str]) -> None:
        name = hashlib.sha256("\n".join(folders).encode()).hexdigest()[:16]
        self._directory: Final = directory
        self.file: Final = directory / f"overview-{name}.msgpack"

    def read(self) -> list[CachedOverview]:
        """Return what was kept; nothing where there is no such file, or one that was not written like this."""
        try:
            content = read_private_file(self.file, _FILE_BYTES_MAX)
        except FileNotFoundError:
            return []
        except ConnectionFileError as error:
            _LOG.warning("%s is not used: %s", self.file, error.reason)
            return []
        try:
            found = msgspec.msgpack.decode(content, type=_Content)
        except DECODE_ERRORS as error:
            _LOG.warning("%s is damaged, and made anew: %s", self.file, error)
            return []
        return found.overviews if found.version == _VERSION else []

    def write(self, overviews: Iterable[CachedOverview]) -> None:
        """Keep these, in place of what was kept before; that it cannot be done is told in the log."""
        content = msgspec.msgpack.encode(_Content(_VERSION, list(overviews)))
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self.file, content)
        except OSError as error:
            _LOG.warning(
                "%s cannot be written, so that the next start reads all archives: %s",
                self.file,
                error,
            )
