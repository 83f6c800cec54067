"""FileReaderFormat: how the bytes of a split become records; the source's half of a format.

Source: Flink BulkFormat and StreamFormat.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from headrace.connectors.files.splits import FileSplit
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import TypeInformation
from headrace.functions.column_conditions import ColumnCondition


class FileRecords(Protocol):
    """Records of one split, from its position on."""

    @property
    def position(self) -> int | None:
        """Right behind the last batch; a split `at` it goes on there. None before the first one."""
        ...

    @property
    def unread_bytes(self) -> int | None:
        """About how many bytes of the file are read from here to the end of the split; None: not known."""
        ...

    def next_batch(self) -> RecordBatch | None:
        """Return the next records (maybe none), or None after the last ones."""
        ...

    def close(self) -> None:
        """Close the file. Idempotent."""
        ...


class FileReaderFormat(ABC):
    """Picklable; the same for all files of a source."""

    @property
    @abstractmethod
    def is_splittable(self) -> bool:
        """Whether a range of bytes of an uncompressed file can be read by itself."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation:
        """Type of the records."""

    def with_condition(self, condition: ColumnCondition) -> "FileReaderFormat":
        """Return a format that may leave out rows for which `condition` does not hold, or this one: see Source."""
        return self

    @abstractmethod
    def open(self, split: FileSplit, batch_type: BatchType) -> FileRecords:
        """Open the file; records come as `batch_type`."""
