"""PyFlink's `datastream.connectors.file_system`: re-exports."""

from headrace.connectors.files.buckets import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from headrace.connectors.files.compaction import FileCompactor, FileCompactStrategy
from headrace.connectors.files.providers import (
    FileEnumeratorProvider,
    FileSplitAssignerProvider,
)
from headrace.connectors.files.reader_format import FileReaderFormat as BulkFormat
from headrace.connectors.files.sink import BulkFileSinkBuilder as BulkFormatBuilder
from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.sink import RowFileSinkBuilder as RowFormatBuilder
from headrace.connectors.files.source import FileSource, FileSourceBuilder
from headrace.connectors.files.text_lines import StreamFormat
from headrace.connectors.jvm_connectors import StreamingFileSink

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
