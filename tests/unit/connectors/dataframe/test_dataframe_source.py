"""The reader of a DataFrame source: waits for the announcement, holds the watermark, ends with its partitions."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.connectors.dataframe.messages import (
    PartitionEnded,
    PartitionPosition,
    PartitionsAnnounced,
    ReaderEvent,
    ReaderOpened,
)
from headrace.connectors.dataframe.source import DataFrameSource
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.errors import RecordTypeError, UserCodeError
from headrace.core.ids import ExecutionAttemptId, ExecutionVertexId, JobId, JobVertexId, OperatorId
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.ingest import IngestedBatch, IngestedEnd
from headrace.functions.source import InputStatus, SourceReader
from headrace.functions.specs.operator_specs import SourceSpec
from headrace.functions.watermarks import ColumnTimestampAssigner
from headrace.metrics.groups import MetricGroup
from headrace.operators.sources_sinks.sources import SourceReaderOperator

ROWS = Types.ROW_NAMED(["id", "at"], [Types.LONG(), Types.LONG()])
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])


@dataclass
class ScriptedDoor:
    """An ingest door whose receiver returns what the test puts in."""

    received: deque[Any] = field(default_factory=deque)
    registered: list[Any] = field(default_factory=list)
    is_closed: bool = False
    paused: frozenset[int] = frozenset()
    forgotten_before: int = 0

    def forget_before(self, partition: int) -> None:
        self.forgotten_before = partition

    def pause(self, partitions: frozenset[int]) -> None:
        self.paused = partitions

    def register(self, *arguments: Any) -> "ScriptedDoor":
        self.registered.append(arguments)
        return self

    def poll(self) -> Any:
        return self.received.popleft() if self.received else None

    def close(self) -> None:
        self.is_closed = True


ATTEMPT = ExecutionAttemptId(JobId(b"j" * 16), ExecutionVertexId(JobVertexId(b"v" * 16), 0), 0)
OPERATOR = OperatorId(b"o" * 16)
TYPES = OperatorTypes((), BatchType(ROWS))


class NothingRestored:
    """The states of an operator that starts afresh."""

    restored_checkpoint_id = None

    def register(self, name: str, state: Any) -> tuple[()]:
        return ()


@dataclass
class Context:
    ingest: ScriptedDoor
    subtask_index: int = 0
    parallelism: int = 2
    operator_id: OperatorId = OPERATOR
    operator_name: str = "flights"
    attempt_number: int = 0
    types: OperatorTypes = TYPES
    settings: Any = None
    output: Any = None
    clock: Any = None
    attempt_id: ExecutionAttemptId = ATTEMPT
    wake: Callable[[], None] = lambda: None
    send_event: Callable[[bytes], None] = lambda payload: None
    back_pressured_ms: Callable[[], float] = lambda: 0.0
    metrics: MetricGroup = field(default_factory=MetricGroup)
    rows_wanted: Callable[[], int] = lambda: 1 << 40
    state: Any = field(default_factory=lambda: NothingRestored())


@dataclass
class Output:
    emitted: list[tuple[RecordBatch, str]] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    rows_wanted = 1 << 40

    def emit(self, batch: RecordBatch, split_id: str = "") -> None:
        self.emitted.append((batch, split_id))

    def add_split(self, split_id: str) -> None:
        if split_id not in self.splits:
            self.splits.append(split_id)

    def release_split(self, split_id: str) -> None:
        self.splits.remove(split_id)


def reader_of(context: Context, event_time: str | None = None) -> SourceReader:
    reader = DataFrameSource("dataframe-1", ROWS, event_time).create_reader(context)
    reader.start()
    return reader


def announce(reader: SourceReader, *partitions: int) -> None:
    reader.handle_event(msgspec.msgpack.encode(PartitionsAnnounced(partitions)))


def batch(ids: list[int], offset: int, partition: int = 0, attempt: int = 0) -> IngestedBatch:
    data = pa.RecordBatch.from_pydict({"id": ids, "at": [10 * i for i in ids]}, schema=SCHEMA)
    return IngestedBatch(partition, attempt, offset, data)


def test_nothing_is_taken_before_the_partitions_are_announced() -> None:
    door = ScriptedDoor(deque([batch([1], 0)]))
    reader = reader_of(Context(door))
    assert reader.poll_next(Output()) is InputStatus.NOTHING_AVAILABLE
    assert len(door.received) == 1


def test_every_partition_of_the_subtask_holds_the_watermark_from_the_start() -> None:
    reader, output = reader_of(Context(ScriptedDoor(), subtask_index=1)), Output()
    announce(reader, 1, 3)
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert output.splits == ["partition-1", "partition-3"]


def test_a_subtask_without_partitions_ends_at_once() -> None:
    reader = reader_of(Context(ScriptedDoor(), subtask_index=1))
    announce(reader)
    assert reader.poll_next(Output()) is InputStatus.END_OF_INPUT


def test_rows_go_on_in_order_whichever_attempt_pushed_them_and_the_end_releases_the_split() -> None:
    door = ScriptedDoor(deque([batch([1, 2], 0), batch([3], 2, attempt=1), IngestedEnd(0, 3)]))
    reader, output = reader_of(Context(door)), Output()
    announce(reader, 0)
    assert [reader.poll_next(output) for _ in range(3)] == [InputStatus.MORE_AVAILABLE] * 3
    ids = [i for one, _ in output.emitted for i in one.columns().column("id").to_pylist()]
    assert ids == [1, 2, 3]
    assert output.splits == []
    assert reader.poll_next(output) is InputStatus.END_OF_INPUT


def events_of(context: Context) -> list[Any]:
    """What the reader says to its coordinator from now on."""
    said: list[Any] = []
    decoder = msgspec.msgpack.Decoder[Any](ReaderEvent)
    context.send_event = lambda payload: said.append(decoder.decode(payload))
    return said


def test_a_reader_says_where_each_partition_is_and_goes_on_from_there() -> None:
    before = reader_of(Context(ScriptedDoor(deque([batch([1, 2], 0), batch([7], 0, 2)]))))
    announce(before, 0, 2, 4)
    for _ in range(2):
        before.poll_next(Output())
    splits = before.snapshot_state(1)
    door = ScriptedDoor(deque([batch([3], 2), IngestedEnd(0, 3)]))
    context = Context(door)
    said = events_of(context)
    after = DataFrameSource("dataframe-1", ROWS).create_reader(context)
    after.restore_splits(splits[:2])
    after.start()
    positions = (PartitionPosition(0, 2), PartitionPosition(2, 1))
    assert said == [ReaderOpened(positions)]
    assert door.registered[0][-1] == {0: 2, 2: 1}
    announce(after, 0, 2)
    output = Output()
    for _ in range(2):
        after.poll_next(output)
    assert [row["id"] for one, _ in output.emitted for row in one.rows()] == [3]
    assert said[1:] == [PartitionEnded(0)]
    assert after.snapshot_state(2) == [msgspec.msgpack.encode(PartitionPosition(2, 1))]


def test_a_reader_whose_partitions_had_ended_ends_once_it_is_told_that_it_has_none() -> None:
    context = Context(ScriptedDoor())
    reader = DataFrameSource("dataframe-1", ROWS).create_reader(context)
    reader.restore_splits([])
    reader.start()
    assert reader.poll_next(Output()) is InputStatus.NOTHING_AVAILABLE
    announce(reader)
    assert reader.poll_next(Output()) is InputStatus.END_OF_INPUT


def test_an_announcement_that_is_repeated_for_others_changes_nothing() -> None:
    reader = reader_of(Context(ScriptedDoor(deque([batch([1, 2], 0)]))))
    announce(reader, 0)
    reader.poll_next(Output())
    announce(reader, 0)
    assert reader.snapshot_state(1) == [msgspec.msgpack.encode(PartitionPosition(0, 2))]


def test_partitions_that_are_ahead_are_paused_at_the_door_until_they_are_resumed() -> None:
    door = ScriptedDoor()
    reader = reader_of(Context(door))
    announce(reader, 0, 2, 4)
    reader.pause_or_resume_splits(["partition-0", "partition-4"], [])
    assert door.paused == {0, 4}
    reader.pause_or_resume_splits(["partition-2"], ["partition-0", "partition-9"])
    assert door.paused == {2, 4}


def test_rows_get_the_time_of_the_named_column() -> None:
    reader, output = reader_of(Context(ScriptedDoor(deque([batch([1, 2], 0)]))), "at"), Output()
    announce(reader, 0)
    reader.poll_next(output)
    timestamps = output.emitted[0][0].timestamps
    assert timestamps is not None
    assert timestamps.tolist() == [10, 20]


def test_event_time_is_read_from_timestamps_of_any_unit_and_zone() -> None:
    at = datetime(2013, 3, 10, 7, 30, 0, 250_999, tzinfo=UTC)
    for arrow_type in (pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")):
        columns = pa.RecordBatch.from_arrays([pa.array([at], arrow_type)], names=["t"])
        assert ColumnTimestampAssigner("t").extract_timestamps(columns).tolist() == [
            int(at.timestamp() * 1000)
        ]


def test_a_row_without_event_time_is_shown() -> None:
    columns = pa.RecordBatch.from_pydict({"id": [1, 2], "t": [5, None]})
    with pytest.raises(RecordTypeError, match=r"\{'id': 2, 't': None\}.*'t' is the event time"):
        ColumnTimestampAssigner("t").extract_timestamps(columns)


def test_a_row_without_event_time_is_blamed_on_its_source() -> None:
    nulls = pa.RecordBatch.from_pydict({"id": [1], "at": [None]}, schema=SCHEMA)
    door = ScriptedDoor(deque([IngestedBatch(0, 0, 0, nulls)]))
    operator = SourceReaderOperator(SourceSpec(DataFrameSource("dataframe-1", ROWS, "at"), None))
    context: Any = Context(door, clock=ManualClock(), settings=Settings(), output=Output())
    operator.open(context)
    announced = msgspec.msgpack.encode(PartitionsAnnounced((0,)))
    operator.handle_event(announced)
    with pytest.raises(
        UserCodeError, match=r"is the event time, but is null .in operator 'flights'"
    ):
        operator.poll(context.output)


def test_closing_the_reader_closes_the_door() -> None:
    door = ScriptedDoor()
    reader = reader_of(Context(door))
    reader.close()
    assert door.is_closed


def streaming_reader() -> tuple[SourceReader, ScriptedDoor]:
    door = ScriptedDoor()
    source = DataFrameSource("dataframe-1", ROWS, is_streaming=True)
    context: Any = Context(door)
    reader = source.create_reader(context)
    reader.start()
    return reader, door


def announce_micro_batch(
    reader: SourceReader, number: int, *partitions: int, is_last: bool = False
) -> None:
    first = min(partitions, default=0)
    announced = PartitionsAnnounced(partitions, number, first, is_last)
    reader.handle_event(msgspec.msgpack.encode(announced))


def test_a_micro_batch_holds_the_watermark_until_all_its_partitions_have_ended() -> None:
    reader, door = streaming_reader()
    output = Output()
    announce_micro_batch(reader, 0, 0, 1)
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    assert "micro-batch" in output.splits
    door.received += [IngestedEnd(0, 0)]
    reader.poll_next(output)
    assert "micro-batch" in output.splits
    door.received += [IngestedEnd(1, 0)]
    reader.poll_next(output)
    assert "micro-batch" not in output.splits
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE


def test_the_next_micro_batch_forgets_partitions_before_it_and_an_older_one_changes_nothing() -> (
    None
):
    reader, door = streaming_reader()
    announce_micro_batch(reader, 3, 10)
    announce_micro_batch(reader, 2, 4)
    assert door.forgotten_before == 10
    assert [msgspec.msgpack.decode(one) for one in reader.snapshot_state(1)] == [[10, 0]]


def test_a_streaming_reader_ends_when_no_micro_batch_comes_any_more() -> None:
    reader, _ = streaming_reader()
    output = Output()
    announce_micro_batch(reader, 0)
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    announce_micro_batch(reader, 1, is_last=True)
    assert reader.poll_next(output) is InputStatus.END_OF_INPUT
