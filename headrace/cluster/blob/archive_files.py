"""Unpacks archives of a job: completely and inside one folder, or not at all."""

import lzma
import shutil
import socket
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from headrace.core.ids import size_text
from headrace.gateways.errors import BlobStorageError, UnfitArchiveError

ENTRIES_MAX: Final = 100_000
_MODE_MASK: Final = 0o755
_CHUNK_BYTES: Final = 1 << 20
_DAMAGES: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    # For encrypted archives, and for those packed by a method that Python does not support.
    RuntimeError,
)


def unpack(archive: Path, folder: Path, size_bytes_max: int) -> None:
    """Unpack a zip or tar file into a new folder.

    UnfitArchiveError if a name leads out of the folder, an entry is a link or device, or the archive is damaged or too
    large; BlobStorageError if the folder cannot be written.
    """
    folder.mkdir()
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder, size_bytes_max)
        else:
            _unpack_tar(archive, folder, size_bytes_max)
    except _DAMAGES as error:
        raise _damaged(archive, error) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UnfitArchiveError(
            archive.name, "two of its entries have the same name", "pack each file once"
        ) from error
    except OSError as error:
        # Readers of compressed files raise OSError without a number for damage; errors with a number are the disk's.
        if error.errno is None:
            raise _damaged(archive, error) from error
        raise BlobStorageError(
            f"'{archive.name}' cannot be unpacked into {folder} on host {socket.gethostname()}: {error.strerror}; make "
            "room there, or name another place with 'blob.storage.directory'"
        ) from error


def _unpack_zip(archive: Path, folder: Path, size_bytes_max: int) -> None:
    with zipfile.ZipFile(archive) as packed:
        entries = packed.infolist()
        _refuse_excess(archive, (entry.file_size for entry in entries), size_bytes_max)
        for entry in entries:
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise _unfit(archive, entry.filename, "is a link")
            target = _target(archive, folder, entry.filename)
            if entry.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(entry) as source, target.open("xb") as out:
                shutil.copyfileobj(source, out)
            target.chmod(0o600 | mode & _MODE_MASK)


def _unpack_tar(archive: Path, folder: Path, size_bytes_max: int) -> None:
    with tarfile.open(archive) as packed:
        entries: list[tarfile.TarInfo] = []
        for entry in packed:
            entries.append(entry)
            _refuse_excess(archive, (each.size for each in entries[-1:]), size_bytes_max)
            if len(entries) > ENTRIES_MAX:
                break
        _refuse_excess(archive, (entry.size for entry in entries), size_bytes_max)
        for entry in entries:
            target = _target(archive, folder, entry.name)
            if entry.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            source = packed.extractfile(entry) if entry.isreg() else None
            if source is None:
                raise _unfit(archive, entry.name, "is a link or a device")
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("xb") as out:
                shutil.copyfileobj(source, out)
            target.chmod(0o600 | entry.mode & _MODE_MASK)
        # The checksum of a compressed file is at its end, which has not been read yet.
        rest = iter(lambda: packed.fileobj.read(_CHUNK_BYTES) if packed.fileobj else b"", b"")
        _refuse_excess(archive, map(len, rest), size_bytes_max + _CHUNK_BYTES)


def _refuse_excess(archive: Path, sizes: Iterable[int], size_bytes_max: int) -> None:
    size_bytes = count = 0
    for count, size in enumerate(sizes, 1):
        size_bytes += size
        if size_bytes > size_bytes_max or count > ENTRIES_MAX:
            raise UnfitArchiveError(
                archive.name,
                f"it has more than {size_text(size_bytes_max)} or {ENTRIES_MAX} files when unpacked",
                "raise 'headrace.artifacts.size-max', or read large data from a file system that the workers share",
            )


def _target(archive: Path, folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise _unfit(archive, name, "leads out of its folder")
    return folder / path


def _unfit(archive: Path, name: str, problem: str) -> UnfitArchiveError:
    return UnfitArchiveError(archive.name, f"{name!r} in it {problem}", "pack plain files")


def _damaged(archive: Path, error: Exception) -> UnfitArchiveError:
    return UnfitArchiveError(
        archive.name,
        f"it is damaged, or not a zip or tar file: {str(error) or type(error).__name__}",
        "check the file on the client, pack it again and submit the job again",
    )
