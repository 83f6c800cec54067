"""FileSink: records as files that appear whole, when the input has ended.

Source: Flink FileSink, FileWriter, FileWriterBucket.
"""

from dataclasses import dataclass
from typing import Any

from headrace.connectors.files.buckets import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
)
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.functions.serialization import Encoder
from headrace.functions.sink import Sink, SinkWriter
from headrace.functions.subtask_context import SubtaskContext


@dataclass(frozen=True)
class FileSinkSettings:
    """What the builder collected."""

    base_path: str
    encoder: Encoder
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy
    file_config: OutputFileConfig


class FileSink(Sink):
    """Writes part files. While a file is written its name begins with a dot and ends in `.inprogress`.

    Files get their names when the subtask's bounded input has ended; a job that fails before leaves none behind. A
    subtask that had ended before another one failed writes its files again after a restart: without checkpoints the
    guarantee is at least once.

    Example:
        >>> sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).with_output_file_config(
        ...     OutputFileConfig.builder().with_part_suffix(".txt").build()).build()
    """

    def __init__(self, settings: FileSinkSettings) -> None:
        self._settings = settings

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> "RowFormatBuilder":
        """Begin with a folder and the encoder that makes bytes of each record."""
        return RowFormatBuilder(fixed_place(str(base_path)), encoder)

    def create_writer(self, context: SubtaskContext) -> SinkWriter:
        return FileWriter(self._settings, context)


class RowFormatBuilder:
    """Builds a FileSink that writes record by record."""

    def __init__(self, base_path: str, encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"for_row_format needs an Encoder, not {encoder!r}")
        self._base_path = base_path
        self._encoder = encoder
        self._bucket_assigner = BucketAssigner.date_time_bucket_assigner()
        self._rolling_policy: RollingPolicy = RollingPolicy.default_rolling_policy()
        self._file_config = OutputFileConfig.builder().build()

    def with_bucket_check_interval(self, interval: int) -> "RowFormatBuilder":
        """Accepted: policies are asked whenever records are written."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> "RowFormatBuilder":
        self._bucket_assigner = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> "RowFormatBuilder":
        self._rolling_policy = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> "RowFormatBuilder":
        self._file_config = output_file_config
        return self

    def build(self) -> FileSink:
        return FileSink(
            FileSinkSettings(
                self._base_path,
                self._encoder,
                self._bucket_assigner,
                self._rolling_policy,
                self._file_config,
            )
        )


@dataclass
class PartFile:
    """A file that is being written, or waits for its name."""

    hidden_name: str
    final_name: str
    stream: Any
    created_ms: int
    written_ms: int
    size_bytes: int = 0


class FileWriter(SinkWriter):
    """Writes the files of one subtask."""

    def __init__(self, settings: FileSinkSettings, context: SubtaskContext) -> None:
        self._settings = settings
        self._context = context
        self._file_system, self._base_path = file_system_of(settings.base_path)
        # Drawn anew, so that no run and no attempt ever writes to another one's file.
        self._writer_id = f"{system_random().randbytes(8).hex()}-{context.subtask_index}"
        self._open: dict[str, PartFile] = {}
        self._closed: list[PartFile] = []
        self._part_count = 0

    def write_batch(self, batch: RecordBatch) -> None:
        """Append records to the part file of the current bucket."""
        now_ms = self._context.clock.now_ms()
        bucket = self._settings.bucket_assigner.bucket_of(now_ms)
        part = self._part_of(bucket, now_ms)
        encode, value_type = self._settings.encoder.encode, batch.batch_type.value_type
        payload = b"".join([encode(row, value_type) for row in batch.rows()])
        part.stream.write(payload)
        part.size_bytes += len(payload)
        part.written_ms = now_ms

    def flush(self, end_of_input: bool) -> None:
        """Bring bytes to the files; at the end of input, give the files their names."""
        for part in self._open.values():
            part.stream.flush()
        if end_of_input:
            for bucket in list(self._open):
                self._roll(bucket)
            while self._closed:
                part = self._closed.pop()
                self._file_system.move(part.hidden_name, part.final_name)

    def close(self) -> None:
        """Remove what was not finished."""
        for bucket in list(self._open):
            self._roll(bucket)
        while self._closed:
            self._file_system.delete_file(self._closed.pop().hidden_name)

    def _part_of(self, bucket: str, now_ms: int) -> PartFile:
        part = self._open.get(bucket)
        if part is not None and self._settings.rolling_policy.should_roll(
            part.size_bytes, now_ms - part.created_ms, now_ms - part.written_ms
        ):
            self._roll(bucket)
            part = None
        if part is None:
            part = self._open[bucket] = self._new_part(bucket, now_ms)
        return part

    def _new_part(self, bucket: str, now_ms: int) -> PartFile:
        folder = f"{self._base_path}/{bucket}" if bucket else self._base_path
        self._file_system.create_dir(folder, recursive=True)
        config = self._settings.file_config
        stem = f"{config.get_part_prefix()}-{self._writer_id}-{self._part_count}"
        self._part_count += 1
        hidden_name = f"{folder}/.{stem}.inprogress"
        final_name = f"{folder}/{stem}{config.get_part_suffix()}"
        # A name such as x.gz must not make pyarrow compress what the encoder made.
        stream = self._file_system.open_output_stream(hidden_name, compression=None)
        return PartFile(hidden_name, final_name, stream, now_ms, now_ms)

    def _roll(self, bucket: str) -> None:
        part = self._open.pop(bucket)
        part.stream.close()
        self._closed.append(part)
