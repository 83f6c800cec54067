"""Unpacks archives that came with a job: whole and inside of one folder, or not at all."""

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from headrace.core.ids import size_text
from headrace.gateways.errors import BlobStorageError

ENTRIES_MAX: Final = 100_000
_MODE_MASK: Final = 0o755


def unpack(archive: Path, folder: Path, size_bytes_max: int) -> None:
    """Unpack a zip or tar file into a new folder.

    BlobStorageError for a name that leads out of it, for links and devices, and for what is damaged or too big.
    """
    folder.mkdir()
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder, size_bytes_max)
        else:
            _unpack_tar(archive, folder, size_bytes_max)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise BlobStorageError(f"{archive.name} cannot be unpacked: {error}") from error


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


def _refuse_excess(archive: Path, sizes: Iterable[int], size_bytes_max: int) -> None:
    size_bytes = count = 0
    for count, size in enumerate(sizes, 1):
        size_bytes += size
        if size_bytes > size_bytes_max or count > ENTRIES_MAX:
            raise BlobStorageError(
                f"{archive.name} has more than {size_text(size_bytes_max)} ('headrace.artifacts.size-max') or "
                f"{ENTRIES_MAX} files once it is unpacked"
            )


def _target(archive: Path, folder: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise _unfit(archive, name, "leads out of its folder")
    return folder / path


def _unfit(archive: Path, name: str, problem: str) -> BlobStorageError:
    return BlobStorageError(
        f"{archive.name} is not unpacked, because {name!r} in it {problem}: pack plain files"
    )
