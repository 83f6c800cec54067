"""A file system with configured faults: full, torn, lagging, unanswered. For tests of checkpoint storage.

Reached by URI, `faulty:///folder?seed=3&fail_writes=0.1`, so that every process of a cluster can be given it:

    fail_writes=0.1      one write in ten is refused, some after half of the content
    full_after=1000000   limit of bytes over all writes of the process from then on
    torn_writes=0.1      one write in ten silently loses its end
    lost_answers=0.1     one change in ten is made, and reported as failed
    stale_listings=0.5   one listing in two repeats the last one
    fail_reads=0.1       one read in ten fails
    slow_ms=50           every operation takes this much longer
    control=/a/file      this file replaces the other options, in the same form; it may change at any time

Random faults depend on `seed`; equal URIs share them, so that `run=…` separates two runs. Files are in the
local folder. With `control` each fault leaves a byte in the file `<control>.struck`, whichever process meets it.
"""

import errno
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from headrace.core.randomness import SeededRandom


@dataclass
class StorageFaults:
    """Faults to inject: chances in [0, 1], `full_after` in bytes, `slow_ms` per operation.

    Changes take effect at once.
    """

    seed: int = 0
    fail_writes: float = 0.0
    full_after: float = float("inf")
    torn_writes: float = 0.0
    lost_answers: float = 0.0
    stale_listings: float = 0.0
    fail_reads: float = 0.0
    slow_ms: float = 0.0
    written_bytes: int = 0
    control: Path | None = None
    random: SeededRandom = field(default_factory=SeededRandom, repr=False)

    def __post_init__(self) -> None:
        self.random = SeededRandom(self.seed)
        self._control_text = ""

    @classmethod
    def parse(cls, query: str) -> "StorageFaults":
        """Return the faults in a URI's query; ValueError for an unknown fault."""
        given = dict(parse_qsl(query))
        given.pop("run", None)
        faults = cls(seed=int(given.pop("seed", "0")))
        if control := given.pop("control", ""):
            faults.control = Path(control)
        faults._set(given)
        return faults

    def begin(self) -> None:
        """Begin an operation: read the present faults, and wait `slow_ms`."""
        if self.control is not None:
            text = self.control.read_text() if self.control.exists() else ""
            if text != self._control_text:
                self._control_text = text
                self.written_bytes = 0
                self.heal()
                self._set(dict(parse_qsl(text)))
        if self.slow_ms > 0:
            self.note()
            threading.Event().wait(self.slow_ms / 1000)

    def note(self) -> None:
        """Record that a fault happened."""
        if self.control is not None:
            with open(f"{self.control}.struck", "ab") as file:
                file.write(b".")

    def _set(self, given: dict[str, str]) -> None:
        for name, value in given.items():
            if name not in _FAULTS:
                raise ValueError(f"there is no fault '{name}': choose from {', '.join(_FAULTS)}")
            setattr(self, name, float(value))

    def heal(self) -> None:
        """Remove all faults."""
        for name in _FAULTS:
            setattr(self, name, 0.0)
        self.full_after = float("inf")

    def strikes(self, chance: float) -> bool:
        """Draw whether a fault of this chance happens now."""
        if chance <= 0 or self.random.random() >= chance:
            return False
        self.note()
        return True


_FAULTS: Final = (
    "fail_writes",
    "full_after",
    "torn_writes",
    "lost_answers",
    "stale_listings",
    "fail_reads",
    "slow_ms",
)


def faults_of(query: str) -> StorageFaults:
    """Return the faults that all URIs with this query share in this process."""
    return _shared(query)[1]


def open_faulty(uri: str) -> tuple[fs.PyFileSystem, str]:
    """Open the folder of a `faulty` URI; see `register_file_system`."""
    parts = urlsplit(uri)
    return _shared(parts.query)[0], parts.path


@lru_cache(maxsize=64)
def _shared(query: str) -> tuple[fs.PyFileSystem, StorageFaults]:
    faults = StorageFaults.parse(query)
    return fs.PyFileSystem(FaultyHandler(fs.LocalFileSystem(), faults)), faults


class FaultyHandler(fs.FileSystemHandler):
    """Passes operations on to another file system unless a fault happens."""

    def __init__(self, inner: Any, faults: StorageFaults) -> None:
        self._inner = inner
        self._faults = faults
        self._listed: dict[tuple[str, bool], list[Any]] = {}

    def get_type_name(self) -> str:
        return "faulty"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        self._fail_read()
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        self._fail_read()
        if not self._faults.strikes(self._faults.stale_listings):
            self._listed[selector.base_dir, selector.recursive] = self._inner.get_file_info(
                selector
            )
        return self._listed.get((selector.base_dir, selector.recursive), [])

    def create_dir(self, path: str, recursive: bool) -> None:
        self._change(lambda: self._inner.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        self._change(lambda: self._inner.delete_dir(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._change(lambda: self._inner.delete_dir_contents(path, missing_dir_ok=missing_dir_ok))

    def delete_root_dir_contents(self) -> None:
        raise OSError(errno.EPERM, "never")

    def delete_file(self, path: str) -> None:
        self._change(lambda: self._inner.delete_file(path))

    def move(self, src: str, dest: str) -> None:
        self._change(lambda: self._inner.move(src, dest))

    def copy_file(self, src: str, dest: str) -> None:
        self._change(lambda: self._inner.copy_file(src, dest))

    def open_input_stream(self, path: str) -> Any:
        self._fail_read()
        return self._inner.open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        self._fail_read()
        return self._inner.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._faults.begin()
        return pa.PythonFile(
            _FaultyWriter(self._faults, self._inner.open_output_stream(path)), mode="w"
        )

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise OSError(errno.ENOTSUP, "a checkpoint's file cannot be appended to")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def _fail_read(self) -> None:
        self._faults.begin()
        if self._faults.strikes(self._faults.fail_reads):
            raise OSError(errno.EIO, "Input/output error")

    def _change(self, change: Callable[[], None]) -> None:
        self._faults.begin()
        if self._faults.strikes(self._faults.fail_writes):
            raise OSError(errno.EIO, "Input/output error")
        change()
        if self._faults.strikes(self._faults.lost_answers):
            raise OSError(errno.ETIMEDOUT, "Connection timed out")


class _FaultyWriter(io.RawIOBase):
    """A file that is being written; faults happen when it is closed, or in the middle."""

    def __init__(self, faults: StorageFaults, target: Any) -> None:
        super().__init__()
        self._faults = faults
        self._target = target
        self._content = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        part = bytes(data)
        self._faults.written_bytes += len(part)
        if self._faults.written_bytes > self._faults.full_after:
            self._faults.note()
            raise OSError(errno.ENOSPC, "No space left on device")
        self._content += part
        return len(part)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        faults = self._faults
        is_refused = faults.strikes(faults.fail_writes)
        is_torn = faults.strikes(faults.torn_writes)
        if is_refused or is_torn:
            del self._content[len(self._content) // 2 :]
        with self._target:
            self._target.write(bytes(self._content))
        if is_refused:
            raise OSError(errno.EIO, "Input/output error")
        if faults.strikes(faults.lost_answers):
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
