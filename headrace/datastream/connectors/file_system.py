"""PyFlink's `datastream.connectors.file_system`: re-exports."""

from headrace.connectors.files.formats.splits import FileReaderFormat as BulkFormat
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.sink.buckets import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from headrace.connectors.files.sink.compaction import FileCompactor, FileCompactStrategy
from headrace.connectors.files.sink.file_sink import BulkFileSinkBuilder as BulkFormatBuilder
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.connectors.files.sink.file_sink import RowFileSinkBuilder as RowFormatBuilder
from headrace.connectors.files.source.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from headrace.connectors.pyflink_refusals import StreamingFileSink

__all__ = [
    "BucketAssigner",
    "RollingPolicy",
    "DefaultRollingPolicy",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "FileSink",
    "RowFormatBuilder",
    "BulkFormatBuilder",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSource",
    "FileSourceBuilder",
    "StreamFormat",
    "BulkFormat",
    "FileEnumeratorProvider",
    "FileSplitAssignerProvider",
    "StreamingFileSink",
]
