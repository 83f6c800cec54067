"""UploadedPrograms: the files of uploaded programs, in a folder that only the cluster's owner can access.

    <folder>/<uuid>_<name>            a program; its file name is its id
    <folder>/.<uuid>_<name>.partial   a program that is being uploaded

Names are sanitised: whatever name a client uses, the file is in the folder, and no link is followed. Blocking.
Source: Flink JarUploadHandler, JarListHandler.
"""

import contextlib
import os
import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace.core.config import ConfigOption, SizeBytes
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import UniqueId
from headrace.core.process.scratch_folder import make_scratch_folder, remove_scratch_folder
from headrace.core.randomness import system_random

UPLOAD_DIRECTORY: Final = ConfigOption(
    "web.upload.dir",
    str,
    "",
    "Folder below which uploaded programs are stored; it outlives the cluster. Unset: a temporary one, which is "
    "deleted with the cluster.",
)
UPLOAD_SIZE_MAX: Final = ConfigOption(
    "headrace.web.upload.size-max",
    SizeBytes,
    SizeBytes(1 << 30),
    "Maximum size of all uploaded programs together. A single one is limited by `rest.server.max-content-length`.",
)
ENDINGS: Final = (".py", ".zip", ".whl")
_FOLDER: Final = "headrace-web-upload"
_COUNT_MAX: Final = 200
_NAME_MAX: Final = 150
_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}_[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}"
)


class UploadRefusedError(HeadraceError):
    """A program is not stored, for the reason in the text."""

    domain, recoverable = ErrorDomain.USER, False


@dataclass(frozen=True)
class UploadedProgram:
    """A program that can be run. `uploaded_ms`: epoch milliseconds."""

    program_id: str
    path: Path
    uploaded_ms: int

    @property
    def name(self) -> str:
        """Return the sanitised name that the client gave the program."""
        return self.program_id.partition("_")[2]


class UploadedPrograms:
    """The programs of one cluster. The folder is created with the first program, below `parent` if that is set."""

    def __init__(self, parent: str, size_max: int) -> None:
        self._parent: Final = parent
        self._size_max: Final = size_max
        self._folder: Path | None = Path(parent).expanduser() / _FOLDER if parent else None

    @property
    def shown_folder(self) -> str:
        """Return the folder for error messages."""
        return str(self._folder or "the upload folder")

    def begin(self, name: str) -> "Upload":
        """Start to store a program. UploadRefusedError for another suffix, or if there are too many."""
        if not name.lower().endswith(ENDINGS):
            raise UploadRefusedError(
                f"'{name[:_NAME_MAX]}' is not accepted: this cluster runs Python programs, whose names end with "
                f"{', '.join(ENDINGS)}, and no Java archives."
            )
        kept = self.programs()
        if len(kept) >= _COUNT_MAX:
            raise UploadRefusedError(
                f"{_COUNT_MAX} programs are stored already: delete some first."
            )
        left = self._size_max - sum(each.path.lstat().st_size for each in kept)
        folder = self._made_folder()
        number = UniqueId.generate(system_random()).hex()
        parts = number[:8], number[8:12], number[12:16], number[16:20], number[20:]
        return Upload(folder / f"{'-'.join(parts)}_{plain_name(name)}", left)

    def programs(self) -> tuple[UploadedProgram, ...]:
        """Return all programs, the newest first."""
        found: list[UploadedProgram] = []
        if self._folder is not None:
            with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
                for entry in entries:
                    program = self.find(entry.name)
                    if program is not None:
                        found.append(program)
        return tuple(sorted(found, key=lambda each: (-each.uploaded_ms, each.program_id)))

    def find(self, program_id: str) -> UploadedProgram | None:
        """Return a program, or None if there is none with this id."""
        if self._folder is None or not _ID.fullmatch(program_id):
            return None
        path = self._folder / program_id
        try:
            status = path.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        return UploadedProgram(program_id, path, int(status.st_mtime * 1000))

    def delete(self, program_id: str) -> bool:
        """Delete a program; return False if there is none with this id."""
        program = self.find(program_id)
        if program is None:
            return False
        program.path.unlink(missing_ok=True)
        return True

    def close(self) -> None:
        """Remove the folder, unless a setting named its parent."""
        if not self._parent and self._folder is not None:
            remove_scratch_folder(self._folder)
            self._folder = None

    def _made_folder(self) -> Path:
        if self._folder is None:
            self._folder = make_scratch_folder(f"{_FOLDER}-")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._folder.lstat()
        is_private = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or not is_private:
            raise UploadRefusedError(
                f"The folder {self._folder} must belong to the cluster's owner, and be closed to others: chmod 700, "
                f"or set another one with {UPLOAD_DIRECTORY.key}."
            )
        return self._folder


class Upload:
    """A program that is being uploaded.

    `finish` stores it, `abandon` deletes it. UploadRefusedError past `size_max` bytes.
    """

    def __init__(self, path: Path, size_max: int) -> None:
        self._path: Final = path
        self._partial: Final = path.with_name(f".{path.name}.partial")
        self._left = size_max
        descriptor = os.open(
            self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
        )
        self._file: Final[BinaryIO] = os.fdopen(descriptor, "wb")

    def write(self, content: bytes) -> None:
        """Append bytes."""
        self._left -= len(content)
        if self._left < 0:
            raise UploadRefusedError(
                f"There is no room for this program, as {UPLOAD_SIZE_MAX.key} limits the size of all together; "
                f"delete some first."
            )
        self._file.write(content)

    def finish(self) -> Path:
        """Store the program, and return its path; UploadRefusedError if an archive is not valid."""
        self._file.close()
        if self._path.suffix != ".py" and not _is_zip(self._partial):
            self.abandon()
            raise UploadRefusedError(f"{self._path.name} is not a zip archive.")
        self._partial.replace(self._path)
        return self._path

    def abandon(self) -> None:
        """Delete the partial file; no effect after `finish`."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def _is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except (
        zipfile.BadZipFile
    ):  # The end record contains something that an archive in a single file cannot have.
        return False


def plain_name(name: str) -> str:
    """Return a file name without a path: the last part, with only letters, digits and a few signs."""
    last = re.split(r"[/\\]", name)[-1]
    stem, dot, ending = last.rpartition(".")
    plain = re.sub(r"[^A-Za-z0-9._+-]", "_", stem)[:_NAME_MAX].lstrip(".+-") or "program"
    return f"{plain}{dot}{ending.lower()}"
