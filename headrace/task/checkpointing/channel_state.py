"""ChannelStates: one subtask's data in flight, what its checkpoints store of it and what it begins with.

For the task, all on its mailbox thread, in this order:

    restore()               before the operators are opened and before partitions are requested: what was overtaken goes
                            out first, before the watermarks that operators had sent, and is closed by
                            EndOfOutputChannelState; what was queued is read first
    start_capture(n)        for StartChannelCapture, right before the checkpoint is taken
    snapshot(n, captures)   when the barrier was emitted: `captures` are what `RecordWriter.emit_barrier` returned. The
                            asynchronous part begins when `InFlightData.on_ready` says so
    stop_capture(n, …)      for StopChannelCapture: every barrier is here, or the checkpoint came to nothing

Where senders and receivers are as many as they were, each batch stands where it stood, markers included. Otherwise each
sender sends what it takes over of old ones by today's partitioning, each receiver keeps the rows that are its own, and
markers are left out: operators and outputs go on from the watermarks that the checkpoint has of them.
Source: Flink ChannelStateWriterImpl, SequentialChannelStateReaderImpl, RescalingStreamTaskNetworkInput.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

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
from headrace.core.ids import OperatorId
from headrace.core.key_groups import subtasks_of
from headrace.network.batches.channel_selectors import order_by_channel
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.single_input_gate import recover_together
from headrace.network.partitions.in_flight_output import InFlightOutput
from headrace.network.writers.record_writer import RecordWriter
from headrace.task.checkpointing.channel_frames import (
    CapturedFrame,
    FrameTable,
    frames_of,
    key_hashes_of,
    tables_of,
)
from headrace.task.environment import GateInput, PartitionOutput, TaskEnvironment


class InFlightData:
    """In-flight data that one checkpoint stores; complete once `on_ready` calls."""

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
        # Guards the two fields below: consumers answer on their threads, the task's inputs on its own.
        self._lock: Final = threading.Lock()
        self._waiting_count = len(captures) + waits_for_input
        self._callbacks: list[Callable[[], None]] = []
        self.is_abandoned = False
        for capture in captures:
            capture.on_done(self._one_done)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store, once ready."""
        if self.is_abandoned:
            return True
        return not self._inputs and not any(capture.overtaken() for capture in self._captures)

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, when everything is known, or it will never be; now if so."""
        with self._lock:
            if self._waiting_count:
                self._callbacks.append(callback)
                return
        callback()

    def input_done(self, captured: Sequence[tuple[GateInput, int, CapturedBatch]]) -> None:
        """Every barrier is here; this stood before them."""
        self._inputs.extend(captured)
        self._one_done()

    def abandon(self) -> None:
        """Nobody wants it any more, or will say what belongs to it. Any thread."""
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
        """Store it; by operator. On a thread other than the task's. CheckpointStorageError, CorruptBatchError."""
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
        """Begin with what a checkpoint caught on its way. MetadataError, CheckpointStorageError."""
        vertex, index = self._environment.vertex, self._environment.attempt_id.subtask_index
        restore = self._environment.restore
        if restore is None:
            return
        # Those whose senders say when they have sent all again: see the end.
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
                raise MetadataError(f"the snapshot has data in flight of {part.place} twice")
        reader = self._environment.snapshots.reader() if parts else None
        for part, chunk in parts:
            assert reader is not None
            frames = frames_of(reader.read(chunk.file))
            if part.role is ChannelRole.INPUT:
                self._restore_input(part, frames)
            else:
                self._restore_output(part, frames)
        for output, writer in zip(self._environment.outputs, self._writers, strict=True):
            # On every such edge, also without rows of one's own: its gates wait for all their senders.
            if output.edge.result_type.traits.joins_regions:
                writer.finish_restore()

    def start_capture(self, checkpoint_id: int) -> None:
        """Keep what stands before the barriers of this checkpoint on any channel."""
        self._capture_id = checkpoint_id
        for gate_input in self._environment.inputs:
            gate_input.gate.start_capture(checkpoint_id)

    def snapshot(self, checkpoint_id: int, captures: Sequence[InFlightOutput]) -> InFlightData:
        """Return what the checkpoint is going to store; `captures` in the order of the task's outputs."""
        is_capturing = self._capture_id == checkpoint_id
        data = InFlightData(self._environment, captures, waits_for_input=is_capturing)
        if is_capturing:
            self._waiting[checkpoint_id] = data
        return data

    def stop_capture(self, checkpoint_id: int, *, is_complete: bool) -> None:
        """Hand what was kept to its checkpoint, or drop both."""
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
    """By key group where every row was sent to the owner of its key: keys travel on other edges too."""
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
        f"the snapshot has data in flight on edge {part.edge}, which this job does not have (any more, or because its "
        "operators are chained now): change the graph from a savepoint, which has none"
    )
