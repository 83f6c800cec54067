"""Operators at the end of a pipeline: the writer of a user's sink, print and collect.

Effects that a writer prepared for a checkpoint are sent with its acknowledgement, and with each later one until the
checkpoint is known to be published: if it failed, the next one covers them. The JobMaster commits them.
Source: Flink SinkWriterOperator, CommitterOperator, PrintSinkOutputWriter, CollectSinkFunction.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from headrace.checkpoint.handles import Committable, StateTable
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.operator_events import END, PIECE_SIZE_MAX, cut, mark_of
from headrace.core.process.process_log import PRINT_PREFIX
from headrace.core.record_batch import RecordBatch, stream_bytes
from headrace.core.types.java_text import text_function
from headrace.functions.sink import FINAL_CHECKPOINT, SinkWriter
from headrace.functions.specs.operator_specs import CollectSinkSpec, PrintSinkSpec, SinkSpec
from headrace.graph.pipeline_options import runs_in_batch
from headrace.metrics.names import NUM_BYTES_SEND, NUM_RECORDS_SEND, NUM_RECORDS_SEND_PER_SECOND
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import connector_error, user_error
from headrace.state.operator_state_backend import ItemState, read_items

T = TypeVar("T")


class UndecidedCommittables:
    """Prepared effects, by the checkpoint that carried them first. Pure.

    `key_prefix` is this attempt's own, so that keys are unique for ever.
    """

    def __init__(self, key_prefix: str) -> None:
        self._key_prefix = key_prefix
        self._count = 0
        self._prepared: list[tuple[int, Committable]] = []

    def prepare(self, checkpoint_id: int, contents: Sequence[bytes]) -> None:
        """Add effects that were prepared before a checkpoint's barrier, or at the end of input (FINAL_CHECKPOINT)."""
        for content in contents:
            committable = Committable(f"{self._key_prefix}-{self._count}", content)
            self._count += 1
            self._prepared.append((checkpoint_id, committable))

    def snapshot(self, checkpoint_id: int) -> list[Committable]:
        """Return the effects that a checkpoint carries; those of the end of input belong to it from now on."""
        self._prepared = [(min(key, checkpoint_id), one) for key, one in self._prepared]
        return [one for _, one in self._prepared]

    def decided(self, checkpoint_id: int) -> None:
        """Drop the effects of a published checkpoint, as the JobMaster commits them."""
        self._prepared = [each for each in self._prepared if each[0] > checkpoint_id]


class SinkWriterOperator(OneInputOperator):
    """Passes batches to the writer that the user's sink created for this subtask; flushes it at the end of input."""

    _writer: SinkWriter | None = None
    _last_byte_count: int | None = None

    def __init__(self, spec: SinkSpec) -> None:
        self._sink = spec.sink

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._sent = context.metrics.counter(NUM_RECORDS_SEND)
        context.metrics.rate(NUM_RECORDS_SEND_PER_SECOND, self._sent.get_count)
        context.metrics.gauge(NUM_BYTES_SEND, self._sent_byte_count)
        self._items = ItemState(StateTable.ITEMS, "writer-state")
        restored = context.state.register("writer-state", self._items)
        self._undecided = UndecidedCommittables(
            f"{context.attempt_id}-{context.operator_id}" if context.attempt_id else ""
        )
        self._has_committer = self._sink.committer() is not None
        try:
            writer: SinkWriter = self._sink.create_writer(context)
            self._writer = writer
            if context.state.restored_checkpoint_id is not None:
                writer.restore_state(read_items(restored, context.state.reader))
        except USER_EXCEPTIONS as error:
            raise connector_error(error, context.operator_name) from error

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._call(lambda writer: writer.write_batch(batch))
        self._sent.inc(batch.num_rows)

    def handle_event(self, payload: bytes) -> None:
        self._call(lambda writer: writer.handle_event(payload))

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self._call(lambda writer: writer.flush(end_of_input=False))
        self._prepare(checkpoint_id)

    def snapshot_state(self, checkpoint_id: int) -> Sequence[Committable]:
        if self._writer is not None:
            self._items.items = self._call(lambda writer: writer.snapshot_state(checkpoint_id))
        return self._undecided.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._undecided.decided(checkpoint_id)

    def finish(self, output: Output) -> None:
        self._call(lambda writer: writer.flush(end_of_input=True))
        self._prepare(FINAL_CHECKPOINT)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._last_byte_count = writer.sent_byte_count()
            try:
                writer.close()
            except USER_EXCEPTIONS as error:
                raise connector_error(error, self.context.operator_name) from error

    def _sent_byte_count(self) -> int:
        writer = self._writer
        if writer is not None:
            self._last_byte_count = writer.sent_byte_count()
        if self._last_byte_count is None:
            raise LookupError("the connector does not report this")
        return self._last_byte_count

    def _prepare(self, checkpoint_id: int) -> None:
        if self._has_committer:
            prepared = self._call(lambda writer: writer.prepare_commit(checkpoint_id))
            self._undecided.prepare(checkpoint_id, prepared)

    def _call(self, call: Callable[[SinkWriter], T]) -> T:
        assert self._writer is not None
        try:
            return call(self._writer)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error


class PrintOperator(OneInputOperator):
    """Writes one line per row to standard output, all lines of a batch at once.

    Prefix: nothing, `id> `, `2> ` or `id:2> `, where 2 is the subtask's index plus one, which is left out at
    parallelism 1.
    """

    def __init__(self, spec: PrintSinkSpec) -> None:
        self._identifier = spec.identifier

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._text_of = text_function(context.types.inputs[0].value_type)
        parts = [self._identifier] if self._identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask_index + 1))
        self._prefix = f"{':'.join(parts)}> " if parts else ""

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        prefix, text_of = self._prefix, self._text_of
        try:
            lines = [f"{prefix}{text_of(row)}\n" for row in batch.rows()]
        except USER_EXCEPTIONS as error:  # the user's own __str__
            raise user_error(error, self.context.operator_name) from error
        # These lines name their subtask themselves, on every standard output.
        token = PRINT_PREFIX.set("")
        try:
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
        finally:
            PRINT_PREFIX.reset(token)


class CollectOperator(OneInputOperator):
    """Sends its rows to the coordinator `collect`, in order, as Arrow IPC streams of the data columns.

    Batches are split until a stream is about one piece; a larger single row is sent in several pieces
    (`headrace.core.operator_events`). No rows are kept here.

    In BATCH mode, in which the client cannot end the job after its `limit` of rows, only that many are sent, as the
    driver receives all of them. In STREAMING mode a restart may send rows again, so they are not counted here.
    """

    def __init__(self, spec: CollectSinkSpec) -> None:
        self._limit: Final = spec.limit
        self._rows_left: int | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if runs_in_batch(context.settings):
            self._rows_left = self._limit

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        if self._rows_left is not None:
            batch = batch.slice(0, min(self._rows_left, batch.num_rows))
            self._rows_left -= batch.num_rows
        if batch.num_rows:
            self._send(batch.columns())

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int, output: Output) -> None:
        self.context.send_event(mark_of(checkpoint_id))

    def finish(self, output: Output) -> None:
        self.context.send_event(END)

    def _send(self, columns: pa.RecordBatch) -> None:
        row_count = columns.num_rows
        if row_count > 1 and columns.nbytes > PIECE_SIZE_MAX:
            half = row_count // 2
            self._send(columns.slice(0, half))
            self._send(columns.slice(half))
        else:
            for event in cut(stream_bytes(columns.schema, [columns])):
                self.context.send_event(event)
