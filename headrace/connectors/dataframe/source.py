"""DataFrameSource: a bounded DataFrame, pushed into source subtasks by the Spark tasks that compute it.

The Spark job starts when all subtasks are ready. Spark partition i is a split, at first of subtask i modulo
parallelism; every split is known from the start, so a partition that Spark computes late holds the watermark until its
rows have come. A split's position is how many of its rows were emitted: after a failure the rows are computed again,
and those before the position are left out by whoever pushes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.connectors.dataframe.messages import (
    SOURCE_COORDINATOR,
    PartitionEnded,
    PartitionPosition,
    PartitionsAnnounced,
    ReaderOpened,
    SourcePayload,
)
from headrace.core.errors import ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import cast_column, data_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.ingest import Ingest, IngestedBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceReader
from headrace.functions.watermarks import ColumnTimestampAssigner

_ANNOUNCEMENT: Final = msgspec.msgpack.Decoder(PartitionsAnnounced)
_POSITION: Final = msgspec.msgpack.Decoder(PartitionPosition)


@dataclass(frozen=True)
class DataFrameSource(Source):
    """The rows of a DataFrame that the driver knows as `dataframe_id`. `event_time_column`: whose time rows get."""

    dataframe_id: str
    row_type: TypeInformation
    event_time_column: str | None = None

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self.row_type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return DataFrameReader(self, context)

    def coordinator(self) -> tuple[str, bytes]:
        return SOURCE_COORDINATOR, msgspec.msgpack.encode(SourcePayload(self.dataframe_id))


class DataFrameReader(SourceReader):
    """Reads the rows that Spark's tasks push through the TaskManager's ingest door."""

    def __init__(self, source: DataFrameSource, context: SubtaskContext) -> None:
        self._context = context
        self._event_time_column = source.event_time_column
        self._batch_type = context.types.output
        self._schema = data_schema(self._batch_type.value_type)
        self._receiver: Ingest | None = None
        # What was received and is not emitted yet, by partition.
        self._rests: dict[int, IngestedBatch] = {}
        # Emitted rows of the partitions that have not ended.
        self._row_counts: dict[int, int] = {}
        self._paused: frozenset[int] = frozenset()
        self._is_announced = False
        self._holds_watermark = False

    def restore_splits(self, splits: Sequence[bytes]) -> None:
        restored = [_POSITION.decode(split) for split in splits]
        self._row_counts = {one.partition: one.row_count for one in restored}

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return [msgspec.msgpack.encode(position) for position in self._positions()]

    def start(self) -> None:
        context = self._context
        attempt_id = context.attempt_id
        assert attempt_id is not None and context.ingest is not None
        self._receiver = context.ingest.register(
            attempt_id.job_id,
            context.operator_id,
            context.subtask_index,
            attempt_id,
            context.wake,
            self._row_counts,
        )
        context.send_event(msgspec.msgpack.encode(ReaderOpened(self._positions())))

    def handle_event(self, payload: bytes) -> None:
        announced = _ANNOUNCEMENT.decode(payload).partitions
        if not self._is_announced:
            self._is_announced = True
            self._row_counts = {one: self._row_counts.get(one, 0) for one in announced}
            self._context.wake()

    def poll_next(self, output: Any) -> InputStatus:
        """Emit at most one batch. `output` also takes splits, which hold the watermark back."""
        if not self._is_announced:
            return InputStatus.NOTHING_AVAILABLE
        if not self._holds_watermark:
            self._holds_watermark = True
            for partition in sorted(self._row_counts):
                output.add_split(_split_id(partition))
        if not self._row_counts:
            return InputStatus.END_OF_INPUT
        assert self._receiver is not None
        received = self._next_rest() or self._receiver.poll()
        if received is None:
            return InputStatus.NOTHING_AVAILABLE
        split_id = _split_id(received.partition)
        if isinstance(received, IngestedBatch):
            assert received.row_offset == self._row_counts[received.partition]
            emitted = received.batch.slice(0, output.rows_wanted)
            output.emit(self._rows(emitted), split_id)
            self._row_counts[received.partition] += emitted.num_rows
            if emitted.num_rows < received.batch.num_rows:
                self._rests[received.partition] = received.behind(emitted.num_rows)
        else:
            del self._row_counts[received.partition]
            output.release_split(split_id)
            self._context.send_event(msgspec.msgpack.encode(PartitionEnded(received.partition)))
        return InputStatus.MORE_AVAILABLE

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        partitions = {_split_id(partition): partition for partition in self._row_counts}
        paused = {partitions[one] for one in to_pause if one in partitions}
        resumed = {partitions[one] for one in to_resume if one in partitions}
        self._paused = (self._paused | paused) - resumed
        assert self._receiver is not None
        self._receiver.pause(self._paused)
        self._context.wake()

    def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _next_rest(self) -> IngestedBatch | None:
        """Take the rest of a batch whose partition is not paused."""
        partition = next((one for one in self._rests if one not in self._paused), None)
        return None if partition is None else self._rests.pop(partition)

    def _positions(self) -> tuple[PartitionPosition, ...]:
        return tuple(PartitionPosition(*one) for one in sorted(self._row_counts.items()))

    def _rows(self, received: pa.RecordBatch) -> RecordBatch:
        columns = conform(received, self._schema)
        batch = RecordBatch.of_columns(self._batch_type, columns)
        if self._event_time_column is None:
            return batch
        times = ColumnTimestampAssigner(self._event_time_column).extract_timestamps(columns)
        return batch.with_timestamps(times)


def check_dataframe_schema(schema: pa.Schema, event_time_column: str | None) -> None:
    """Raise ProgramError where a DataFrame with these columns cannot be a stream, before anything runs."""
    names = schema.names
    if not names:
        raise ProgramError("the DataFrame has no columns, so its rows hold nothing: select some")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ProgramError(
            f"the DataFrame has more than one column '{repeated[0]}': rename them, for example with toDF(...)"
        )
    if event_time_column is None:
        return
    if event_time_column not in names:
        raise ProgramError(
            f"the DataFrame has no column '{event_time_column}' for the event time; it has: {', '.join(names)}"
        )
    column_type = schema.field(event_time_column).type
    kinds = pa.types
    if not (
        kinds.is_timestamp(column_type)
        or kinds.is_date(column_type)
        or kinds.is_integer(column_type)
    ):
        raise ProgramError(
            f"the column '{event_time_column}' is of type {column_type}, which is no event time: "
            "take a timestamp, a date, or epoch milliseconds as an integer"
        )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly the columns of `schema`, cast where Spark chose another Arrow type."""
    if batch.schema == schema:
        return batch
    columns = [
        cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _split_id(partition: int) -> str:
    return f"partition-{partition}"
