"""SubtaskStorage and StateReader: write a subtask's part of a snapshot, and read restored state.

A file gets its final name at once, because it is not read until the metadata that names it is published. Small content
stays inside its handle. Content is checked against its digest before it is used.
Source: Flink FsCheckpointStreamFactory, MemCheckpointStreamFactory.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from headrace.checkpoint.errors import CheckpointCorruptedError, CheckpointStorageError
from headrace.checkpoint.handles import StateFile
from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, DATA_INLINE_THRESHOLD
from headrace.checkpoint.storage.file_systems import (
    STREAM_BYTES,
    child_uri,
    read_all,
    read_parts,
    write_new,
)
from headrace.core.barriers import CheckpointOptions
from headrace.core.config import Settings
from headrace.core.randomness import SeededRandom, system_random

DIGEST_BYTES: Final = 16
IN_MEMORY_MAX: Final = 5 << 20
"""Largest piece of state in bytes that is kept in the driver's memory. Source: Flink JobManagerCheckpointStorage."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")


class SubtaskStorage:
    """Writes the files of one subtask's part of one checkpoint; a SnapshotWriter. Any thread.

    `name_prefix` names the attempt, for people who read the folder; random digits make names unique. Without an
    exclusive URI all content stays inside the handles.
    """

    def __init__(
        self,
        options: CheckpointOptions,
        name_prefix: str,
        settings: Settings,
        random: SeededRandom | None = None,
    ) -> None:
        self._options = options
        self._prefix = name_prefix
        self._threshold = settings.get_option(DATA_INLINE_THRESHOLD)
        self._random = system_random() if random is None else random
        self.written_bytes = 0
        """Bytes of the files written so far, without content inside handles."""

    def write(
        self, name: str, content: bytes | memoryview, *, is_shared: bool = False
    ) -> StateFile:
        """Store content and return its handle. CheckpointStorageError."""
        view = memoryview(content).cast("B")
        if self._stays_inside(name, view.nbytes):
            whole = bytes(view)
            return StateFile("", whole, len(whole), digest_of(whole))
        uri, is_shared = self._new_uri(name, is_shared)
        write_new(uri, [view])
        return self._wrote(StateFile(uri, b"", view.nbytes, digest_of(view), is_shared))

    def write_file(self, name: str, path: str, *, is_shared: bool = False) -> StateFile:
        """Store a file of this machine, in pieces. CheckpointStorageError."""
        try:
            size = os.path.getsize(path)
            if self._stays_inside(name, size):
                return self.write(name, Path(path).read_bytes())
        except OSError as error:
            raise CheckpointStorageError.of("read", path, error) from error
        uri, is_shared = self._new_uri(name, is_shared)
        counted = _Counted(_parts_of(path))
        write_new(uri, counted)
        return self._wrote(StateFile(uri, b"", counted.size_bytes, counted.digest(), is_shared))

    def _stays_inside(self, name: str, size_bytes: int) -> bool:
        if self._options.exclusive_uri:
            return size_bytes < self._threshold
        if size_bytes > IN_MEMORY_MAX:
            raise CheckpointStorageError(
                "keep",
                f"{self._prefix}-{name} in the driver's memory",
                f"it has {size_bytes} bytes, but at most {IN_MEMORY_MAX} are kept in memory",
                f"set {CHECKPOINT_DIRECTORY.key}",
            )
        return True

    def _new_uri(self, name: str, is_shared: bool) -> tuple[str, bool]:
        """Return a file's URI, and whether later checkpoints may refer to it, which needs a shared folder."""
        unique = self._random.randbytes(8).hex()
        label = _UNFIT.sub("_", f"{self._prefix}-{name}")[:120]
        is_shared = is_shared and bool(self._options.shared_uri)
        folder = self._options.shared_uri if is_shared else self._options.exclusive_uri
        return child_uri(folder, f"{label}-{unique}"), is_shared

    def _wrote(self, file: StateFile) -> StateFile:
        self.written_bytes += file.size_bytes
        return file


class StateReader:
    """Reads stored state, by its handles; a SnapshotReader. Any thread."""

    def read(self, file: StateFile) -> memoryview:
        """Return the content after checking its digest. CheckpointCorruptedError, CheckpointStorageError."""
        content = memoryview(file.content) if not file.uri else read_all(file.uri)
        _check(file, content.nbytes, digest_of(content))
        return content

    def fetch(self, file: StateFile, path: str) -> None:
        """Copy a file to this machine, in pieces; `path` appears only after its digest was checked.

        The errors of `read`.
        """
        partial = f"{path}.part"
        counted = _Counted([file.content] if not file.uri else read_parts(file.uri))
        try:
            with open(partial, "wb") as target:
                target.writelines(counted)
            _check(file, counted.size_bytes, counted.digest())
            os.replace(partial, path)
        except OSError as error:
            raise CheckpointStorageError.of("write", path, error) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)

    def verify(self, file: StateFile) -> None:
        """Read the content in pieces and check its digest. The errors of `read`."""
        counted = _Counted([file.content] if not file.uri else read_parts(file.uri))
        for _ in counted:
            pass
        _check(file, counted.size_bytes, counted.digest())


def digest_of(content: bytes | memoryview) -> bytes:
    """Return the digest that handles contain: BLAKE2b with 16 bytes."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


class _Counted:
    """Yields pieces, and counts their size and digest."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = parts
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            self._hash.update(part)
            self.size_bytes += len(part)
            yield part

    def digest(self) -> bytes:
        return self._hash.digest()


def _parts_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as source:
        while part := source.read(STREAM_BYTES):
            yield part


def _check(file: StateFile, size_bytes: int, digest: bytes) -> None:
    if size_bytes != file.size_bytes:
        what = f"it has {size_bytes} bytes, but had {file.size_bytes} when it was written"
        raise CheckpointCorruptedError(file.uri, what)
    if digest != file.digest:
        what = f"its digest is {digest.hex()}, but was {file.digest.hex()} when it was written"
        raise CheckpointCorruptedError(file.uri, what)
