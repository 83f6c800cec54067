"""BatchLog: a folder of committed batches of rows, one for each checkpoint, in the order of their numbers.

    NAME/                                    number 7: the rows of one checkpoint
      00000000000000000007-part-….parquet    its files, moved here from the sink's staging folder
      _log/00000000000000000007.json         its entry, with which it is part of the log
      _log/schema.parquet                    the columns, written before the first rows
      _log/deleted.json                      the highest number that readers have finished; its files are deleted
      _log/failed.json                       the reason, if the writing job has failed

A sink's committer appends, in the driver; Spark's readers of the format `headrace` take entries in order and delete
what their query has committed. Likewise a query of Spark appends its micro-batches, and a BatchLogSource reads them.
Numbers grow by one, independently of the checkpoints' ids. Entries name the files, so that files left by a crash are
never read. A repeated append changes nothing, because each entry holds the highest id of each lineage of a job, or of
each query. One job or query at a time writes, and one reads.
"""

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.checkpoint.storage.file_systems import folder_entries, make_folder
from headrace.connectors.dataframe.directory_commit import (
    NumberUsedTwiceError,
    ResultFileLostError,
)
from headrace.connectors.dataframe.messages import StagedPart
from headrace.connectors.files.paths import file_system_of, persist_file, persist_names, place_below
from headrace.connectors.files.sink.staging import delete_file, exists
from headrace.core.errors import DECODE_ERRORS, ErrorDomain, HeadraceError
from headrace.core.randomness import system_random

BATCH_LOG_FORMAT: Final = "headrace"
"""Name of the data source that reads logs, and of the sink format that writes them."""
BATCHES_MAX: Final = "maxBatches"
"""Option of a sink: the number of batches that may wait for a reader."""
BATCHES_MAX_DEFAULT: Final = 10_000
_DIGITS: Final = 20
_LOG: Final = "_log"
_SCHEMA: Final = "schema.parquet"
_DELETED: Final = "deleted.json"
_FAILED: Final = "failed.json"


class BatchLogError(HeadraceError):
    """Raised if a log of batches cannot be read, or not in the requested way."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class BatchGoneError(BatchLogError):
    """Raised if a requested batch was deleted, or was never in this log."""


class BatchLogFullError(BatchLogError):
    """Raised if the log holds as many unread batches as it may.

    An append succeeds again once a reader has committed some.
    """

    recoverable = True


def count_of_option(option: str, said: str, error_class: type[HeadraceError]) -> int:
    """Return the count given as an option of a log; an error of `error_class` if it is not a valid count."""
    if not said.isdecimal() or int(said) < 1:
        raise error_class(f"{option} must be a count of at least 1, not '{said}'")
    return int(said)


class LoggedFile(msgspec.Struct, frozen=True):
    """A Parquet file of a batch, by its name in the log's folder."""

    name: str
    row_count: int


class LoggedBatch(msgspec.Struct, frozen=True):
    """A batch, and for each lineage of a job (`scope`) the highest checkpoint id up to this batch."""

    number: int
    checkpoint_id: int = 0
    files: tuple[LoggedFile, ...] = ()
    last_ids: dict[str, int] = {}

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)


class BatchLog:
    """The log in the folder `path`, a path or URI. All methods may block and raise OSError."""

    def __init__(self, path: str) -> None:
        self.path: Final = path.rstrip("/")
        self._file_system, self._place = file_system_of(self.path)
        self._folder: Final = f"{self._place}/{_LOG}"

    def declare(self, schema: pa.Schema, *, is_shared: bool = False) -> None:
        """Declare the columns of the rows, and that a job writes. BatchLogError if the log has other columns.

        Only its owner can read a new folder, unless `is_shared`.
        """
        make_folder(self.path, is_shared=is_shared)
        known = self.known_schema()
        if known is not None and not known.equals(schema):
            raise BatchLogError(
                f"the log {self.path} has columns {_listed(known)}, but the rows to be written have {_listed(schema)}: "
                "write to another path, or delete the log"
            )
        delete_file(self._file_system, f"{self._folder}/{_FAILED}")
        if known is None:
            content = io.BytesIO()
            pq.write_table(schema.empty_table(), content)
            self._replace(_SCHEMA, content.getvalue())

    def schema(self) -> pa.Schema:
        """Return the columns. BatchLogError if no job has declared any."""
        schema = self.known_schema()
        if schema is None:
            raise BatchLogError(
                f"{self.path} is not a log of batches: no job has written to it yet. Start one with to_dataframe("
                f"streaming=True), or with DataFrameSink('{self.path}', format='{BATCH_LOG_FORMAT}', mode='append')"
            )
        return schema

    def append(
        self,
        scope: str,
        checkpoint_id: int,
        parts: Sequence[StagedPart],
        batch_count_max: int = BATCHES_MAX_DEFAULT,
    ) -> None:
        """Move the staged files of a checkpoint into the log as the next batch, unless they are a batch already.

        NumberUsedTwiceError if other files were committed under the id; BatchLogFullError.
        """
        last, first = self._newest(), self.first_number
        if checkpoint_id <= last.last_ids.get(scope, 0):
            if any(exists(*file_system_of(part.path)) for part in parts):
                raise NumberUsedTwiceError(
                    f"checkpoint {checkpoint_id} is in the log {self.path} already, with other rows"
                )
            return
        number = last.number + 1
        if number - first >= batch_count_max:
            raise BatchLogFullError(
                f"{number - first} batches wait in the log {self.path}, which is the maximum ({BATCHES_MAX}): read "
                "them with "
                f"spark.readStream.format('{BATCH_LOG_FORMAT}'), or delete the log"
            )
        files = tuple(self._taken_over(number, part) for part in parts if part.row_count)
        persist_names(
            self._file_system, self._place, [f"{self._place}/{one.name}" for one in files]
        )
        entry = LoggedBatch(number, checkpoint_id, files, {**last.last_ids, scope: checkpoint_id})
        self._replace(f"{number:0{_DIGITS}d}.json", msgspec.json.encode(entry))

    def last_id(self, scope: str) -> int | None:
        """Return the highest checkpoint id of a lineage that is, or was, in the log."""
        return self._newest().last_ids.get(scope)

    @property
    def first_number(self) -> int:
        """Return the number of the oldest existing batch, or of the next one."""
        return self._deleted().number + 1

    @property
    def last_number(self) -> int:
        """Return the number of the newest batch; 0 before the first one."""
        numbers = [number for number, _ in self._numbered(self._folder)]
        return max(numbers, default=self._deleted().number)

    def batches(self, start: int, end: int) -> Iterator[LoggedBatch]:
        """Yield the batches after number `start` up to `end`. BatchGoneError if one is missing."""
        for number in range(start + 1, end + 1):
            batch = self._entry(number)
            if batch is None or number < self.first_number:
                raise self._gone(number)
            yield batch

    def check_start(self, start: int) -> None:
        """Raise BatchGoneError if a reader that has finished batch `start` cannot continue."""
        if start < self.first_number - 1:
            raise self._gone(start + 1)
        if start > self.last_number:
            raise self._gone(start)

    def file_path(self, file: LoggedFile) -> tuple[Any, str]:
        """Return the file system of a file and its path there. PathOutsideError."""
        return self._file_system, place_below(self._file_system, self._place, file.name)

    def delete_up_to(self, number: int) -> None:
        """Delete the batches up to `number`, which a reader has finished."""
        deleted = self._deleted()
        newest = self._entry(number) if number > deleted.number else None
        if newest is not None:
            deleted = LoggedBatch(number, newest.checkpoint_id, (), newest.last_ids)
            self._replace(_DELETED, msgspec.json.encode(deleted))
        # Rows first: an entry without rows is deleted with the next batch. This also deletes files of crashed appends.
        for folder in (self._place, self._folder):
            for found, path in list(self._numbered(folder)):
                if found <= deleted.number:
                    delete_file(self._file_system, path)

    def mark_failed(self, reason: str) -> None:
        """Record that the writing job has failed, so that readers are told after the last batch."""
        self._replace(_FAILED, msgspec.json.encode(reason))

    def failure(self) -> str | None:
        """Return the reason for which the writing job has failed, or None."""
        return self._read(_FAILED, str)

    def _taken_over(self, number: int, part: StagedPart) -> LoggedFile:
        file_system, source = file_system_of(part.path)
        name = f"{number:0{_DIGITS}d}-{source.rpartition('/')[2]}"
        target = place_below(self._file_system, self._place, name)
        if exists(file_system, source):
            self._file_system.create_dir(self._place, recursive=True)
            self._file_system.move(source, target)
        elif not exists(self._file_system, target):
            raise ResultFileLostError(
                f"{source}, rows of batch {number} of the log {self.path}, is missing, and {target} is missing too"
            )
        return LoggedFile(name, part.row_count)

    def _newest(self) -> LoggedBatch:
        # An entry that is deleted meanwhile is noted before.
        return self._entry(self.last_number) or self._deleted()

    def _deleted(self) -> LoggedBatch:
        return self._read(_DELETED, LoggedBatch) or LoggedBatch(0)

    def _entry(self, number: int) -> LoggedBatch | None:
        return self._read(f"{number:0{_DIGITS}d}.json", LoggedBatch)

    def _numbered(self, folder: str) -> Iterator[tuple[int, str]]:
        for info in folder_entries(self._file_system, folder):
            digits, rest = info.base_name[:_DIGITS], info.base_name[_DIGITS:]
            is_ours = rest == ".json" if folder == self._folder else rest.startswith("-")
            if is_ours and digits.isdecimal() and info.type is fs.FileType.File:
                yield int(digits), info.path

    def _gone(self, number: int) -> BatchGoneError:
        first, last = self.first_number, self.last_number
        if number < first:
            return BatchGoneError(
                f"batch {number} of the log {self.path} was deleted after a query had read it; the oldest batch is "
                f"{first}. Let only one query read a log, or let the others keep the rows with option "
                "cleanSource=off; a query with a new checkpointLocation begins at the oldest batch"
            )
        return BatchGoneError(
            f"batch {number} is not in the log {self.path}, whose newest is {last}: was the log deleted or recreated? "
            "A query with a new checkpointLocation begins at its oldest batch"
        )

    def known_schema(self) -> pa.Schema | None:
        """Return the columns, or None if none were declared yet."""
        try:
            with self._file_system.open_input_file(f"{self._folder}/{_SCHEMA}") as file:
                return pq.read_schema(file).remove_metadata()
        except FileNotFoundError:
            return None

    def _read(self, name: str, kind: Any) -> Any:
        path = f"{self._folder}/{name}"
        try:
            with self._file_system.open_input_stream(path, compression=None) as stream:
                return msgspec.json.decode(stream.read(), type=kind)
        except FileNotFoundError:
            return None
        except DECODE_ERRORS as error:
            raise BatchLogError(f"{path} is damaged: {error}") from error

    def _replace(self, name: str, content: bytes) -> None:
        """Write a whole file durably: a crash leaves the old content or the new one."""
        path = f"{self._folder}/{name}"
        new = f"{path}.{system_random().getrandbits(64):016x}.new"
        self._file_system.create_dir(self._folder, recursive=True)
        with self._file_system.open_output_stream(new, compression=None) as stream:
            stream.write(content)
        persist_file(self._file_system, new)
        self._file_system.move(new, path)
        persist_names(self._file_system, self._folder, [path])


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"'{column.name}' ({column.type})" for column in schema)
