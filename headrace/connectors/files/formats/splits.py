"""FileSplit: a file, or a range of its bytes, with the position up to which it was read.

A FileReaderFormat, the source's half of a format, reads the records of a split in batches of any size, with positions
between them. CutRecords cuts these to the requested number of rows: the rest of a batch waits. The position is then
that before the batch, with the number of its emitted records, because a format gives the same records from the same
position.

Source: Flink BulkFormat, StreamFormat, CheckpointedPosition, RecordsAndPosition.
"""

import itertools
from abc import ABC, abstractmethod
from typing import Any, Final, Protocol

import msgspec
from pyarrow import fs

from headrace.connectors.files.paths import file_system_of
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.column_conditions import ColumnCondition
from headrace.functions.source import SourceSplit

COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".zst", ".lz4")


class FileChangedError(HeadraceError):
    """Raised if a file has changed since it was found, so that positions in it are no longer valid."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"the file '{name}' {reason} since the file source found it; files must not be changed while they are read"
        )
        self.name = name


class FileSplit(msgspec.Struct, frozen=True, array_like=True):
    """Bytes [offset, offset + length) of the file `name` on the file system of the path or URI `root`.

    `position` is defined by the format, right after the last emitted record; None before the first one. `skipped_count`
    records after it were also emitted, if a batch was cut. `file_size` and `modified_ns` are those of the file when it
    was found.
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
        """Return an id that is unique within the source, because a file is split in only one way."""
        return f"{self.name}:{self.offset}"

    @property
    def end(self) -> int:
        """Return the offset after the last byte."""
        return self.offset + self.length

    @property
    def is_compressed(self) -> bool:
        """Return whether the file's suffix is that of a compression; its bytes then cannot be addressed."""
        return self.name.endswith(COMPRESSED_SUFFIXES)

    def encoded(self) -> SourceSplit:
        """Return the split in the form that enumerator and readers exchange."""
        return SourceSplit(self.split_id, msgspec.msgpack.encode(self))

    def at(self, position: int | None, skipped_count: int = 0) -> "FileSplit":
        """Return the split as read up to `position` and `skipped_count` records further."""
        return msgspec.structs.replace(self, position=position, skipped_count=skipped_count)

    def open_file_system(self) -> Any:
        """Return the file's pyarrow file system, if the file has not changed since it was found.

        Else FileChangedError.
        """
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
    """Decode the bytes of `FileSplit.encoded`."""
    return _SPLIT.decode(split.content)


def splits_of_file(file: FileSplit, split_size: int | None) -> list[FileSplit]:
    """Cut a file into ranges of about `split_size` bytes, at most one and a half of it; None keeps it whole."""
    if split_size is None or file.is_compressed or file.length <= split_size * 3 // 2:
        return [file]
    count = -(-file.length // split_size)
    starts = [file.length * index // count for index in range(count + 1)]
    return [
        msgspec.structs.replace(file, offset=start, length=end - start)
        for start, end in itertools.pairwise(starts)
    ]


class FileRecords(Protocol):
    """Reader of the records of one split, from its position on."""

    @property
    def position(self) -> int | None:
        """Position after the last batch, from which a split can be continued. None before the first batch."""
        ...

    @property
    def unread_bytes(self) -> int | None:
        """Approximate number of bytes left to read until the end of the split; None if not known."""
        ...

    def next_batch(self) -> RecordBatch | None:
        """Return the next records (possibly none), or None after the last ones."""
        ...

    def close(self) -> None:
        """Close the file. Idempotent."""
        ...


class FileReaderFormat(ABC):
    """Format of a file source: picklable, and the same for all its files."""

    @property
    @abstractmethod
    def is_splittable(self) -> bool:
        """Return whether a range of bytes of an uncompressed file can be read by itself."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """Type of the records."""

    def with_condition(self, condition: ColumnCondition) -> "FileReaderFormat":
        """Return a format that may skip rows for which `condition` does not hold, or this one: see Source."""
        return self

    @abstractmethod
    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        """Open the file; its records have the type `batch_type`."""


class CutRecords:
    """Records of one split, from the newly opened `records`."""

    def __init__(self, records: FileRecords, split: FileSplit) -> None:
        self._records = records
        self._split = split
        # Behind the split's position: records that were handed on, and before that those to leave out.
        self._position = split.position
        self._skipped_count = self._left_out_count = split.skipped_count
        self._rest: RecordBatch | None = None

    @property
    def as_read(self) -> FileSplit:
        """Return the split up to the last emitted record."""
        return self._split.at(self._position, self._skipped_count)

    @property
    def unread_bytes(self) -> int | None:
        return self._records.unread_bytes

    def next_batch(self, row_count_max: int) -> RecordBatch | None:
        """Return the next records (possibly none), at most `row_count_max`, or None after the last ones."""
        batch, self._rest = self._rest, None
        if batch is None:
            batch = self._records.next_batch()
            if batch is None:
                return None
            if self._left_out_count:
                left_out = min(self._left_out_count, batch.num_rows)
                self._left_out_count -= left_out
                batch = batch.slice(left_out)
        if batch.num_rows > row_count_max:
            self._skipped_count += row_count_max
            self._rest = batch.slice(row_count_max)
            return batch.slice(0, row_count_max)
        if not self._left_out_count:
            # Right behind a batch of the format's. Records that are still to be left out count from the old position.
            self._position, self._skipped_count = self._records.position, 0
        return batch

    def close(self) -> None:
        self._records.close()
