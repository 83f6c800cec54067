"""BatchLogSource: the batches of a log as a stream, each row once, for jobs fed by Spark queries or other jobs.

The enumerator looks for new batches and assigns their files in order. Readers report the files that they have read. A
batch is deleted once a published checkpoint shows that all of it was read, so that no state refers to its files any
more.

    found ──► unread ── all its files were read before checkpoint n was taken ──► n is published ──► deleted
                 ▲── a reader restarts, and its state still holds the file ──┘
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.checkpoint.options import INTERVAL, SHARED_FILES
from headrace.connectors.dataframe.batch_log import BatchLog, BatchLogError
from headrace.connectors.files.formats.columnar_formats import ParquetColumnarRowInputFormat
from headrace.connectors.files.formats.splits import FileSplit
from headrace.connectors.files.paths import fixed_place
from headrace.connectors.files.source.enumerator import SplitQueue
from headrace.connectors.files.source.reader import FileReader
from headrace.core.errors import ProgramError
from headrace.core.types.arrow_types import data_schema, type_info_from_schema
from headrace.core.types.basic_type_info import CollectionTypeInfo
from headrace.core.types.object_type_info import ObjectTypeInfo
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import (
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import (
    Boundedness,
    SourceReader,
    SourceSplit,
    SplitEnumeratorContext,
    SplitSource,
    decode_split,
)
from headrace.graph.pipeline_options import IS_PREVIEW

LOG_ENUMERATOR: Final = "batch-log"
_BATCHES_AT_ONCE: Final = 100
_UNASSIGNED_SPLITS_MAX: Final = 1000
"""Number of unassigned splits above which the enumerator does not look for more."""
_LOG: Final = logging.getLogger(__name__)


class LogEnumeration(msgspec.Struct, frozen=True, array_like=True):
    """Configuration of the enumerator. `schema`: the columns, as an Arrow schema message."""

    path: str
    schema: bytes
    discovery_interval_ms: int


class LogEnumeratorState(msgspec.Struct, frozen=True, array_like=True):
    """Unassigned splits, the newest batch from which splits were made, and the batches of splits not read yet."""

    splits: tuple[SourceSplit, ...]
    number: int
    unread: dict[str, int]


class LogReaderOpened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """Reader → enumerator, before anything else: the splits of the state that it starts from."""

    split_ids: tuple[str, ...]


class LogFileRead(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Reader → enumerator: every row of the split was emitted."""

    split_id: str


_EVENT: Final = msgspec.msgpack.Decoder[Any](LogReaderOpened | LogFileRead)


@dataclass(frozen=True)
class BatchLogSource(SplitSource):
    """Reads a log of batches without end, which `df.writeStream.format("headrace").start(path)` or another job writes.

    `path` is a folder that the job's hosts and the writer share. `row_type`: names and types of the columns; by default
    those of the log, which must exist. Batches are deleted once a checkpoint has all their rows, so the job must take
    checkpoints, and no other job may read the log. Raises ProgramError or BatchLogError.

    Example:
        >>> from headrace.core.types.type_info import Types
        >>> source = BatchLogSource("payments", Types.ROW_NAMED(["amount"], [Types.LONG()]))
        >>> source.boundedness.name
        'CONTINUOUS_UNBOUNDED'
    """

    path: str | Path
    row_type: TypeInformation | None = None
    discovery_interval: Duration = field(default_factory=lambda: Duration.of_millis(200))

    def __post_init__(self) -> None:
        if self.discovery_interval.to_millis() <= 0:
            raise ProgramError(f"discovery_interval must be above 0, not {self.discovery_interval}")
        place = fixed_place(str(self.path))
        object.__setattr__(self, "path", place)
        if self.row_type is None:
            object.__setattr__(self, "row_type", type_info_from_schema(BatchLog(place).schema()))
        if not isinstance(self.row_type, RowTypeInfo):
            raise ProgramError(
                f"BatchLogSource reads rows with named columns, Types.ROW_NAMED([...], [...]), not {self.row_type}"
            )
        if _holds_pickles(self.row_type):
            raise ProgramError(
                "BatchLogSource reads data of other programs, which it does not unpickle: declare types for all "
                f"columns, not {self.row_type}"
            )

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation | None:
        return self.row_type

    def enumerator(self) -> tuple[str, bytes]:
        assert self.row_type is not None
        schema = data_schema(self.row_type).serialize().to_pybytes()
        interval_ms = self.discovery_interval.to_millis()
        payload = LogEnumeration(str(self.path), schema, interval_ms)
        return LOG_ENUMERATOR, msgspec.msgpack.encode(payload)

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        assert self.row_type is not None
        return _LogFileReader(ParquetColumnarRowInputFormat(self.row_type), context)


def _holds_pickles(one: TypeInformation) -> bool:
    match one:
        case PickledBytesTypeInfo():
            return True
        case RowTypeInfo() | TupleTypeInfo() | ObjectTypeInfo():
            return any(map(_holds_pickles, one.field_types))
        case CollectionTypeInfo():
            return _holds_pickles(one.element_type)
        case MapTypeInfo():
            return _holds_pickles(one.key_type) or _holds_pickles(one.value_type)
        case _:
            return False


class _LogFileReader(FileReader):
    """Reports to the enumerator which files it has read."""

    def start(self) -> None:
        super().start()
        held = [decode_split(state).split_id for state in self.snapshot_state(0)]
        self.send_source_event(msgspec.msgpack.encode(LogReaderOpened(tuple(held))))

    def split_ended(self, split: FileSplit) -> None:
        self.send_source_event(msgspec.msgpack.encode(LogFileRead(split.split_id)))


class BatchLogEnumerator(SplitQueue):
    """Makes a split of each file of a batch."""

    def __init__(self, context: SplitEnumeratorContext, enumeration: LogEnumeration) -> None:
        super().__init__(context)
        self._log = BatchLog(enumeration.path)
        self._schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(enumeration.schema))
        self._interval_ms = enumeration.discovery_interval_ms
        self._number: int | None = None
        self._has_looked = False
        self._is_failure_logged = False
        # Batches by those of their splits of which a checkpoint may still have unread rows.
        self._unread: dict[str, int] = {}
        # Splits that were read, by subtask: since the last checkpoint, and before those that are not published.
        self._read: dict[int, set[str]] = {}
        self._read_before: dict[int, dict[int, set[str]]] = {}
        # Unread as a restored state has it, though a reader may have been done with it: whose `LogFileRead` was late.
        self._doubtful: set[str] = set()
        self._not_opened = set(range(context.parallelism))
        self._deleted = 0

    def restore(self, state: bytes) -> None:
        restored = msgspec.msgpack.decode(state, type=LogEnumeratorState)
        self.splits = list(restored.splits)
        self._number, self._unread = restored.number, dict(restored.unread)
        self._doubtful = set(self._unread).difference(split.split_id for split in self.splits)

    def start(self) -> None:
        settings = self.context.settings
        if settings.duration_ms(INTERVAL) <= 0 and not settings.get_option(IS_PREVIEW):
            _LOG.warning(
                "the job that reads the log %s takes no checkpoints, so its batches are never deleted: set %s",
                self._log.path,
                INTERVAL.key,
            )
        self._look(0)

    def add_splits_back(self, splits: Sequence[SourceSplit], subtask_index: int) -> None:
        self._forget_reads(subtask_index, [split.split_id for split in splits])
        super().add_splits_back(splits, subtask_index)

    def handle_source_event(self, subtask_index: int, payload: bytes) -> None:
        event = _EVENT.decode(payload)
        if isinstance(event, LogFileRead):
            self._read.setdefault(subtask_index, set()).add(event.split_id)
            return
        # Rows that it had read after its checkpoint are read again, by it or, for returned splits, by any reader.
        self._forget_reads(subtask_index, event.split_ids)
        self._doubtful.difference_update(event.split_ids)
        self._not_opened.discard(subtask_index)
        if self._doubtful and not self._not_opened:
            for split_id in self._doubtful:
                self._unread.pop(split_id, None)
            self._doubtful.clear()

    def _forget_reads(self, subtask_index: int, split_ids: Sequence[str]) -> None:
        for read in (self._read, *self._read_before.values()):
            read.get(subtask_index, set[str]()).difference_update(split_ids)

    def snapshot_state(self, checkpoint_id: int) -> bytes:
        self._read_before[checkpoint_id], self._read = self._read, {}
        read = {one for by in self._read_before.values() for ids in by.values() for one in ids}
        unread = {one: number for one, number in self._unread.items() if one not in read}
        number = -1 if self._number is None else self._number
        state = LogEnumeratorState(tuple(self.splits), number, unread)
        return msgspec.msgpack.encode(state)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for older in [one for one in self._read_before if one <= checkpoint_id]:
            for ids in self._read_before.pop(older).values():
                for split_id in ids:
                    self._unread.pop(split_id, None)
        done = min(self._unread.values(), default=(self._number or 0) + 1) - 1
        if done > self._deleted:
            self._deleted = done
            self.context.call_async(lambda: self._log.delete_up_to(done), self._was_deleted)

    def _was_deleted(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            _LOG.warning(
                "batches of %s could not be deleted now, and are deleted later: %s",
                self._log.path,
                error,
            )

    def _look(self, delay_ms: float) -> None:
        number = self._number if self._number != -1 else None
        oldest = None if self._has_looked else min(self._unread.values(), default=None)
        has_room = len(self.splits) < _UNASSIGNED_SPLITS_MAX
        self.context.call_async(
            lambda: self._new_batches(number, oldest) if has_room else [],
            self._found,
            delay_ms=delay_ms,
        )

    def _new_batches(
        self, number: int | None, oldest: int | None
    ) -> list[tuple[int, list[FileSplit]]]:
        """Return batches after `number`; at first, declare the log and check that no batch is missing. May block."""
        log = self._log
        if not self._has_looked:
            is_shared = self.context.settings.get_option(SHARED_FILES)
            log.declare(self._schema, is_shared=is_shared)
            if number is not None:
                log.check_start(number if oldest is None else oldest - 1)
        start = log.first_number - 1 if number is None else number
        end = min(log.last_number, start + _BATCHES_AT_ONCE)
        found = [(start, [])] if number is None else []
        for batch in log.batches(start, end):
            splits = [self._split(*log.file_path(file)) for file in batch.files]
            found.append((batch.number, splits))
        return found

    def _split(self, file_system: Any, path: str) -> FileSplit:
        info = file_system.get_file_info(path)
        size = info.size or 0
        return FileSplit(self._log.path, path, 0, size, size, info.mtime_ns or 0)

    def _found(
        self, found: list[tuple[int, list[FileSplit]]] | None, error: BaseException | None
    ) -> None:
        if found is None:
            assert error is not None
            if not self._has_looked or isinstance(error, BatchLogError):
                raise error
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _LOG.warning("looking for new batches failed and will be repeated: %s", error)
        else:
            self._has_looked, self._is_failure_logged = True, False
            for number, splits in found:
                self._number = number
                self._unread.update({split.split_id: number for split in splits})
                self.splits += [split.encoded() for split in splits]
        self._look(self._interval_ms)
        self.serve()


def create_log_enumerator(context: SplitEnumeratorContext, payload: bytes) -> BatchLogEnumerator:
    """Make the enumerator of a BatchLogSource; the entry point of LOG_ENUMERATOR."""
    return BatchLogEnumerator(context, msgspec.msgpack.decode(payload, type=LogEnumeration))
