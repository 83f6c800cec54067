"""File system operations for checkpoints, by path or URI. They block, and raise CheckpointStorageError.

Local folders are used with the operating system's own calls (`local_files`), because pyarrow cannot make a file durable
or create one only if it is absent; S3 does that itself (`conditional_writes`). Everything else uses pyarrow.
Source: Flink FileSystem.
"""

import contextlib
import errno
import os
import posixpath
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from headrace.checkpoint.errors import MAKE_FOLDER, PUBLISH, CheckpointStorageError
from headrace.checkpoint.storage.conditional_writes import S3ConditionalWrites
from headrace.checkpoint.storage.local_files import (
    OWNER_ONLY,
    make_local,
    put_local,
    refuse_claimed,
    write_local,
)
from headrace.core.entry_points import entry_point_names, load_entry_point

T = TypeVar("T")
OpenFileSystem: TypeAlias = Callable[[str], tuple[Any, str]]
"""Function from a URI to a pyarrow file system and the path on it."""

ENTRY_POINT_GROUP_FILE_SYSTEMS: Final = "headrace.file_systems"
"""Entry points by URI scheme: functions from a folder's URI to a pyarrow file system and the path on it."""
STREAM_BYTES: Final = 1 << 20
_REMOVAL_ATTEMPTS: Final = 16
_LISTING_ATTEMPTS: Final = 16
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]+")
"""Names of incomplete files in folders: `.<name>.<token>`."""
_LEFTOVER_AGE_MS: Final = 600_000
"""Age at which a temporary file counts as abandoned. A writer that is still alive then fails once."""
_SCHEMES: Final[dict[str, OpenFileSystem]] = {}


@dataclass(frozen=True)
class FileEntry:
    """One file below a folder: URI, path relative to the folder, size, and time of the last change (None: unknown)."""

    uri: str
    relative_path: str
    size_bytes: int
    modified_ms: int | None


def register_file_system(scheme: str, open_file_system: OpenFileSystem) -> None:
    """Register a file system that pyarrow does not know under a URI scheme, in this process."""
    _SCHEMES[scheme] = open_file_system
    _folder_of.cache_clear()


def absolute_uri(path: str) -> str:
    """Return a URI unchanged, and a path as an absolute one, with `~` resolved; without a slash at the end."""
    if not is_uri(path):
        return str(Path(path).expanduser().absolute())
    place, options = _without_options(path)
    return place.rstrip("/") + options


def is_uri(path: str) -> bool:
    """Return whether a text is a URI, which names its file system."""
    return "://" in path or path.startswith("file:")


def is_whole(path: str) -> bool:
    """Return whether a path is independent of the current folder: a URI, or absolute once `~` is resolved."""
    return is_uri(path) or path.startswith(("/", "~"))


def child_uri(uri: str, *names: str) -> str:
    """Return the URI of a file below a folder; options of the file system (`?region=…`) are kept."""
    path, options = _without_options(uri)
    return posixpath.join(path, *names) + options


def parent_uri(uri: str) -> str:
    """Return the URI of the folder of a file."""
    path, options = _without_options(uri)
    return path.rstrip("/").rpartition("/")[0] + options


def path_below(folder_uri: str, uri: str) -> str:
    """Return the path of a file relative to a folder above it, as `child_uri` takes it."""
    folder, options = _without_options(folder_uri)
    assert uri.startswith(f"{folder}/"), f"{uri} is outside of {folder_uri}"
    return uri[len(folder) + 1 :].removesuffix(options)


def file_name_of(uri: str) -> str:
    """Return the last part of a URI's path."""
    return posixpath.basename(_without_options(uri)[0].rstrip("/"))


def _without_options(uri: str) -> tuple[str, str]:
    """Split the options off a URI; in a path of this machine `?` is an ordinary character."""
    if not is_uri(uri):
        return uri, ""
    path, mark, options = uri.partition("?")
    return path, mark + options


def write_new(uri: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file under an unused name, creating its folder; after a failure the file is deleted."""
    system, path = _place_of("write", uri)
    try:
        if isinstance(system, fs.LocalFileSystem):
            write_local(path, parts)
        else:
            _write_remote(system, path, parts)
    except (OSError, pa.ArrowException) as error:
        with contextlib.suppress(OSError, pa.ArrowException):
            if not isinstance(error, FileExistsError):
                system.delete_file(path)
        raise CheckpointStorageError.of("write", uri, error) from error


def put_if_absent(uri: str, content: bytes, token: str) -> bool:
    """Create a file with this content unless it exists; return whether it was created.

    `token`: a unique text. If `creates_atomically`, two simultaneous writers never both get True, and the file is
    durable when this returns. Elsewhere this checks, moves and reads back, which both writers may pass.
    """
    system, path = _place_of("publish", uri)
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{token}"
    try:
        if isinstance(system, fs.LocalFileSystem):
            return put_local(path, temporary, content)
        store = _conditional_writes(uri, system)
        if store is not None and store.is_honoured(path):
            return store.put(path, content, token)
        return _put_remote(system, path, temporary, content)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError.of(PUBLISH, uri, error) from error


def replace_file(uri: str, content: bytes, token: str, *, is_hint: bool = False) -> None:
    """Write a small file, and replace an earlier one atomically.

    `is_hint`: the file is not needed after a loss of power, so it is not synced.
    """
    system, path = _place_of("write", uri)
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{token}"
    with _errors("write", uri):
        if isinstance(system, fs.LocalFileSystem):
            try:
                write_local(temporary, [content], is_durable=not is_hint)
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
        else:
            # Object stores show a file when it is whole.
            _write_remote(system, path, [content])


def replace_own_hint(uri: str, content: bytes, token: str) -> bool:
    """Replace a file that `put_if_absent` created with this token; return False if it is not there any more.

    In folders this is not checked, because the caller is the only writer. The file may be lost with the power.
    """
    system, path = _place_of("write", uri)
    store = _conditional_writes(uri, system)
    if store is None:
        replace_file(uri, content, token, is_hint=True)
        return True
    with _errors("write", uri):
        return store.replace_own(path, content, token)


def creates_atomically(uri: str) -> bool:
    """Return whether `put_if_absent` lets only one of two simultaneous writers win. Asks an object store.

    ConfigurationError. S3ClientMissingError if only the client package is missing.
    """
    system, path = _place_of("look for", uri)
    if isinstance(system, fs.LocalFileSystem):
        return True
    store = _conditional_writes(uri, system, is_needed=True)
    with _errors("try a conditional write at", uri):
        return store is not None and store.is_honoured(path)


def makes_names_at_once(uri: str) -> bool:
    """Return whether, after `put_if_absent` has failed, the name exists now or never will."""
    system, _ = _place_of("look for", uri)
    return isinstance(system, fs.LocalFileSystem)


def read_all(uri: str) -> memoryview:
    """Return a file's content."""
    system, path = _place_of("read", uri)
    with _errors("read", uri), system.open_input_file(path) as file:
        return memoryview(file.read_buffer()).cast("B")


@contextlib.contextmanager
def open_input(uri: str) -> Generator[Any, None, None]:
    """Open a file for random access, as a pyarrow `NativeFile`."""
    system, path = _place_of("read", uri)
    with _errors("read", uri), system.open_input_file(path) as file:
        yield file


def read_parts(uri: str) -> Iterator[bytes]:
    """Yield a file's content in pieces."""
    system, path = _place_of("read", uri)
    with _errors("read", uri), system.open_input_stream(path) as file:
        while part := file.read(STREAM_BYTES):
            yield part


def is_there(uri: str) -> bool:
    """Return whether a file or folder exists."""
    system, path = _place_of("look for", uri)
    with _errors("look for", uri):
        return system.get_file_info(path).type != fs.FileType.NotFound


def is_there_or_never(uri: str) -> bool:
    """Return whether a file exists that `put_if_absent` did not create; if not, no writer will create it any more.

    Without hard links a writer may have claimed the name and not yet have published the file.
    """
    system, path = _place_of("look for", uri)
    if isinstance(system, fs.LocalFileSystem):
        with _errors("look for", uri):
            refuse_claimed(path)
    return is_there(uri)


def size_of(uri: str) -> int | None:
    """Return a file's size in bytes; None if it does not exist."""
    system, path = _place_of("look for", uri)
    with _errors("look for", uri):
        info = system.get_file_info(path)
    return info.size if info.type == fs.FileType.File else None


def files_below(uri: str, *, is_recursive: bool = True) -> list[FileEntry]:
    """Return every file below a folder, by path; none if the folder does not exist."""
    system, path = _place_of("list", uri)
    with _errors("list", uri):
        infos = folder_entries(system, path, is_recursive=is_recursive)
        found = [one for one in infos if one.type == fs.FileType.File]
    entries: list[FileEntry] = []
    for info in found:
        relative = info.path[len(path) :].lstrip("/")
        modified_ms = None if info.mtime_ns is None else info.mtime_ns // 1_000_000
        entries.append(FileEntry(child_uri(uri, relative), relative, info.size, modified_ms))
    return sorted(entries, key=lambda entry: entry.relative_path)


def folders_in(uri: str) -> list[str]:
    """Return the names of the folders in a folder, sorted; none if the folder does not exist."""
    system, path = _place_of("list", uri)
    with _errors("list", uri):
        infos = folder_entries(system, path)
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)


def folder_entries(system: Any, path: str, *, is_recursive: bool = False) -> list[Any]:
    """Return the FileInfo of all entries of a folder of a pyarrow file system; none if it does not exist. OSError.

    Arrow lists a local folder first and checks whether it exists only after that has failed: a folder that is created
    in between is reported as not found, in spite of `allow_not_found`, and is therefore listed once more.
    """
    selector = fs.FileSelector(path, allow_not_found=True, recursive=is_recursive)
    for _ in range(_LISTING_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return system.get_file_info(selector)
    return system.get_file_info(selector)


def make_folder(uri: str, *, is_shared: bool = False) -> None:
    """Make a folder and its parents, if they do not exist; on this machine accessible to their owner alone.

    `is_shared`: with the permissions given by the process's umask. Files have the permissions of their folder.
    """
    system, path = _place_of(MAKE_FOLDER, uri)
    with _errors(MAKE_FOLDER, uri):
        if isinstance(system, fs.LocalFileSystem):
            make_local(path, 0o777 if is_shared else OWNER_ONLY)
        else:
            system.create_dir(path, recursive=True)


def remove_file(uri: str) -> None:
    """Delete a file, if it exists."""
    system, path = _place_of("delete", uri)
    with _errors("delete", uri):
        # Existence is checked afterwards, as object stores do not report it.
        try:
            system.delete_file(path)
        except OSError:
            if system.get_file_info(path).type != fs.FileType.NotFound:
                raise


def remove_leftovers(entries: Iterable[FileEntry], now_ms: int) -> None:
    """Delete temporary files whose writer died before renaming them. `now_ms`: wall time."""
    for entry in entries:
        is_old = entry.modified_ms is not None and entry.modified_ms < now_ms - _LEFTOVER_AGE_MS
        if is_old and _TEMPORARY.fullmatch(posixpath.basename(entry.relative_path)):
            remove_file(entry.uri)


def remove_folder(uri: str) -> None:
    """Delete a folder with all its content, if it exists."""
    system, path = _place_of("delete", uri)
    attempt_count = 0
    with _errors("delete", uri):
        while True:
            attempt_count += 1
            try:
                system.delete_dir(path)
                return
            except OSError as error:
                if system.get_file_info(path).type == fs.FileType.NotFound:
                    return
                # Somebody else deletes in it too, and took a child that was listed: delete the rest.
                is_child_gone = isinstance(error, FileNotFoundError)
                if not is_child_gone or attempt_count == _REMOVAL_ATTEMPTS:
                    raise


def remove_empty_folder(uri: str) -> None:
    """Delete an empty folder of this machine; on other file systems this is not atomic, so it does nothing."""
    system, path = _place_of("delete", uri)
    if isinstance(system, fs.LocalFileSystem):
        with contextlib.suppress(OSError):
            os.rmdir(path)


@contextlib.contextmanager
def _errors(operation: str, uri: str) -> Generator[None, None, None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError.of(operation, uri, error) from error


def _place_of(operation: str, uri: str) -> tuple[Any, str]:
    """Return the file system of a URI and the path there. Cached by folder: opening some costs a request."""
    with _errors(operation, uri):
        system, folder = _folder_of(parent_uri(uri))
    return system, f"{folder.rstrip('/')}/{file_name_of(uri)}"


def _conditional_writes(
    uri: str, system: Any, *, is_needed: bool = False
) -> S3ConditionalWrites | None:
    """Return the conditional writer of an object store; None if it has none, or the client package is missing."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or _opener_of("s3") is not None:
        return None
    return S3ConditionalWrites.open(
        parts.username, parts.password, parts.query, system.region, is_needed=is_needed
    )


@lru_cache(maxsize=64)
def _folder_of(uri: str) -> tuple[Any, str]:
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri or "/"
    return (_opener_of(urlsplit(uri).scheme) or fs.FileSystem.from_uri)(uri)


def _opener_of(scheme: str) -> OpenFileSystem | None:
    # No package redefines local files, and searching for one would delay the first checkpoint of a process.
    return _SCHEMES.get(scheme) or (None if scheme == "file" else _installed(scheme))


@lru_cache(maxsize=64)
def _installed(scheme: str) -> OpenFileSystem | None:
    if scheme not in entry_point_names(ENTRY_POINT_GROUP_FILE_SYSTEMS):
        return None
    return load_entry_point(ENTRY_POINT_GROUP_FILE_SYSTEMS, scheme)


def _write_remote(system: Any, path: str, parts: Iterable[bytes | memoryview]) -> None:
    try:
        stream = system.open_output_stream(path)
    except FileNotFoundError:
        system.create_dir(path.rpartition("/")[0], recursive=True)
        stream = system.open_output_stream(path)
    size_bytes = 0
    with stream:
        for part in parts:
            stream.write(part)
            size_bytes += memoryview(part).nbytes
    found = system.get_file_info(path).size
    if found != size_bytes:
        raise OSError(errno.EIO, f"{size_bytes} bytes were written, but the file has {found}")


def _put_remote(system: Any, path: str, temporary: str, content: bytes) -> bool:
    if _is_present(system, path):
        return False
    try:
        _write_remote(system, temporary, [content])
        is_there_now = _is_present(system, path)
        if not is_there_now:
            system.move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError, pa.ArrowException):
            system.delete_file(temporary)
        raise
    if is_there_now:
        system.delete_file(temporary)
        return False
    with system.open_input_file(path) as file:
        return bytes(file.read()) == content


def _is_present(system: Any, path: str) -> bool:
    return system.get_file_info(path).type != fs.FileType.NotFound
