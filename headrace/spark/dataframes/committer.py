"""DataFrameCommitter: writes the staged files of a checkpoint through Spark in the driver, once for each id.

The target decides how a repeated commit of an id is recognised: by a note in a folder of files, by the transaction id
of a Delta table, or by the user's own function. For any other target a separate note is written after the function or
Spark's writer has returned; if the driver dies in between, the commit is repeated.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, INTERVAL
from headrace.checkpoint.storage.file_systems import absolute_uri, child_uri, folder_entries
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.connectors.dataframe.batch_log import BATCH_LOG_FORMAT, BatchLog
from headrace.connectors.dataframe.directory_commit import DirectoryCommit
from headrace.connectors.dataframe.messages import CommitPayload, FunctionPayload, StagedPart
from headrace.connectors.dataframe.sink import batch_count_max
from headrace.connectors.dataframe.staging import DATAFRAMES_FOLDER, is_left_by_older_attempt
from headrace.connectors.files.paths import file_system_of
from headrace.connectors.files.sink.note_file import KeySource, NoteFile, digest_of_scope
from headrace.connectors.files.sink.staging import (
    delete_file,
    delete_files,
    exists,
    remove_if_spent,
)
from headrace.core.errors import ErrorDomain, ProgramError, UserCodeError
from headrace.functions.sink import Committer, CommitterContext, scope_of
from headrace.spark.dataframes.sink_coordinator import (
    FUNCTION_TARGET,
    SinkCommitError,
    call_batch_function,
    check_batch_function,
)
from headrace.spark.session import spark_session
from headrace.spark.session.spark_errors import root_message

FILE_FORMATS: Final = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "xml"})
_PART: Final = msgspec.msgpack.Decoder(StagedPart)


class SinkWriteError(SinkCommitError):
    """Spark could not write the staged files; they stay, and the same call may succeed later."""

    domain, recoverable = ErrorDomain.EXTERNAL, True


class WriteNote(msgspec.Struct, frozen=True):
    """Note of the commits made to a target that is not a folder of files.

    The save mode applies to the commit `first_id`; commits up to `last_id` are done.
    """

    scope: str
    first_id: int
    last_id: int = 0


class DataFrameCommitter:
    """Implements Committer for one sink that Spark writes."""

    def __init__(
        self,
        operator_name: str,
        payload: CommitPayload,
        spark: Callable[[], SparkSession],
        key: KeySource,
        note_folder: str = "",
    ) -> None:
        """Create the committer.

        `note_folder`: records the batches given to a function; lies next to durable checkpoints.
        """
        self._operator_name: Final = operator_name
        self._payload: Final = payload
        self._spark: Final = spark
        self._key: Final = key
        self._note_folder: Final = note_folder
        # If no checkpoint outlives the driver, the note need not either.
        self._had: dict[str, int] = {}
        self._swept: set[tuple[int, int]] = set()

    def commit(self, key: str, checkpoint_id: int, committables: Sequence[bytes]) -> None:
        """Write the staged files. SinkWriteError if Spark fails, SinkCommitError if a retry cannot succeed."""
        parts = [_PART.decode(content) for content in committables]
        if not parts:
            return
        try:
            self._write(scope_of(key), checkpoint_id, parts)
        except UserCodeError:
            raise
        except Exception as error:
            may_succeed = getattr(error, "recoverable", True)
            kind = SinkWriteError if may_succeed else SinkCommitError
            target = FUNCTION_TARGET if self._payload.function else self._payload.path
            raise kind(self._operator_name, target, root_message(error)) from error
        self._delete_staged(parts)
        self._sweep(parts)

    def last_committed(self, scope: str) -> int | None:
        """Return the newest commit in the target; for a function, the newest batch that it was given."""
        payload = self._payload
        if payload.function is not None and not self._note_folder:
            return self._had.get(scope)
        if payload.format == BATCH_LOG_FORMAT:
            return BatchLog(payload.path).last_id(scope)
        if payload.format in FILE_FORMATS:
            return DirectoryCommit(payload.path, payload.mode, self._key).last_committed(scope)
        note = self._notes(scope).read()
        return None if note is None else note.last_id

    def delete_leftovers(self, scope: str, owner: str) -> None:
        """Delete the files that subtasks staged for a log of batches."""
        if self._payload.staging_directory:
            file_system, folder = file_system_of(self._payload.staging_directory)
            delete_files(file_system, folder, (".parquet",), frozenset())
            remove_if_spent(file_system, folder)

    def _delete_staged(self, parts: Sequence[StagedPart]) -> None:
        for part in parts:
            file_system, path = file_system_of(part.path)
            delete_file(file_system, path)
            remove_if_spent(file_system, path.rpartition("/")[0])

    def close(self) -> None:
        pass

    def _write(self, scope: str, checkpoint_id: int, parts: Sequence[StagedPart]) -> None:
        payload = self._payload
        if payload.function is not None:
            if self._has_rows(parts):
                self._give_batch(payload.function, scope, checkpoint_id, parts)
        elif payload.format == BATCH_LOG_FORMAT:
            if self._has_rows(parts):
                most = batch_count_max(payload.options)
                BatchLog(payload.path).append(scope, checkpoint_id, parts, most)
        elif payload.format in FILE_FORMATS:
            directory = DirectoryCommit(payload.path, payload.mode, self._key)
            if self._has_rows(parts) or not directory.has_committed(scope):
                directory.commit(
                    scope,
                    checkpoint_id,
                    _content_of(parts),
                    lambda folder: self._save(parts, folder, "overwrite", {}),
                )
        elif self._has_rows(parts):
            self._write_to_table(scope, checkpoint_id, parts)

    def _give_batch(
        self, function: FunctionPayload, scope: str, checkpoint_id: int, parts: Sequence[StagedPart]
    ) -> None:
        """Call the function, unless it was given the batch before: later checkpoints may name a batch that is done."""
        notes = self._notes(scope) if self._note_folder else None
        note = None if notes is None else notes.read()
        last_id = self._had.get(scope, 0) if note is None else note.last_id
        if checkpoint_id <= last_id:
            return
        call_batch_function(
            self._operator_name, function.function_id, self._read(parts), scope, checkpoint_id
        )
        # Before the rows are deleted: without them it cannot be called again.
        self._had[scope] = checkpoint_id
        if notes is not None:
            notes.write(WriteNote(scope, note.first_id if note else checkpoint_id, checkpoint_id))

    def _write_to_table(self, scope: str, checkpoint_id: int, parts: Sequence[StagedPart]) -> None:
        notes = self._notes(scope)
        note = notes.read() or WriteNote(scope, checkpoint_id)
        if checkpoint_id <= note.last_id:
            return
        # Which commit is the first must be known before it is made, as it may be made again.
        notes.write(note)
        mode = self._payload.mode if checkpoint_id == note.first_id else "append"
        # Delta passes over a version of an application that it has seen.
        is_delta = self._payload.format == "delta"
        version = {"txnAppId": scope, "txnVersion": str(checkpoint_id)} if is_delta else {}
        self._save(parts, self._payload.path, mode, version)
        notes.write(WriteNote(scope, note.first_id, checkpoint_id))

    def _save(
        self, parts: Sequence[StagedPart], path: str, mode: str, more: dict[str, str]
    ) -> None:
        payload = self._payload
        writer = self._read(parts).write.format(payload.format).mode(mode)
        writer.options(**payload.options, **more).save(path)

    def _read(self, parts: Sequence[StagedPart]) -> DataFrame:
        spark = self._spark()
        spark.sparkContext.setJobGroup(
            f"headrace-commit-{self._operator_name}", f"results of '{self._operator_name}'"
        )
        return spark.read.parquet(*(part.path for part in parts))

    def _has_rows(self, parts: Sequence[StagedPart]) -> bool:
        return any(part.row_count for part in parts)

    def _sweep(self, parts: Sequence[StagedPart]) -> None:
        """Delete files that earlier attempts staged and no checkpoint contains; ids commit in order."""
        for part in parts:
            attempt = (part.subtask_index, part.attempt_number)
            if part.attempt_number == 0 or attempt in self._swept:
                continue
            self._swept.add(attempt)
            file_system, path = file_system_of(part.path)
            for info in folder_entries(file_system, path.rpartition("/")[0]):
                if is_left_by_older_attempt(info.base_name, part):
                    delete_file(file_system, info.path)
            remove_if_spent(file_system, path.rpartition("/")[0])

    def _notes(self, scope: str) -> NoteFile[WriteNote]:
        file_system, place = file_system_of(self._note_folder or self._payload.path.rstrip("/"))
        parent, _, name = place.rpartition("/")
        beginning = f"{place}/" if self._note_folder else f"{parent}/.{name}"
        path: Any = f"{beginning}.headrace-commits-{digest_of_scope(scope)}"
        return NoteFile(file_system, path, WriteNote, scope, self._key)


def _content_of(parts: Sequence[StagedPart]) -> str:
    """Return a key of the staged files as long as any exists: they are deleted after their commit."""
    if not any(exists(*file_system_of(part.path)) for part in parts):
        return ""
    return hashlib.blake2b("\n".join(sorted(one.path for one in parts)).encode()).hexdigest()[:32]


def create_dataframe_committer(context: CommitterContext, payload: bytes) -> Committer:
    """Return the committer of a sink that Spark writes; the entry point `dataframe`."""
    decoded: Any = msgspec.msgpack.decode(payload, type=CommitPayload)
    check_can_commit(context, decoded)
    settings, folder = context.settings, ""
    if decoded.function is not None:
        check_batch_function(context.operator_name, settings, decoded.function)
        folder = settings.get_option(CHECKPOINT_DIRECTORY)
    key = partial(metadata_key, context.settings)
    if folder:
        folder = child_uri(absolute_uri(folder), DATAFRAMES_FOLDER)
    return DataFrameCommitter(context.operator_name, decoded, spark_session, key, folder)


def check_can_commit(context: CommitterContext, payload: CommitPayload) -> None:
    """Raise ProgramError if a sink with checkpoints must write exactly once but cannot recognise repeated commits."""
    can_tell = payload.function or payload.format in {*FILE_FORMATS, BATCH_LOG_FORMAT, "delta"}
    if can_tell or payload.is_at_least_once or context.settings.duration_ms(INTERVAL) <= 0:
        return
    raise ProgramError(
        f"sink '{context.operator_name}' cannot write each row exactly once through Spark's '{payload.format}', "
        f"which does not record its commits: set guarantee=DeliveryGuarantee.AT_LEAST_ONCE, or use "
        f"IdempotentForeachBatchSink"
    )
