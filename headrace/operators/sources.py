"""Event time enters here: the operator around a source's reader, and timestamps and watermarks in mid-stream.

Source: Flink SourceOperator, ProgressiveTimestampsAndWatermarks, TimestampsAndWatermarksOperator.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from headrace.checkpoint.handles import Committable, StateTable
from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.core.elements import MAX_WATERMARK
from headrace.core.errors import USER_EXCEPTIONS, ProgramError, short_repr
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.functions.source import InputStatus, SourceReader
from headrace.functions.specs import SourceSpec, TimestampsAndWatermarksSpec
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.graph.pipeline_options import AUTO_WATERMARK_INTERVAL
from headrace.operators.emission import timestamps_of
from headrace.operators.operator import (
    OneInputOperator,
    OperatorContext,
    Output,
    SourceOperator,
)
from headrace.operators.user_code import connector_error, user_error
from headrace.operators.watermarks import SplitWatermarks
from headrace.state.item_state import ItemState, read_items

WHOLE_SOURCE: Final = ""
"""The split of readers that tell no splits apart."""

_NS_PER_MS: Final = 1_000_000


class EventTimeOutput:
    """Gives rows their timestamps on the way out, and sends watermarks behind them every interval.

    Idleness is measured on a clock that stands still while the source could not speak: `has_polled` tells whether it
    was asked since the last interval, `is_waiting` that it was, and had nothing.
    """

    def __init__(
        self, strategy: WatermarkStrategy | None, context: OperatorContext, output: Output
    ) -> None:
        self._assigner = None if strategy is None else strategy.timestamp_assigner
        self._watermarks = None if strategy is None else SplitWatermarks(strategy)
        self._context = context
        self._output = output
        self._silence_clock_ms = 0
        self._last_reading_ns = context.clock.monotonic_ns()
        self._interval_ms = int(context.settings.duration_ms(AUTO_WATERMARK_INTERVAL))
        self.has_polled = True
        self.is_waiting = True

    def start(self, split_id: str | None) -> None:
        """Begin with one split, or with none, and arm the interval."""
        if self._watermarks is None:
            return
        if split_id is not None:
            self._watermarks.add_split(split_id)
        if self._interval_ms > 0:
            self._schedule()

    def emit(self, batch: RecordBatch, split_id: str = WHOLE_SOURCE, /) -> None:
        """Emit rows of one split."""
        if batch.num_rows == 0:
            return
        if self._assigner is not None:
            batch = batch.with_timestamps(self._assign(batch, self._assigner))
        watermarks = self._watermarks
        if watermarks is None:
            self._output.emit(batch)
            return
        watermarks.activate(split_id)
        self._output.emit_status(False)
        self._output.emit(batch)
        if batch.timestamps is not None:
            watermarks.on_batch(split_id, int(batch.timestamps.max()))

    def add_split(self, split_id: str, /) -> None:
        """Let a split hold the watermark back from now on; the unnamed one is then gone."""
        if self._watermarks is not None:
            self._watermarks.add_split(split_id)
            self._watermarks.release_split(WHOLE_SOURCE)

    def release_split(self, split_id: str, /) -> None:
        """Let a finished split no longer hold the watermark back."""
        if self._watermarks is not None:
            self._watermarks.release_split(split_id)

    def emit_watermark(self) -> None:
        """Send what is due now: a watermark that has grown, or a change of idleness."""
        watermarks = self._watermarks
        if watermarks is None:
            return
        now_ns = self._context.clock.monotonic_ns()
        if self.has_polled or self.is_waiting:
            self._silence_clock_ms += (now_ns - self._last_reading_ns) // _NS_PER_MS
        self._last_reading_ns = now_ns
        watermarks.on_periodic_emit(self._silence_clock_ms)
        if not watermarks.is_idle:
            self._output.emit_status(False)
        self._output.emit_watermark(watermarks.watermark_ms)
        if watermarks.is_idle:
            self._output.emit_status(True)

    def _schedule(self) -> None:
        timers = self._context.timers
        timers.schedule(timers.now_ms() + self._interval_ms, self._on_interval)

    def _on_interval(self, _time_ms: int) -> None:
        self.emit_watermark()
        self.has_polled = False
        self._schedule()

    def _assign(self, batch: RecordBatch, assigner: TimestampAssigner) -> Timestamps:
        try:
            vectorised = getattr(assigner, "extract_timestamps", None)
            if vectorised is not None:
                return np.asarray(vectorised(batch.columns()), dtype=np.int64)
            extract = assigner.extract_timestamp
            rows_with_times = zip(batch.rows(), timestamps_of(batch), strict=True)
            return _as_timestamps([extract(row, time) for row, time in rows_with_times])
        except USER_EXCEPTIONS as error:
            raise user_error(error, self._context.operator_name) from error


def _as_timestamps(assigned: list[Any]) -> Timestamps:
    """Return what an assigner gave as numbers; TypeError unless all are integers, which numpy would not insist on."""
    if not set(map(type, assigned)) <= {int}:
        for value in assigned:
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise TypeError(
                    "extract_timestamp must return epoch milliseconds as an int, "
                    f"but it returned {type(value).__name__} {short_repr(value)}"
                )
    return np.array(assigned, dtype=np.int64)


class SourceReaderOperator(SourceOperator):
    """Polls the reader that the source made for this subtask."""

    _reader: SourceReader | None = None

    def __init__(self, spec: SourceSpec) -> None:
        self._source: Any = spec.source
        self._strategy = spec.strategy

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time = EventTimeOutput(self._strategy, context, context.output)
        self._splits = ItemState(StateTable.SPLITS, "splits")
        restored = context.state.register("splits", self._splits)
        try:
            reader: SourceReader = self._source.create_reader(context)
            self._reader = reader
            refuse_unrepeatable(reader, context)
            if context.state.restored_checkpoint_id is not None:
                reader.restore_splits(read_items(restored, context.state.reader))
            reader.start()
        except USER_EXCEPTIONS as error:
            raise connector_error(error, context.operator_name) from error
        self._event_time.start(WHOLE_SOURCE)

    def poll(self, output: Output) -> InputStatus:
        assert self._reader is not None
        try:
            status = self._reader.poll_next(self._event_time)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error
        self._event_time.has_polled = True
        self._event_time.is_waiting = status is InputStatus.NOTHING_AVAILABLE
        if status is InputStatus.END_OF_INPUT:
            self._event_time.emit_watermark()
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
            self._reader.handle_event(payload)
        except USER_EXCEPTIONS as error:
            raise connector_error(error, self.context.operator_name) from error

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            try:
                reader.close()
            except USER_EXCEPTIONS as error:
                raise connector_error(error, self.context.operator_name) from error


def refuse_unrepeatable(reader: SourceReader, context: OperatorContext) -> None:
    """ProgramError where a job takes checkpoints and its source could not go on from one."""
    takes_checkpoints = context.settings.duration_ms(CHECKPOINTING_INTERVAL) > 0
    if takes_checkpoints and type(reader).snapshot_state is SourceReader.snapshot_state:
        raise ProgramError(
            f"{type(reader).__name__} cannot be read again from a position, which checkpoints need: "
            f"implement snapshot_state and restore_splits, or unset {CHECKPOINTING_INTERVAL.key}"
        )


class TimestampsAndWatermarksOperator(OneInputOperator):
    """Gives rows new timestamps and makes watermarks of its own; those from upstream end here, but for the last."""

    def __init__(self, spec: TimestampsAndWatermarksSpec) -> None:
        self._strategy = spec.strategy

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._event_time = EventTimeOutput(self._strategy, context, context.output)
        self._event_time.start(WHOLE_SOURCE)

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._event_time.emit(batch.without_keys() if batch.is_keyed else batch)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        if timestamp_ms == MAX_WATERMARK:
            self.current_watermark = timestamp_ms
            output.emit_watermark(timestamp_ms)

    def process_status(self, is_idle: bool, output: Output) -> None:
        pass
