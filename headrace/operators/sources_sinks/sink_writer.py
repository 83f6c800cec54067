"""SinkWriterOperator: a user's sink at the end of a pipeline, and its prepared output until that is decided.

What is prepared for a checkpoint goes with its acknowledgement, and with each later one until the checkpoint is known
to be published: one that came to nothing is covered by the next. Committing is the JobMaster's.
Source: Flink SinkWriterOperator, CommitterOperator.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.checkpoint.handles import Committable, StateTable
from headrace.core.errors import USER_EXCEPTIONS
from headrace.core.record_batch import RecordBatch
from headrace.functions.sink import FINAL_CHECKPOINT, SinkWriter
from headrace.functions.specs.operator_specs import SinkSpec
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import connector_error
from headrace.state.operator_state_chunks import ItemState, read_items

T = TypeVar("T")


class UndecidedCommittables:
    """Prepared effects by the checkpoint with which they went out first. Pure.

    `key_prefix` is this attempt's own, so that keys are unique for ever.
    """

    def __init__(self, key_prefix: str) -> None:
        self._key_prefix = key_prefix
        self._count = 0
        self._prepared: list[tuple[int, Committable]] = []

    def prepare(self, checkpoint_id: int, contents: Sequence[bytes]) -> None:
        """Take what was prepared before the barrier of a checkpoint, or at the end of input (FINAL_CHECKPOINT)."""
        for content in contents:
            committable = Committable(f"{self._key_prefix}-{self._count}", content)
            self._count += 1
            self._prepared.append((checkpoint_id, committable))

    def snapshot(self, checkpoint_id: int) -> list[Committable]:
        """All that a checkpoint has to carry; what was prepared at the end of input is its own from now on."""
        self._prepared = [(min(key, checkpoint_id), one) for key, one in self._prepared]
        return [one for _, one in self._prepared]

    def decided(self, checkpoint_id: int) -> None:
        """A checkpoint is published: the JobMaster commits what it carried."""
        self._prepared = [each for each in self._prepared if each[0] > checkpoint_id]


class SinkWriterOperator(OneInputOperator):
    """Hands batches to the writer that the user's sink made for this subtask; flushes it at the end of input."""

    _writer: SinkWriter | None = None

    def __init__(self, spec: SinkSpec) -> None:
        self._sink = spec.sink

    def open(self, context: OperatorContext) -> None:
        super().open(context)
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
            try:
                writer.close()
            except USER_EXCEPTIONS as error:
                raise connector_error(error, self.context.operator_name) from error

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
