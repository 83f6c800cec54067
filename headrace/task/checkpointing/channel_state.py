"""ChannelStates: stores the in-flight data of one subtask in its checkpoints and restores it.

The task calls, on its mailbox thread and in this order:

    restore()               before the operators are opened and before partitions are requested: overtaken output is
                            sent first, before the watermarks that operators had sent, followed by
                            EndOfOutputChannelState; queued input is read first
    start_capture(n)        for StartChannelCapture, right before the checkpoint is taken
    snapshot(n, captures)   when the barrier was emitted: `captures` were returned by `RecordWriter.emit_barrier`. The
                            asynchronous part begins when `InFlightData.on_ready` says so
    stop_capture(n, …)      for StopChannelCapture: every barrier has come, or the checkpoint failed

At the same parallelism each batch is restored to its own channel, with its markers. Otherwise each sender sends the
data that it takes over from old ones by the new partitioning, each receiver keeps the rows of its own keys, and markers
are left out: operators and outputs continue with the watermarks in the checkpoint.

Captured batches are stored as Arrow streams, in their order, which any Arrow reader opens. Each begins with its schema.
The markers between the rows of each batch are in the schema's metadata under `headrace.markers`, as JSON: for each
batch a list of [row, kind, value], where kind "w" is a watermark (epoch ms), "s" idleness (1: idle) and "l" a latency
marker (epoch ms, then its source's operator id in hex and subtask index).
Source: Flink ChannelStateWriterImpl, SequentialChannelStateReaderImpl, RescalingStreamTaskNetworkInput.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.checkpoint.errors import MetadataError
from headrace.checkpoint.handles import (
    ChannelPart,
    ChannelRole,
    ReceiverMapping,
    StateChunk,
    StateTable,
    concerns_subtask,
)
from headrace.checkpoint.storage.snapshot_files import SnapshotWriter
from headrace.core.elements import (
    LatencyMarker,
    PlacedMarker,
    StreamMarker,
    Watermark,
    WatermarkStatus,
)
from headrace.core.ids import OperatorId
from headrace.core.key_groups import subtasks_of
from headrace.core.record_batch import KEY_HASH_COLUMN
from headrace.network.batches.channel_selectors import order_by_channel
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.single_input_gate import recover_together
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.writers.record_writer import RecordWriter
from headrace.task.environment import GateInput, PartitionOutput, TaskEnvironment

_MARKERS: Final = b"headrace.markers"
_WATERMARK, _STATUS, _LATENCY = "w", "s", "l"
_NO_COLUMNS: Final = pa.schema([])


@dataclass(frozen=True)
class CapturedFrame:
    """A captured batch; `rows` is None if it has only markers."""

    rows: pa.RecordBatch | None
    markers: tuple[PlacedMarker, ...]


@dataclass(frozen=True)
class FrameTable:
    """Frames of one schema. `key_hashes` has shape (row_count,); None if the rows have no keys."""

    content: memoryview
    row_count: int
    key_hashes: npt.NDArray[np.int32] | None


def tables_of(frames: Iterable[CapturedFrame]) -> Iterator[FrameTable]:
    """Combine frames into one table per run of equal schemas; a frame without rows belongs to the run before it."""
    last = _NO_COLUMNS

    def schema_of(frame: CapturedFrame) -> pa.Schema:
        nonlocal last
        if frame.rows is not None and not frame.rows.schema.equals(last):
            last = frame.rows.schema
        return last

    # The same object for a whole run: `groupby` compares with the previous key.
    for schema, run in groupby(frames, key=schema_of):
        yield _table(schema, list(run))


def _table(schema: pa.Schema, frames: list[CapturedFrame]) -> FrameTable:
    markers = [[_plain(placed) for placed in frame.markers] for frame in frames]
    metadata = {**(schema.metadata or {}), _MARKERS: json.dumps(markers).encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata)) as stream:
        for frame in frames:
            rows = frame.rows
            if rows is None:
                empty = [pa.array([], column.type) for column in schema]
                rows = pa.RecordBatch.from_arrays(empty, schema=schema)
            stream.write_batch(rows)
    batches = [frame.rows for frame in frames if frame.rows is not None]
    key_hashes = None
    if batches and KEY_HASH_COLUMN in schema.names:
        key_hashes = np.concatenate([key_hashes_of(rows) for rows in batches])
    row_count = sum(rows.num_rows for rows in batches)
    return FrameTable(memoryview(sink.getvalue()), row_count, key_hashes)


def key_hashes_of(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
    """Return the key hashes that rows on a keyed edge carry, shape (num_rows,)."""
    return rows.column(KEY_HASH_COLUMN).to_numpy(zero_copy_only=True)


def frames_of(content: memoryview) -> list[CapturedFrame]:
    """Return the frames of one table that `tables_of` wrote."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        metadata = dict(stream.schema.metadata)
        markers = json.loads(metadata.pop(_MARKERS))
        batches = [batch.replace_schema_metadata(metadata or None) for batch in stream]
    return [
        CapturedFrame(batch if batch.num_rows else None, tuple(_marker(plain) for plain in placed))
        for batch, placed in zip(batches, markers, strict=True)
    ]


def _plain(placed: PlacedMarker) -> list[int | str]:
    match placed.marker:
        case Watermark(timestamp_ms):
            return [placed.row_offset, _WATERMARK, timestamp_ms]
        case WatermarkStatus(is_idle):
            return [placed.row_offset, _STATUS, int(is_idle)]
        case LatencyMarker(marked_time_ms, source_id, subtask_index):
            return [placed.row_offset, _LATENCY, marked_time_ms, source_id.hex(), subtask_index]


def _marker(plain: list[Any]) -> PlacedMarker:
    row_offset, kind, value, *origin = plain
    marker: StreamMarker
    if kind == _LATENCY:
        source_id, subtask_index = origin
        marker = LatencyMarker(value, OperatorId.from_hex(source_id), subtask_index)
    else:
        marker = Watermark(value) if kind == _WATERMARK else WatermarkStatus(is_idle=bool(value))
    return PlacedMarker(row_offset, marker)


class InFlightData:
    """In-flight data of one checkpoint; complete once `on_ready` calls back."""

    def __init__(
        self,
        environment: TaskEnvironment,
        captures: Sequence[InFlightOutput],
        *,
        waits_for_input: bool,
    ) -> None:
        self._environment: Final = environment
        self._captures: Final = captures
        self._inputs: list[tuple[GateInput, int, CapturedBatch]] = []
        # Guards the two fields below: consumers answer on their threads, the task's inputs on the task's.
        self._lock: Final = threading.Lock()
        self._waiting_count = len(captures) + waits_for_input
        self._callbacks: list[Callable[[], None]] = []
        self.is_abandoned = False
        for capture in captures:
            capture.on_done(self._one_done)

    @property
    def is_empty(self) -> bool:
        """True if, once ready, there is nothing to store."""
        if self.is_abandoned:
            return True
        return not self._inputs and not any(capture.overtaken() for capture in self._captures)

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on any thread, when the data is complete or abandoned; immediately if it is now."""
        with self._lock:
            if self._waiting_count:
                self._callbacks.append(callback)
                return
        callback()

    def input_done(self, captured: Sequence[tuple[GateInput, int, CapturedBatch]]) -> None:
        """Add the input data from before the barriers, which have all arrived."""
        self._inputs.extend(captured)
        self._one_done()

    def abandon(self) -> None:
        """Drop the data because the checkpoint failed or the task ended. Any thread."""
        with self._lock:
            if self.is_abandoned:
                return
            self.is_abandoned = True
            self._waiting_count = 0
            callbacks, self._callbacks = self._callbacks, []
        for capture in self._captures:
            capture.abandon()
        for callback in callbacks:
            callback()

    def write(self, writer: SnapshotWriter) -> dict[OperatorId, list[StateChunk]]:
        """Write the data; return its chunks by operator. Not on the task's thread.

        CheckpointStorageError if the storage fails; CorruptBatchError if a captured batch is invalid.
        """
        written: dict[OperatorId, list[StateChunk]] = {}
        head = self._environment.vertex.operators[0].operator_id
        by_channel: dict[ChannelPart, list[CapturedBatch]] = {}
        for gate_input, index, batch in self._inputs:
            by_channel.setdefault(self._input_part(gate_input, index), []).append(batch)
        for part, batches in by_channel.items():
            frames = [CapturedFrame(batch.read(), batch.markers) for batch in batches]
            written.setdefault(head, []).extend(_write(writer, part, frames))
        for output, capture in zip(self._environment.outputs, self._captures, strict=True):
            for index, batches in capture.overtaken():
                frames = [CapturedFrame(sealed.arrow, sealed.markers) for sealed in batches]
                chunks = _write(writer, self._output_part(output, index), frames)
                written.setdefault(output.edge.source_operator_id, []).extend(chunks)
        return written

    def _input_part(self, gate_input: GateInput, index: int) -> ChannelPart:
        vertex, channels = self._environment.vertex, gate_input.descriptor.channels
        return ChannelPart(
            ChannelRole.INPUT,
            gate_input.descriptor.data_set_id.hex(),
            sender=channels[index].shuffle.partition_id.partition_number,
            receiver=self._environment.attempt_id.subtask_index,
            sender_count=len(channels),
            receiver_count=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            mapping=ReceiverMapping.ROUND_ROBIN,
        )

    def _output_part(self, output: PartitionOutput, index: int) -> ChannelPart:
        return ChannelPart(
            ChannelRole.OUTPUT,
            output.edge.data_set_id.hex(),
            sender=self._environment.attempt_id.subtask_index,
            receiver=index,
            sender_count=self._environment.vertex.parallelism,
            receiver_count=output.partition.subpartition_count,
            max_parallelism=output.consumer_max_parallelism,
            mapping=ReceiverMapping.ROUND_ROBIN,
        )

    def _one_done(self) -> None:
        with self._lock:
            if self.is_abandoned:
                return
            self._waiting_count -= 1
            if self._waiting_count:
                return
            callbacks, self._callbacks = self._callbacks, []
            self.is_abandoned = not all(capture.is_complete for capture in self._captures)
        for callback in callbacks:
            callback()


class ChannelStates:
    """Captures and restores a subtask's in-flight data. Mailbox thread only."""

    def __init__(self, environment: TaskEnvironment, writers: Sequence[RecordWriter]) -> None:
        self._environment: Final = environment
        self._writers: Final = writers
        self._capture_id: int | None = None
        self._waiting: dict[int, InFlightData] = {}

    def restore(self) -> None:
        """Restore the in-flight data of a checkpoint.

        MetadataError if it does not fit the job; CheckpointStorageError if it cannot be read.
        """
        vertex, index = self._environment.vertex, self._environment.attempt_id.subtask_index
        restore = self._environment.restore
        if restore is None:
            return
        # Edges whose senders announce the end of their restored data: see the end.
        recover_together(
            [
                each.gate
                for each in self._environment.inputs
                if each.descriptor.result_type.traits.joins_regions
            ]
        )
        parts = [
            (ChannelPart.of(chunk), chunk)
            for operator in vertex.operators
            for chunk in restore.state_of(operator.operator_id).chunks
            if concerns_subtask(chunk, index, vertex.parallelism)
        ]
        parts.sort(key=lambda one: one[0].place)
        for (part, _), (following, _) in pairwise(parts):
            if part.place == following.place:
                raise MetadataError(f"the snapshot has the in-flight data of {part.place} twice")
        reader = self._environment.snapshots.reader() if parts else None
        for part, chunk in parts:
            assert reader is not None
            frames = frames_of(reader.read(chunk.file))
            if part.role is ChannelRole.INPUT:
                self._restore_input(part, frames)
            else:
                self._restore_output(part, frames)
        for output, writer in zip(self._environment.outputs, self._writers, strict=True):
            # On every such edge, even without restored rows: its gates wait for all their senders.
            if output.edge.result_type.traits.joins_regions:
                writer.finish_restore()

    def start_capture(self, checkpoint_id: int) -> None:
        """Capture the data before the barriers of this checkpoint on all channels."""
        self._capture_id = checkpoint_id
        for gate_input in self._environment.inputs:
            gate_input.gate.start_capture(checkpoint_id)

    def snapshot(self, checkpoint_id: int, captures: Sequence[InFlightOutput]) -> InFlightData:
        """Return the data that the checkpoint will store; `captures` are in the order of the task's outputs."""
        is_capturing = self._capture_id == checkpoint_id
        data = InFlightData(self._environment, captures, waits_for_input=is_capturing)
        if is_capturing:
            self._waiting[checkpoint_id] = data
        return data

    def stop_capture(self, checkpoint_id: int, *, is_complete: bool) -> None:
        """Pass the captured data to its checkpoint, or drop it."""
        captured = [
            (gate_input, index, batch)
            for gate_input in self._environment.inputs
            for index, batch in gate_input.gate.stop_capture(checkpoint_id)
        ]
        self._capture_id = None
        data = self._waiting.pop(checkpoint_id, None)
        if data is None:
            return
        if is_complete:
            data.input_done(captured)
        else:
            data.abandon()

    def _restore_input(self, part: ChannelPart, frames: Sequence[CapturedFrame]) -> None:
        vertex = self._environment.vertex
        gate_input = next(
            (
                each
                for each in self._environment.inputs
                if each.descriptor.data_set_id.hex() == part.edge
            ),
            None,
        )
        if gate_input is None:
            raise _edge_is_gone(part)
        channels = gate_input.descriptor.channels
        is_rescaled = part.receiver_count != vertex.parallelism or part.sender_count != len(
            channels
        )
        senders = [channel.shuffle.partition_id.partition_number for channel in channels]
        channel = senders.index(part.sender % len(channels))
        if not is_rescaled:
            gate_input.gate.restore(
                channel, [SealedBatch(frame.rows, frame.markers) for frame in frames]
            )
            return
        needs_filter = (
            part.mapping is ReceiverMapping.RANGE and part.receiver_count != vertex.parallelism
        )
        for frame in frames:
            rows = frame.rows
            if rows is not None and needs_filter:
                owners = _owners(rows, vertex.parallelism, vertex.max_parallelism)
                rows = rows.filter(pa.array(owners == self._environment.attempt_id.subtask_index))
            if rows is not None and rows.num_rows:
                gate_input.gate.restore(channel, [SealedBatch(rows, ())])

    def _restore_output(self, part: ChannelPart, frames: Sequence[CapturedFrame]) -> None:
        found = [
            (output, writer)
            for output, writer in zip(self._environment.outputs, self._writers, strict=True)
            if output.edge.data_set_id.hex() == part.edge
        ]
        if not found:
            raise _edge_is_gone(part)
        ((output, writer),) = found
        count = output.partition.subpartition_count
        is_rescaled = (
            part.sender_count != self._environment.vertex.parallelism
            or part.receiver_count != count
        )
        if not is_rescaled:
            sealed = [SealedBatch(frame.rows, frame.markers) for frame in frames]
            writer.restore(part.receiver, sealed)
            return
        for turn, frame in enumerate(frames):
            if frame.rows is None:
                continue
            if part.mapping is ReceiverMapping.ROUND_ROBIN:
                writer.restore((part.receiver + turn) % count, [SealedBatch(frame.rows, ())])
                continue
            owners = _owners(frame.rows, count, output.consumer_max_parallelism)
            order, counts = order_by_channel(owners, count)
            dealt, start = frame.rows.take(pa.array(order)), 0
            for channel, row_count in enumerate(counts.tolist()):
                if row_count:
                    writer.restore(channel, [SealedBatch(dealt.slice(start, row_count), ())])
                    start += row_count


def _owners(rows: pa.RecordBatch, parallelism: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the index of the subtask that owns the key group of each row, shape (num_rows,)."""
    return subtasks_of(key_hashes_of(rows), parallelism, max_parallelism)


def _mapping_of(part: ChannelPart, table: FrameTable) -> ReceiverMapping:
    """Return RANGE if every row was sent to the owner of its key; rows on other edges may have keys too."""
    if table.key_hashes is None:
        return ReceiverMapping.ROUND_ROBIN
    owners = subtasks_of(table.key_hashes, part.receiver_count, part.max_parallelism)
    is_by_key = bool((owners == part.receiver).all())
    return ReceiverMapping.RANGE if is_by_key else ReceiverMapping.ROUND_ROBIN


def _write(
    writer: SnapshotWriter, part: ChannelPart, frames: Iterable[CapturedFrame]
) -> list[StateChunk]:
    chunks: list[StateChunk] = []
    for number, table in enumerate(tables_of(frames)):
        mapping = _mapping_of(part, table)
        placed = msgspec.structs.replace(part, part=number, mapping=mapping)
        file = writer.write(f"in-flight-{part.role.value}", table.content)
        chunks.append(
            StateChunk(
                StateTable.CHANNELS,
                f"{part.role.value} {part.edge} {part.sender}-{part.receiver}",
                table.row_count,
                file,
                None,
                placed.attributes(),
            )
        )
    return chunks


def _edge_is_gone(part: ChannelPart) -> MetadataError:
    return MetadataError(
        f"the snapshot has in-flight data of edge {part.edge}, which this job does not have: it was removed, or its "
        "operators are chained now; change the graph from a savepoint, which has no in-flight data"
    )
