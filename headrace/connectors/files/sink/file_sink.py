"""FileSink: writes records to files that appear whole, each record to one of them.

Source: Flink FileSink.
"""

from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from headrace.connectors.files.formats.stream_formats import (
    BulkWriterFactory,
    FileFormat,
    ParquetWriterFactory,
    RowFormat,
)
from headrace.connectors.files.paths import fixed_place
from headrace.connectors.files.sink.buckets import BucketAssigner, OutputFileConfig, RollingPolicy
from headrace.connectors.files.sink.committables import FILE_COMMITTER, Compaction, FileSinkPayload
from headrace.connectors.files.sink.compaction import (
    CONCAT,
    PARQUET,
    FileCompactor,
    FileCompactStrategy,
    compaction_of,
)
from headrace.connectors.files.sink.file_writer import FileSinkSettings, FileWriter
from headrace.core.types.type_info import TypeInformation
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.serialization import Encoder
from headrace.functions.sink import Sink, SinkWriter, StreamTransformer, SupportsPreprocessing

F = TypeVar("F", bound=FileFormat)


class FileSink(Sink, SupportsPreprocessing):
    """Writes part files, which appear under their names when they are complete, and never change afterwards.

    With checkpoints, a file is complete at the next checkpoint at the latest, and appears when that checkpoint is
    complete: each record is in one file, whatever fails in between. Without checkpoints, files appear when the
    subtask's bounded input has ended, and a job that fails before leaves none behind; a subtask that had ended before
    another one failed writes its files again after a restart, so the guarantee is then at least once. No file is empty.

    Example:
        >>> sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).with_output_file_config(
        ...     OutputFileConfig.builder().with_part_suffix(".txt").build()).build()
    """

    # PyFlink programs find the builders in here.
    BaseBuilder: ClassVar[type[Any]]
    RowFormatBuilder: ClassVar[type[Any]]
    BulkFormatBuilder: ClassVar[type[Any]]

    def __init__(self, settings: FileSinkSettings) -> None:
        self._settings = settings

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: records need no preparation."""
        return None

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> "RowFileSinkBuilder":
        """Return a builder with a folder and the encoder that converts each record to bytes."""
        if not isinstance(encoder, Encoder):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"for_row_format needs an Encoder, not {encoder!r}")
        return RowFileSinkBuilder(fixed_place(str(base_path)), RowFormat(encoder))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> "BulkFileSinkBuilder":
        """Return a builder with a folder and a format in columns, such as `ParquetBulkWriters.for_row_type()`."""
        if not isinstance(writer_factory, BulkWriterFactory):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"for_bulk_format needs a BulkWriterFactory, not {writer_factory!r}")
        return BulkFileSinkBuilder(fixed_place(str(base_path)), writer_factory)

    def check_input(self, value_type: TypeInformation) -> None:
        self._settings.file_format.check_input(value_type)

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return FileWriter(self._settings, context)

    def committer(self) -> tuple[str, bytes]:
        config = self._settings.file_config
        payload = FileSinkPayload(
            self._settings.base_path,
            config.get_part_prefix(),
            config.get_part_suffix(),
            self._settings.compaction,
        )
        return FILE_COMMITTER, msgspec.msgpack.encode(payload)


class _FileSinkBuilder(Generic[F]):
    """Base class of the builders of file sinks."""

    def __init__(self, base_path: str, file_format: F) -> None:
        self._base_path = base_path
        self._format = file_format
        self._bucket_assigner = BucketAssigner.date_time_bucket_assigner()
        self._rolling_policy: RollingPolicy = RollingPolicy.default_rolling_policy()
        self._file_config = OutputFileConfig.builder().build()
        self._bucket_check_interval_ms = 60_000
        self._compaction: Compaction | None = None

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Apply the rolling policy to open files every `interval` ms, even if nothing is written to them."""
        if interval < 1:
            raise ValueError(f"the bucket check interval must be above 0 ms, not {interval}")
        self._bucket_check_interval_ms = interval
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        self._bucket_assigner = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set the policy that closes files between checkpoints; at a checkpoint they are always closed."""
        self._rolling_policy = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        self._file_config = output_file_config
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Merge small files before they become visible, which delays them."""
        self._check_compactor(compactor)
        self._compaction = compaction_of(strategy, compactor)
        return self

    def disable_compact(self) -> Self:
        """Keep every file as it was written, which is the default."""
        self._compaction = None
        return self

    def build(self) -> FileSink:
        return FileSink(
            FileSinkSettings(
                self._base_path,
                self._format,
                self._bucket_assigner,
                self._rolling_policy,
                self._file_config,
                self._bucket_check_interval_ms,
                self._compaction,
            )
        )

    def _check_compactor(self, compactor: FileCompactor) -> None:
        """Raise ValueError if this compactor cannot merge files of this format."""
        is_parquet: Any = isinstance(self._format, ParquetWriterFactory)
        if compactor.name == PARQUET and not is_parquet:
            raise ValueError("parquet_file_compactor merges Parquet files only")
        if compactor.name == CONCAT and isinstance(self._format, BulkWriterFactory):
            raise ValueError("files in columns cannot be concatenated: use parquet_file_compactor")


class RowFileSinkBuilder(_FileSinkBuilder[RowFormat]):
    """Builds a FileSink that writes record by record."""


class BulkFileSinkBuilder(_FileSinkBuilder[BulkWriterFactory]):
    """Builds a FileSink that writes in columns."""


FileSink.BaseBuilder = _FileSinkBuilder
FileSink.RowFormatBuilder = RowFileSinkBuilder
FileSink.BulkFormatBuilder = BulkFileSinkBuilder
