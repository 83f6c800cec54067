"""DataFrameSource: a DataFrame, bounded or streaming, pushed into source subtasks by the Spark tasks that compute it.

The Spark job starts when all subtasks are ready. Spark partition i is a split, at first of subtask i modulo
parallelism; every split is known from the start, so a partition that Spark computes late holds the watermark back until
its rows have arrived. A split's position is the number of its emitted rows: after a failure the rows are computed
again, and the Spark task skips those before the position.

A streaming DataFrame comes as micro-batches, one after the other, each with partitions of its own. Like Spark's, the
watermark advances only at the end of a micro-batch, because its partitions arrive in any order of time.
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
from headrace.core.record_batch import RecordBatch
from headrace.core.types.arrow_types import data_schema
from headrace.core.types.type_info import TypeInformation
from headrace.functions.ingest import Ingest, IngestedBatch
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.source import Boundedness, InputStatus, Source, SourceReader
from headrace.functions.sources.dataframe_columns import conform
from headrace.functions.watermarks import ColumnTimestampAssigner

_ANNOUNCEMENT: Final = msgspec.msgpack.Decoder(PartitionsAnnounced)
_ROWS: Final = "rows"
_MICRO_BATCH: Final = "micro-batch"
"""Splits of a streaming DataFrame: one for all rows, and one that holds the watermark until a micro-batch has ended."""
_POSITION: Final = msgspec.msgpack.Decoder(PartitionPosition)


@dataclass(frozen=True)
class DataFrameSource(Source):
    """The rows of a DataFrame that the driver knows as `dataframe_id`.

    `event_time_column`: the column with the rows' event time.
    """

    dataframe_id: str
    row_type: TypeInformation
    event_time_column: str | None = None
    is_streaming: bool = False

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self.is_streaming else Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self.row_type

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return DataFrameReader(self, context)

    def coordinator(self) -> tuple[str, bytes]:
        return SOURCE_COORDINATOR, msgspec.msgpack.encode(SourcePayload(self.dataframe_id))

    def split_id(self, partition: int) -> str:
        """Return the split that has a watermark of its own for the rows of this partition."""
        return _ROWS if self.is_streaming else f"partition-{partition}"


class DataFrameReader(SourceReader):
    """Reads the rows that Spark's tasks push to the TaskManager's ingest server."""

    def __init__(self, source: DataFrameSource, context: SubtaskContext) -> None:
        self._context = context
        self._source = source
        self._event_time_column = source.event_time_column
        self._batch_type = context.types.output
        self._schema = data_schema(self._batch_type.value_type)
        self._receiver: Ingest | None = None
        # What was received and is not emitted yet, by partition.
        self._rests: dict[int, IngestedBatch] = {}
        # Emitted rows of the partitions that have not ended.
        self._row_counts: dict[int, int] = {}
        self._paused: frozenset[int] = frozenset()
        # Of the last announcement, -1 before there is one.
        self._number = -1
        self._is_last = False
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
        announced = _ANNOUNCEMENT.decode(payload)
        if announced.number <= self._number:
            return
        assert self._receiver is not None
        self._receiver.forget_before(announced.first_partition)
        self._number, self._is_last = announced.number, announced.is_last
        self._row_counts = {one: self._row_counts.get(one, 0) for one in announced.partitions}
        self._holds_watermark = False
        self._context.wake()

    def poll_next(self, output: Any) -> InputStatus:
        """Emit at most one batch. `output` also registers splits, which hold the watermark back."""
        if self._number < 0:
            return InputStatus.NOTHING_AVAILABLE
        if not self._holds_watermark:
            self._holds_watermark = True
            for partition in sorted(self._row_counts):
                output.add_split(self._source.split_id(partition))
            if self._source.is_streaming and self._row_counts:
                output.add_split(_MICRO_BATCH)
        if not self._row_counts:
            return InputStatus.END_OF_INPUT if self._is_last else InputStatus.NOTHING_AVAILABLE
        assert self._receiver is not None
        received = self._next_rest() or self._receiver.poll()
        if received is None:
            return InputStatus.NOTHING_AVAILABLE
        split_id = self._source.split_id(received.partition)
        if isinstance(received, IngestedBatch):
            assert received.row_offset == self._row_counts[received.partition]
            emitted = received.batch.slice(0, output.rows_wanted)
            output.emit(self._rows(emitted), split_id)
            self._row_counts[received.partition] += emitted.num_rows
            if emitted.num_rows < received.batch.num_rows:
                self._rests[received.partition] = received.behind(emitted.num_rows)
        else:
            del self._row_counts[received.partition]
            if not self._source.is_streaming:
                output.release_split(split_id)
            elif not self._row_counts:
                output.release_split(_MICRO_BATCH)
            self._context.send_event(msgspec.msgpack.encode(PartitionEnded(received.partition)))
        return InputStatus.MORE_AVAILABLE

    def pause_or_resume_splits(self, to_pause: Sequence[str], to_resume: Sequence[str]) -> None:
        split_id = self._source.split_id
        paused = {one for one in self._row_counts if split_id(one) in to_pause}
        resumed = {one for one in self._row_counts if split_id(one) in to_resume}
        self._paused = (self._paused | paused) - resumed
        assert self._receiver is not None
        self._receiver.pause(self._paused)
        self._context.wake()

    def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _next_rest(self) -> IngestedBatch | None:
        """Return the rest of a batch whose partition is not paused, or None."""
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
