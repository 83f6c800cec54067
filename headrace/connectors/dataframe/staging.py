"""The writers of DataFrame sinks: Parquet files in a staging folder, for Spark to read in the driver.

Without checkpoints a subtask stages one file and reports it at the end; with checkpoints it hands over one with each.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL
from headrace.checkpoint.storage.file_systems import absolute_uri, child_uri
from headrace.connectors.dataframe.messages import FilesStaged, FunctionPayload, StagedPart
from headrace.connectors.files.formats.stream_formats import ROW_GROUP_ROW_COUNT
from headrace.connectors.files.paths import file_system_of
from headrace.connectors.files.sink.staging import (
    FullDiskGuard,
    StagingLock,
    checkpoint_folder_of,
    delete_file,
    is_staging_beside,
    make_staging_folder,
    remove_if_spent,
    sweep_abandoned_beside,
)
from headrace.connectors.prepared_output import commits_prepared_output
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.randomness import system_random
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import FINAL_CHECKPOINT, SinkWriter

DATAFRAMES_FOLDER: Final = "dataframes"
"""Folder of rows that wait for Spark, or were written for it, below `execution.checkpointing.dir`."""


def batch_staging_folder(payload: FunctionPayload, settings: Settings) -> str:
    """Return the folder in which the rows for a function wait.

    It is deleted as a whole after a job without checkpoints, so it is never the folder that the user has named.
    """
    name = payload.temporary.rpartition("/")[2]
    if payload.staging_path:
        prepares = commits_prepared_output(settings)
        return payload.staging_path if prepares else f"{payload.staging_path}/{name}"
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    if not directory:
        return payload.temporary
    return child_uri(absolute_uri(directory), DATAFRAMES_FOLDER, name)


class ParquetStage:
    """Writes one Parquet file, which is created once there are enough rows for a row group.

    From then on `lock` shows that a writer uses the folder.
    """

    def __init__(
        self,
        file_system: Any,
        path: str,
        schema: pa.Schema,
        context: SubtaskContext,
        lock: StagingLock,
    ) -> None:
        self._file_system = file_system
        self._settings = context.settings
        self._lock = lock
        self._disk = FullDiskGuard(context, path.rpartition("/")[0])
        self.path = path
        self._schema = schema
        self._writer: Any = None
        self._held: list[pa.RecordBatch] = []
        self._held_row_count = 0
        self.row_count = 0

    def write(self, batch: RecordBatch) -> None:
        """Append the rows."""
        self._held.append(batch.columns())
        self._held_row_count += batch.num_rows
        self.row_count += batch.num_rows
        if self._held_row_count >= ROW_GROUP_ROW_COUNT:
            with self._disk:
                self._write_held()

    def finish(self) -> None:
        """Complete the file; without rows it is an empty file with the schema."""
        with self._disk:
            self._write_held()
            self.close()

    def close(self) -> None:
        """Stop writing. Idempotent."""
        self._held.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _write_held(self) -> None:
        if self._writer is None:
            folder = self.path.rpartition("/")[0]
            make_staging_folder(self._file_system, folder, self._settings)
            self._lock.hold()
            self._writer = pq.ParquetWriter(
                self.path, self._schema, filesystem=self._file_system, compression="zstd"
            )
        names, schema = self._schema.names, self._schema
        batches = [batch.select(names).cast(schema) for batch in self._held]
        self._writer.write_table(pa.Table.from_batches(batches, schema=schema))
        self._held.clear()
        self._held_row_count = 0


class StagingWriter(SinkWriter):
    """Writer without checkpoints: one file per subtask and attempt, reported to the coordinator when it is complete."""

    def __init__(self, staging_directory: str, context: SubtaskContext) -> None:
        self._context = context
        schema = data_schema(context.types.inputs[0].value_type)
        file_system, directory = file_system_of(staging_directory)
        name = f"part-{context.subtask_index:05d}-{context.attempt_number}.parquet"
        self._lock = _lock_on(file_system, directory, context)
        self._stage = ParquetStage(file_system, f"{directory}/{name}", schema, context, self._lock)
        self._reported_path = f"{staging_directory}/{name}"

    def write_batch(self, batch: RecordBatch) -> None:
        self._stage.write(batch)

    def flush(self, end_of_input: bool) -> None:
        if not end_of_input:
            return
        # A subtask without rows writes an empty file, because Spark needs the schema.
        self._stage.finish()
        staged = FilesStaged(
            self._context.subtask_index,
            self._context.attempt_number,
            (self._reported_path,),
            self._stage.row_count,
        )
        self._context.send_event(msgspec.msgpack.encode(staged))

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Refuse savepoints, because the rows before and after one would become two results."""
        if checkpoint_id != FINAL_CHECKPOINT:
            raise ProgramError(
                "a DataFrame sink takes part in savepoints only if the job takes checkpoints: set "
                f"{INTERVAL.key}"
            )
        return ()

    def close(self) -> None:
        self._stage.close()
        self._lock.release()


class PartStagingWriter(SinkWriter):
    """Writer with checkpoints: one file per subtask and checkpoint that has rows."""

    def __init__(self, staging_directory: str, context: SubtaskContext) -> None:
        self._context = context
        self._schema = data_schema(context.types.inputs[0].value_type)
        self._file_system, self._directory = file_system_of(staging_directory)
        self._staging_directory = staging_directory
        self._lock = _lock_on(self._file_system, self._directory, context)
        # Drawn anew, so that no attempt ever writes to another one's file.
        self._token = system_random().randbytes(8).hex()
        self._stage: ParquetStage | None = None
        self._part_count = 0

    def write_batch(self, batch: RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._stage is None:
            self._stage = self._new_stage()
        self._stage.write(batch)

    def flush(self, end_of_input: bool) -> None:
        """Do nothing: `prepare_commit` completes the rows."""

    def prepare_commit(self, checkpoint_id: int) -> Sequence[bytes]:
        """Complete the file of this checkpoint, if there are rows."""
        if self._stage is None and checkpoint_id == FINAL_CHECKPOINT and self._is_first:
            # If no subtask has written a row, Spark still needs the schema.
            self._stage = self._new_stage()
        if self._stage is None:
            return ()
        self._stage.finish()
        if is_staging_beside(self._directory):
            self._lock.mark_handed_over(checkpoint_folder_of(self._context))
        part = StagedPart(
            f"{self._staging_directory}/{self._stage.path.rpartition('/')[2]}",
            self._stage.row_count,
            self._context.subtask_index,
            self._context.attempt_number,
        )
        self._stage = None
        return (msgspec.msgpack.encode(part),)

    def close(self) -> None:
        """Remove files that were not handed over."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()
            delete_file(self._file_system, stage.path)
            remove_if_spent(self._file_system, self._directory)
        self._lock.release()

    @property
    def _is_first(self) -> bool:
        return self._context.subtask_index == 0

    def _new_stage(self) -> ParquetStage:
        context = self._context
        name = (
            f"part-{context.subtask_index:05d}-{context.attempt_number}-{self._token}-"
            f"{self._part_count}.parquet"
        )
        self._part_count += 1
        path = f"{self._directory}/{name}"
        return ParquetStage(self._file_system, path, self._schema, context, self._lock)


def _lock_on(file_system: Any, directory: str, context: SubtaskContext) -> StagingLock:
    """Return a new writer's lock; the first subtask deletes the files of jobs that were killed."""
    if context.subtask_index == 0:
        sweep_abandoned_beside(file_system, directory, context.clock.now_ms())
    return StagingLock(file_system, directory)


def is_left_by_older_attempt(name: str, part: StagedPart) -> bool:
    """Return whether a staged file is from an earlier attempt of the subtask that staged `part`."""
    pieces = name.split("-")
    return (
        len(pieces) == 5
        and pieces[0] == "part"
        and int(pieces[1]) == part.subtask_index
        and int(pieces[2]) < part.attempt_number
    )
