"""File system operations for checkpoints, by path or URI. They block, and raise CheckpointStorageError.

Local folders are used with the operating system's own calls, because pyarrow cannot make a file durable or create one
only if it is absent; every other file system is pyarrow's. Source: Flink FileSystem.
"""

import contextlib
import errno
import os
import posixpath
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.core.entry_points import entry_point_names, load_entry_point

T = TypeVar("T")
OpenFileSystem: TypeAlias = Callable[[str], tuple[Any, str]]
"""From a URI to a pyarrow file system and the path on it."""

ENTRY_POINT_GROUP_FILE_SYSTEMS: Final = "headrace.file_systems"
"""By scheme of URIs, functions from a folder's URI to a pyarrow file system and the path on it."""
STREAM_BYTES: Final = 1 << 20
_REMOVAL_ATTEMPTS: Final = 16
_LISTING_ATTEMPTS: Final = 16
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_OWNER_ONLY: Final = 0o700
_SCHEMES: Final[dict[str, OpenFileSystem]] = {}


@dataclass(frozen=True)
class FileEntry:
    """One file below a folder: its URI, its path relative to the folder, size, and when it changed (None: unknown)."""

    uri: str
    relative_path: str
    size_bytes: int
    modified_ms: int | None


def register_file_system(scheme: str, open_file_system: OpenFileSystem) -> None:
    """Register a file system that pyarrow does not know under a URI scheme, in this process."""
    _SCHEMES[scheme] = open_file_system
    _folder_of.cache_clear()


def absolute_uri(path: str) -> str:
    """Return a URI as it is, and a path as an absolute one, `~` resolved; without a slash at the end."""
    if not is_uri(path):
        return str(Path(path).expanduser().absolute())
    place, options = _without_options(path)
    return place.rstrip("/") + options


def is_uri(path: str) -> bool:
    """Whether a text names its file system."""
    return "://" in path or path.startswith("file:")


def is_whole(path: str) -> bool:
    """Whether a path means the same in every folder: it is a URI, or absolute once `~` is resolved."""
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
    assert uri.startswith(f"{folder}/"), f"{uri} lies outside of {folder_uri}"
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
    """Write a file under an unused name, and make its folder; after a failure the file is deleted."""
    system, path = _place_of("write", uri)
    try:
        if isinstance(system, fs.LocalFileSystem):
            _write_local(path, parts)
        else:
            _write_remote(system, path, parts)
    except (OSError, pa.ArrowException) as error:
        with contextlib.suppress(OSError, pa.ArrowException):
            if not isinstance(error, FileExistsError):
                system.delete_file(path)
        raise CheckpointStorageError.of("write", uri, error) from error


def put_if_absent(uri: str, content: bytes, token: str) -> bool:
    """Create a file with this content unless it exists; return whether it was created.

    `token`: unique. On local folders this is atomic, and durable when it returns. Elsewhere pyarrow has no conditional
    write: there it looks, moves and reads back, which two simultaneous writers may both pass.
    """
    system, path = _place_of("publish", uri)
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{token}"
    try:
        if isinstance(system, fs.LocalFileSystem):
            return _put_local(path, temporary, content)
        return _put_remote(system, path, temporary, content)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError.of("publish", uri, error) from error


def replace_file(uri: str, content: bytes, token: str, *, is_hint: bool = False) -> None:
    """Write a small file, and replace an earlier one atomically.

    `is_hint`: nobody relies on the file after a loss of power, so it is not synced.
    """
    system, path = _place_of("write", uri)
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{token}"
    with _errors("write", uri):
        if isinstance(system, fs.LocalFileSystem):
            try:
                _write_local(temporary, [content], is_durable=not is_hint)
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
        else:
            # Object stores show a file when it is whole.
            _write_remote(system, path, [content])


def makes_names_at_once(uri: str) -> bool:
    """Whether `put_if_absent` is atomic there: after it has failed, the name exists or never will."""
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
    """Whether a file or folder exists."""
    system, path = _place_of("look for", uri)
    with _errors("look for", uri):
        return system.get_file_info(path).type != fs.FileType.NotFound


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
    """Return the FileInfo of all that a folder of a pyarrow file system holds; nothing if it does not exist. OSError.

    Arrow lists a local folder first and looks whether it exists only after that has failed: a folder that somebody else
    makes in between is reported as not found, in spite of `allow_not_found`, and is listed once more here.
    """
    selector = fs.FileSelector(path, allow_not_found=True, recursive=is_recursive)
    for _ in range(_LISTING_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return system.get_file_info(selector)
    return system.get_file_info(selector)


def make_folder(uri: str, *, is_shared: bool = False) -> None:
    """Make a folder and those above it, if they do not exist; on this machine for their owner alone.

    `is_shared`: with the permissions that the process's umask leaves. Files have the permissions of their folder.
    """
    system, path = _place_of("make the folder", uri)
    with _errors("make the folder", uri):
        if isinstance(system, fs.LocalFileSystem):
            _make_local(path, 0o777 if is_shared else _OWNER_ONLY)
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
    """Delete an empty folder of this machine; on other file systems this is not atomic, and is not done."""
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


@lru_cache(maxsize=64)
def _folder_of(uri: str) -> tuple[Any, str]:
    if not is_uri(uri):
        return fs.LocalFileSystem(), uri or "/"
    scheme = urlsplit(uri).scheme
    # No package redefines local files, and searching for one would delay the first checkpoint of a process.
    open_file_system = _SCHEMES.get(scheme) or (None if scheme == "file" else _installed(scheme))
    return (open_file_system or fs.FileSystem.from_uri)(uri)


@lru_cache(maxsize=64)
def _installed(scheme: str) -> OpenFileSystem | None:
    if scheme not in entry_point_names(ENTRY_POINT_GROUP_FILE_SYSTEMS):
        return None
    return load_entry_point(ENTRY_POINT_GROUP_FILE_SYSTEMS, scheme)


def _write_local(
    path: str, parts: Iterable[bytes | memoryview], *, is_durable: bool = True
) -> None:
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
        _make_local(os.path.dirname(path), _OWNER_ONLY)
        return open(path, "xb", opener=_open_as_in_its_folder)


def _open_as_in_its_folder(path: str, flags: int) -> int:
    """Open a file with the folder's permissions.

    Users who may not enter the folder cannot read its files either, should these be moved or linked elsewhere.
    """
    mode = os.stat(os.path.dirname(path)).st_mode & 0o666
    return os.open(path, flags, mode)


def _make_local(path: str, mode: int) -> None:
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
        raise OSError(errno.EIO, f"{size_bytes} bytes were written, and {found} have arrived")


def _put_local(path: str, temporary: str, content: bytes) -> bool:
    try:
        _write_local(temporary, [content])
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
    _sync_folder(os.path.dirname(path))
    return True


def _put_by_claim(path: str, temporary: str) -> bool:
    """Publish a file without hard links: only the caller that creates the claim file may rename; claims stay."""
    try:
        claim = f"{path}.claim"
        os.close(_open_as_in_its_folder(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(path))
    return True


def _sync_folder(folder: str) -> None:
    # Without this the new name may not survive a loss of power although the content does.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
