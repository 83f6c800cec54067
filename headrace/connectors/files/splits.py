"""FileSplit: a file, or a range of its bytes, and how far it has been read."""

import itertools
from typing import Any, Final

import msgspec
from pyarrow import fs

from headrace.connectors.files.paths import file_system_of
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.functions.split_enumerator import SourceSplit

COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".zst", ".lz4")


class FileChangedError(HeadraceError):
    """A file is not what it was when it was found, so that a position in it means nothing."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the file '{name}' {reason} since the file source found it; files must not be changed while they are read"
        )
        self.name = name


class FileSplit(msgspec.Struct, frozen=True, array_like=True):
    """Bytes [offset, offset + length) of the file `name` on the file system that the path or URI `root` stands for.

    `position` is what the format says it is, right behind the last record that was emitted; None before the first one.
    `skipped_count` records behind it were emitted, too: a batch was cut. `file_size` and `modified_ns` are those of the
    file as it was found.
    """

    root: str
    name: str
    offset: int
    length: int
    file_size: int
    modified_ns: int
    position: int | None = None
    skipped_count: int = 0

    @property
    def split_id(self) -> str:
        """Unique within the source: a file is split in one way."""
        return f"{self.name}:{self.offset}"

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.length

    @property
    def is_compressed(self) -> bool:
        """Whether the suffix says so; its bytes then cannot be addressed."""
        return self.name.endswith(COMPRESSED_SUFFIXES)

    def encoded(self) -> SourceSplit:
        """Return it as enumerator and readers hand it on."""
        return SourceSplit(self.split_id, msgspec.msgpack.encode(self))

    def at(self, position: int | None, skipped_count: int = 0) -> "FileSplit":
        """Return it as read up to `position`, and so many records further."""
        return msgspec.structs.replace(self, position=position, skipped_count=skipped_count)

    def open_file_system(self) -> Any:
        """Return the pyarrow file system on which the file still is as it was found; FileChangedError otherwise."""
        file_system, _ = file_system_of(self.root)
        found = file_system.get_file_info(self.name)
        if found.type != fs.FileType.File:
            raise FileChangedError(self.name, "has gone")
        if found.size < self.file_size:
            raise FileChangedError(self.name, "has become shorter")
        if found.size == self.file_size and (found.mtime_ns or 0) != self.modified_ns:
            raise FileChangedError(self.name, "was written again")
        if found.size > self.file_size and self.is_compressed:
            raise FileChangedError(self.name, "has become longer")
        return file_system


_SPLIT: Final = msgspec.msgpack.Decoder(FileSplit)


def decode_file_split(split: SourceSplit) -> FileSplit:
    """Read what `FileSplit.encoded` wrote."""
    return _SPLIT.decode(split.content)


def splits_of_file(file: FileSplit, split_size: int | None) -> list[FileSplit]:
    """Cut a file into ranges of about `split_size` bytes, none above one and a half of it; None leaves it whole."""
    if split_size is None or file.is_compressed or file.length <= split_size * 3 // 2:
        return [file]
    count = -(-file.length // split_size)
    starts = [file.length * index // count for index in range(count + 1)]
    return [
        msgspec.structs.replace(file, offset=start, length=end - start)
        for start, end in itertools.pairwise(starts)
    ]
