"""FileSource: reads the records of files, bounded or watching for new ones.

PyFlink's providers are plain values: they choose how files are cut into splits, and how splits are assigned.

Source: Flink FileSource, FileEnumerator.Provider, FileSplitAssigner.Provider.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.connectors.files.formats.splits import FileReaderFormat
from headrace.connectors.files.paths import fixed_place
from headrace.connectors.files.source.enumerator import FILE_ENUMERATOR, FileEnumeration
from headrace.connectors.files.source.reader import FileReader
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import TypeInformation
from headrace.functions.column_conditions import ColumnCondition
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, SourceReader, SplitSource

DEFAULT_SPLIT_SIZE: Final = 128 << 20
"""Default split size in bytes, as in Spark."""


@dataclass(frozen=True)
class FileEnumeratorProvider:
    """Choice of splits: ranges of files, or whole files. Both search folders recursively and skip hidden files."""

    is_splitting: bool

    @staticmethod
    def default_splittable_file_enumerator() -> "FileEnumeratorProvider":
        """Cut large files into ranges, if the format can read them so."""
        return FileEnumeratorProvider(is_splitting=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> "FileEnumeratorProvider":
        """Make one split of each file."""
        return FileEnumeratorProvider(is_splitting=False)


@dataclass(frozen=True)
class FileSplitAssignerProvider:
    """Policy of assigning splits to readers."""

    is_locality_aware: bool

    @staticmethod
    def locality_aware_split_assigner() -> "FileSplitAssignerProvider":
        """Assign splits of a reader's own host first.

        As hosts of splits are not known, any reader gets the next one.
        """
        return FileSplitAssignerProvider(is_locality_aware=True)


class FileSource(SplitSource):
    """Reads files. The JobMaster finds them and assigns them, whole or in ranges, to subtasks that ask.

    Exactly once: a split in a checkpoint is a file with the range and the position in it. Files must not be changed
    while they are read, but may grow: data appended after a file was found is not read.

    Example:
        >>> from headrace.connectors.files.formats.text_lines import StreamFormat
        >>> source = FileSource.for_record_stream_format(
        ...     StreamFormat.text_line_format(), "access.log").process_static_file_set().build()
        >>> source.boundedness.name
        'BOUNDED'
    """

    def __init__(self, reader_format: FileReaderFormat, enumeration: FileEnumeration) -> None:
        self._format = reader_format
        self._enumeration = enumeration

    @staticmethod
    def for_record_stream_format(
        stream_format: FileReaderFormat, *paths: str
    ) -> "FileSourceBuilder":
        """Return a builder with a format that reads record by record, and the files or folders to read."""
        return FileSourceBuilder(stream_format, tuple(fixed_place(str(path)) for path in paths))

    @staticmethod
    def for_bulk_file_format(bulk_format: FileReaderFormat, *paths: str) -> "FileSourceBuilder":
        """Return a builder with a format that reads many records at once, and the files or folders to read."""
        return FileSource.for_record_stream_format(bulk_format, *paths)

    @property
    def boundedness(self) -> Boundedness:
        if self._enumeration.discovery_interval_ms is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._format.produced_type

    def with_condition(self, condition: ColumnCondition) -> "FileSource":
        narrower = self._format.with_condition(condition)
        return self if narrower is self._format else FileSource(narrower, self._enumeration)

    def enumerator(self) -> tuple[str, bytes]:
        return FILE_ENUMERATOR, msgspec.msgpack.encode(self._enumeration)

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return FileReader(self._format, context)


class FileSourceBuilder:
    """Builds a FileSource."""

    def __init__(self, reader_format: FileReaderFormat, paths: tuple[str, ...]) -> None:
        if not paths:
            raise ValueError("a FileSource needs at least one path")
        self._format = reader_format
        self._paths = paths
        self._discovery_interval_ms: int | None = None
        self._split_size: int | None = DEFAULT_SPLIT_SIZE
        self._is_splitting = True

    def monitor_continuously(self, discovery_interval: Duration) -> "FileSourceBuilder":
        """Look for new files at every interval, without end."""
        if discovery_interval.to_millis() <= 0:
            raise ValueError(f"the discovery interval must be above 0, not {discovery_interval}")
        self._discovery_interval_ms = discovery_interval.to_millis()
        return self

    def process_static_file_set(self) -> "FileSourceBuilder":
        """Read the existing files, then end; the default."""
        self._discovery_interval_ms = None
        return self

    def with_split_size(self, size_bytes: int | None) -> "FileSourceBuilder":
        """Cut files into ranges of about this size, which several subtasks read concurrently.

        None reads each file in order. Compressed files, and charsets such as UTF-16, are never cut.
        """
        if size_bytes is not None and size_bytes <= 0:
            raise ValueError(f"the split size must be above 0, not {size_bytes}")
        self._split_size = size_bytes
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> "FileSourceBuilder":
        """Set whether files are cut; a non-splittable enumerator has priority over any split size."""
        self._is_splitting = file_enumerator.is_splitting
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> "FileSourceBuilder":
        """Accept the only assigner: splits go to the reader that asks for work."""
        if not isinstance(split_assigner, FileSplitAssignerProvider):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"set_split_assigner needs a FileSplitAssignerProvider, not {split_assigner!r}"
            )
        return self

    def build(self) -> FileSource:
        is_split = self._is_splitting and self._format.is_splittable
        split_size = self._split_size if is_split else None
        enumeration = FileEnumeration(self._paths, self._discovery_interval_ms, split_size)
        return FileSource(self._format, enumeration)
