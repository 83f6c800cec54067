"""FileWriter: writes the files of one subtask of a FileSink, from the first record to the committable.

Source: Flink FileWriter, FileWriterBucket.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.connectors.files.formats.stream_formats import FileFormat, PartContent
from headrace.connectors.files.paths import file_system_of, persist_file, persist_names
from headrace.connectors.files.sink.buckets import BucketAssigner, OutputFileConfig, RollingPolicy
from headrace.connectors.files.sink.committables import (
    Compaction,
    InputEnded,
    PendingFile,
    encode_committable,
)
from headrace.connectors.files.sink.compaction import Merger, WaitingFile, plan_compaction
from headrace.connectors.files.sink.file_commit import name_file, publish_groups
from headrace.connectors.files.sink.staging import (
    IN_PROGRESS,
    PENDING,
    FullDiskGuard,
    StagingFolder,
    StagingLock,
    checkpoint_folder_of,
    delete_file,
    delete_files,
    make_staging_folder,
    remove_if_spent,
    staging_folders,
    sweep_abandoned,
)
from headrace.connectors.prepared_output import commits_prepared_output
from headrace.core.record_batch import RecordBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import FINAL_CHECKPOINT, SinkWriter

_OPEN_TRIES: Final = 5
"""Attempts to open a file: the committer may find its folder empty and remove it in between."""


@dataclass(frozen=True)
class FileSinkSettings:
    """Settings of a file sink, as its builder collected them."""

    base_path: str
    file_format: FileFormat
    bucket_assigner: BucketAssigner
    rolling_policy: RollingPolicy
    file_config: OutputFileConfig
    bucket_check_interval_ms: int = 60_000
    compaction: Compaction | None = None


@dataclass
class PartFile:
    """A file that is being written, at `hidden_path`; `stem` is its name without suffix."""

    hidden_path: str
    stem: str
    bucket: str
    stream: Any
    content: PartContent
    created_ms: int
    written_ms: int


class FileWriter(SinkWriter):
    """Writes the files of one subtask.

    With checkpoints, files are handed over at each of them; without checkpoints, the writer itself renames them to
    their final names when the input has ended.
    """

    def __init__(self, settings: FileSinkSettings, context: SubtaskContext) -> None:
        self._settings = settings
        self._context = context
        self._file_system, self._base_path = file_system_of(settings.base_path)
        self._folder = StagingFolder.of(context)
        self._names_files = not commits_prepared_output(context.settings)
        # Drawn anew, so that no run and no attempt ever writes to another one's file.
        self._writer_id = f"{self._folder.token}-{context.subtask_index}"
        self._open: dict[str, PartFile] = {}
        self._complete: list[PendingFile] = []
        # Without checkpoints: what savepoints were given, and only those commit with which a job stops.
        self._handed_over: list[PendingFile] = []
        self._part_count = 0
        self._sent_bytes = 0
        self._is_closed = False
        self._is_check_scheduled = False
        self._lock = StagingLock(self._file_system, self._folder_path)
        self._disk = FullDiskGuard(context, self._base_path)
        self._sweep()

    def write_batch(self, batch: RecordBatch) -> None:
        """Append records to the part file of the current bucket."""
        if not batch.num_rows:
            return
        with self._disk:
            self._write(batch, self._context.clock.now_ms())
        self._schedule_check()

    def flush(self, end_of_input: bool) -> None:
        """Write buffered bytes to the files; at the end of a job without checkpoints, give the files their names."""
        with self._disk:
            for part in self._open.values():
                part.stream.flush()
            if end_of_input:
                self._roll_all()
                if self._names_files:
                    self._name_all()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Complete every file and hand it over; it is never written to again."""
        with self._disk:
            self._roll_all()
            prepared, self._complete = self._complete, []
            if prepared:
                self._lock.mark_handed_over(checkpoint_folder_of(self._context))
            # A checkpoint is about to say that they are there.
            self._persist_names([file.hidden_path for file in prepared])
        if self._names_files:
            self._handed_over += prepared
        committables = [encode_committable(file) for file in prepared]
        if (
            checkpoint_id == FINAL_CHECKPOINT
            and self._settings.compaction
            and not self._names_files
        ):
            ended = InputEnded(self._context.subtask_index, self._context.parallelism)
            committables.append(encode_committable(ended))
        return committables

    def sent_byte_count(self) -> int:
        return self._sent_bytes

    def close(self) -> None:
        """Remove files that were not handed over."""
        self._is_closed = True
        for bucket in list(self._open):
            part = self._open.pop(bucket)
            # What cannot be written any more is deleted all the same.
            with contextlib.suppress(Exception):
                part.content.abandon()
                part.stream.close()
            delete_file(self._file_system, part.hidden_path)
        while self._complete:
            file = self._complete.pop()
            delete_file(self._file_system, f"{self._base_path}/{file.hidden_path}")
        remove_if_spent(self._file_system, self._folder_path)
        self._lock.release()

    @property
    def _folder_path(self) -> str:
        return f"{self._base_path}/{self._folder.name}"

    def _write(self, batch: RecordBatch, now_ms: int) -> None:
        bucket = self._settings.bucket_assigner.bucket_of(now_ms)
        part = self._open.get(bucket)
        if part is not None and self._should_roll(part, now_ms):
            self._roll(bucket)
            part = None
        if part is None:
            part = self._open[bucket] = self._new_part(bucket, now_ms)
        known_bytes = part.content.size_bytes
        part.content.write(batch)
        self._sent_bytes += part.content.size_bytes - known_bytes
        part.written_ms = now_ms

    def _should_roll(self, part: PartFile, now_ms: int) -> bool:
        return self._settings.rolling_policy.should_roll(
            part.content.size_bytes, now_ms - part.created_ms, now_ms - part.written_ms
        )

    def _new_part(self, bucket: str, now_ms: int) -> PartFile:
        stem = (
            f"{self._settings.file_config.get_part_prefix()}-{self._writer_id}-{self._part_count}"
        )
        self._part_count += 1
        # A store that shows objects only when they are complete needs no other name for incomplete ones.
        suffix = PENDING if _appears_when_closed(self._file_system) else IN_PROGRESS
        hidden_path = f"{self._folder_path}/{stem}{suffix}"
        stream = self._open_stream(hidden_path)
        content = self._settings.file_format.open(stream, self._context.types.inputs[0].value_type)
        return PartFile(hidden_path, stem, bucket, stream, content, now_ms, now_ms)

    def _open_stream(self, path: str) -> Any:
        for _ in range(_OPEN_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._try_open(path)
        return self._try_open(path)

    def _try_open(self, path: str) -> Any:
        make_staging_folder(self._file_system, self._folder_path, self._context.settings)
        self._lock.hold()
        # A name such as x.gz must not make pyarrow compress what the encoder made.
        return self._file_system.open_output_stream(path, compression=None)

    def _roll_all(self) -> None:
        for bucket in list(self._open):
            self._roll(bucket)

    def _roll(self, bucket: str) -> None:
        """Complete the bucket's file. Until then it is registered as open, so that `close` finds it."""
        part = self._open[bucket]
        known_bytes = part.content.size_bytes
        part.content.finish()
        size_bytes = part.content.size_bytes
        self._sent_bytes += size_bytes - known_bytes
        part.stream.close()
        name = f"{part.stem}{PENDING}"
        if part.hidden_path.endswith(IN_PROGRESS):
            persist_file(self._file_system, part.hidden_path)
            self._file_system.move(part.hidden_path, f"{self._folder_path}/{name}")
        del self._open[bucket]
        final_name = f"{part.stem}{self._settings.file_config.get_part_suffix()}"
        final_path = f"{bucket}/{final_name}" if bucket else final_name
        self._complete.append(PendingFile(self._folder.name, name, final_path, size_bytes))

    def _name_all(self) -> None:
        compaction = self._settings.compaction
        # Who goes on from a savepoint finds them named already.
        named: list[str] = []
        while self._handed_over:
            name_file(self._file_system, self._base_path, self._handed_over[-1])
            named.append(self._handed_over.pop().final_path)
        if compaction is None:
            while self._complete:
                name_file(self._file_system, self._base_path, self._complete[-1])
                named.append(self._complete.pop().final_path)
        else:
            groups = plan_compaction(
                map(WaitingFile, self._complete), compaction, is_input_ended=True
            ).groups
            config = self._settings.file_config
            merged = publish_groups(
                self._file_system,
                self._base_path,
                Merger(self._file_system, self._base_path, compaction),
                groups,
                f"{config.get_part_prefix()}-compacted-{self._writer_id}",
                config.get_part_suffix(),
            )
            self._complete.clear()
            for file in merged:
                delete_file(self._file_system, f"{self._base_path}/{file.hidden_path}")
        self._persist_names(named)
        remove_if_spent(self._file_system, self._folder_path)

    def _persist_names(self, relative_paths: Sequence[str]) -> None:
        paths = [f"{self._base_path}/{path}" for path in relative_paths]
        persist_names(self._file_system, self._base_path, paths)

    def _schedule_check(self) -> None:
        """Schedule a check of idle files, as long as there are any."""
        if self._is_check_scheduled or self._is_closed or not self._open:
            return
        self._is_check_scheduled = True
        due_ms = self._context.timers.now_ms() + self._settings.bucket_check_interval_ms
        self._context.timers.schedule(due_ms, self._check_buckets)

    def _check_buckets(self, _: int) -> None:
        self._is_check_scheduled = False
        self._lock.touch()
        now_ms = self._context.clock.now_ms()
        with self._disk:
            for bucket, part in list(self._open.items()):
                if self._should_roll(part, now_ms):
                    self._roll(bucket)
        self._schedule_check()

    def _sweep(self) -> None:
        """Delete files that earlier attempts of this subtask had not completed, and files that are no longer needed."""
        for folder in staging_folders(self._file_system, self._base_path):
            if folder.is_older_attempt_of(self._folder):
                place = f"{self._base_path}/{folder.name}"
                delete_files(self._file_system, place, (IN_PROGRESS,), frozenset())
        now_ms = self._context.clock.now_ms()
        sweep_abandoned(self._file_system, self._base_path, self._folder, now_ms)


def _appears_when_closed(file_system: Any) -> bool:
    return file_system.type_name in ("s3", "gcs", "abfs")
