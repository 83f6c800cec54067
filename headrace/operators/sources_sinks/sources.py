"""Operators that assign event time: source readers, and timestamps and watermarks in the middle of a stream.

Source: Flink SourceOperator, TimestampsAndWatermarksOperator.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headrace.checkpoint.handles import Committable, StateTable
from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS, ProgramError
from headrace.core.record_batch import RecordBatch
from headrace.functions.source import Boundedness, InputStatus, SourceReader
from headrace.functions.specs.operator_specs import SourceSpec, TimestampsAndWatermarksSpec
from headrace.metrics.names import (
    CURRENT_EMIT_EVENT_TIME_LAG,
    NUM_RECORDS_IN_ERRORS,
    PENDING_BYTES,
    PENDING_RECORDS,
    SOURCE_IDLE_TIME,
    WATERMARK_ALIGNMENT_DRIFT,
    WATERMARK_LAG,
)
from headrace.operators.runtime.operator import (
    OneInputOperator,
    OperatorContext,
    Output,
    SourceOperator,
)
from headrace.operators.runtime.user_code import connector_error
from headrace.operators.sources_sinks.event_time_output import WHOLE_SOURCE, EventTimeOutput
from headrace.operators.sources_sinks.source_alignment import SourceAlignment
from headrace.state.operator_state_backend import ItemState, read_items


class SourceReaderOperator(SourceOperator):
    """Polls the reader that the source created for this subtask."""

    _reader: SourceReader | None = None
    _alignment: SourceAlignment | None = None

    def __init__(self, spec: SourceSpec) -> None:
        self._source: Any = spec.source
        self._strategy = spec.strategy

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time = EventTimeOutput(
            self._strategy,
            context,
            context.output,
            is_bounded=self._source.boundedness is Boundedness.BOUNDED,
        )
        register_source_metrics(context, self._event_time, lambda: self._reader)
        self._splits = ItemState(StateTable.SPLITS, "splits")
        restored = context.state.register("splits", self._splits)
        try:
            reader: SourceReader = self._source.create_reader(self._aligned(context))
            self._reader = reader
            refuse_unrepeatable(reader, context)
            if context.state.restored_checkpoint_id is not None:
                reader.restore_splits(read_items(restored, context.state.reader))
            reader.start()
        except USER_EXCEPTIONS as error:
            raise connector_error(error, context.operator_name) from error
        self._event_time.start(WHOLE_SOURCE)
        if self._alignment is not None:
            self._alignment.start(reader)

    def poll(self, output: Output) -> InputStatus:
        assert self._reader is not None
        if self._must_wait():
            return InputStatus.NOTHING_AVAILABLE
        try:
            status = self._reader.poll_next(self._event_time)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error
        self._event_time.has_polled = True
        self._event_time.is_waiting = status is InputStatus.NOTHING_AVAILABLE
        if status is InputStatus.END_OF_INPUT:
            self._event_time.emit_watermark()
            if self._alignment is not None:
                self._alignment.finished()
        return status

    def snapshot_state(self, checkpoint_id: int) -> Sequence[Committable]:
        assert self._reader is not None
        try:
            self._splits.items = self._reader.snapshot_state(checkpoint_id)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._reader is not None
        try:
            self._reader.notify_checkpoint_complete(checkpoint_id)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error

    def handle_event(self, payload: bytes) -> None:
        assert self._reader is not None
        try:
            own = payload if self._alignment is None else self._alignment.take_event(payload)
            if own is not None:
                self._reader.handle_event(own)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                reader.close()
            except USER_EXCEPTIONS as error:
                raise connector_error(error, self.context.operator_name) from error

    def _aligned(self, context: OperatorContext) -> OperatorContext:
        """Return the reader's context.

        An aligned source's events are marked, to distinguish them from those of alignment.
        """
        params = None if self._strategy is None else self._strategy.alignment
        if params is None:
            return context
        assert self._event_time.watermarks is not None
        self._alignment = SourceAlignment(params, context, self._event_time.watermarks)
        context.metrics.gauge(WATERMARK_ALIGNMENT_DRIFT, self._alignment.drift_ms)
        return replace(context, send_event=self._alignment.send_own_event)

    def _must_wait(self) -> bool:
        """Return whether the reader is too far ahead of others: then it is not polled, and its silence is ignored."""
        if self._alignment is None:
            return False
        try:
            self._alignment.check()
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error
        if self._alignment.is_waiting:
            self._event_time.has_polled = self._event_time.is_waiting = False
        return self._alignment.is_waiting


def register_source_metrics(
    context: OperatorContext, event_time: EventTimeOutput, reader: Callable[[], SourceReader | None]
) -> None:
    """Register metrics of a source; other threads read them, and unknown values are left out."""
    group = context.metrics

    def lag_ms() -> int:
        if event_time.event_time_ms == MIN_TIMESTAMP:
            raise LookupError("the event time is unknown")
        return event_time.emitted_ms - event_time.event_time_ms

    def watermark_lag_ms() -> int:
        watermarks = event_time.watermarks
        reached_ms = MIN_TIMESTAMP if watermarks is None else watermarks.watermark_ms
        if reached_ms in (MIN_TIMESTAMP, MAX_WATERMARK):
            raise LookupError("there is no watermark")
        return context.clock.now_ms() - reached_ms

    def pending_count() -> int:
        opened = reader()
        count = None if opened is None else opened.pending_record_count()
        if count is None:
            raise LookupError("the connector does not report this")
        return count

    def pending_byte_count() -> int:
        opened = reader()
        count = None if opened is None else opened.pending_byte_count()
        if count is None:
            raise LookupError("the connector does not report this")
        return count

    unreadable = 0

    def unreadable_count() -> int:
        nonlocal unreadable
        opened = reader()
        if opened is not None:
            unreadable = opened.unreadable_record_count()
        return unreadable

    group.gauge(CURRENT_EMIT_EVENT_TIME_LAG, lag_ms)
    group.gauge(WATERMARK_LAG, watermark_lag_ms)
    group.gauge(SOURCE_IDLE_TIME, lambda: max(0, context.clock.now_ms() - event_time.emitted_ms))
    group.gauge(PENDING_RECORDS, pending_count)
    group.gauge(PENDING_BYTES, pending_byte_count)
    group.gauge(NUM_RECORDS_IN_ERRORS, unreadable_count)


def refuse_unrepeatable(reader: SourceReader, context: OperatorContext) -> None:
    """Raise ProgramError if a job takes checkpoints and its source cannot be restored from one."""
    takes_checkpoints = context.settings.duration_ms(CHECKPOINTING_INTERVAL) > 0
    if takes_checkpoints and type(reader).snapshot_state is SourceReader.snapshot_state:
        raise ProgramError(
            f"{type(reader).__name__} cannot be read again from a position, which checkpoints need: "
            f"implement snapshot_state and restore_splits, or unset {CHECKPOINTING_INTERVAL.key}"
        )


class TimestampsAndWatermarksOperator(OneInputOperator):
    """Assigns new timestamps and makes its own watermarks; of upstream watermarks only the last one passes."""

    def __init__(self, spec: TimestampsAndWatermarksSpec) -> None:
        self._strategy = spec.strategy
        self._is_bounded = spec.is_bounded

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time = EventTimeOutput(
            self._strategy, context, context.output, is_bounded=self._is_bounded
        )
        self._event_time.start(WHOLE_SOURCE)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._event_time.emit(batch.without_keys() if batch.is_keyed else batch)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        if timestamp_ms == MAX_WATERMARK:
            self.current_watermark = timestamp_ms
            output.emit_watermark(timestamp_ms)

    def process_status(self, is_idle: bool, output: Output) -> None:
        pass
