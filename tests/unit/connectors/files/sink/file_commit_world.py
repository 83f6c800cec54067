"""File sinks whose commits a test drives, and what a reader sees in their folder."""

from pathlib import Path
from typing import Any

from headrace.connectors.files.sink.buckets import BucketAssigner
from headrace.connectors.files.sink.committables import decode_file_payload
from headrace.connectors.files.sink.compaction import FileCompactor
from headrace.connectors.files.sink.file_commit import FileCommitter
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder
from tests.unit.connectors.sink_world import (
    SinkWorld,
    key,
)

TEXT = Types.STRING()


def world_of(sink: FileSink, value_type: Any = TEXT, **more: Any) -> SinkWorld:
    _, payload = sink.committer()
    row_of = (lambda s, n: f"{s}:{n}") if value_type is TEXT else (lambda s, n: (s, n))
    return SinkWorld(
        sink, value_type, lambda: FileCommitter(decode_file_payload(payload), key), row_of, **more
    )


def text_builder(path: Path) -> Any:
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def files(path: Path) -> list[Path]:
    """What a reader sees."""
    return sorted(
        one
        for one in path.rglob("*")
        if one.is_file() and not any(part.startswith(".") for part in one.relative_to(path).parts)
    )


def lines(path: Path) -> list[str]:
    return [line for file in files(path) for line in file.read_text().splitlines()]


def compacting(path: Path, strategy: Any, compactor: FileCompactor) -> FileSink:
    return text_builder(path).enable_compact(strategy.build(), compactor).build()
