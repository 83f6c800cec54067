"""TimedOperator: base of operators with keyed state and timers, whose results are collected and emitted in batches.

With `execution.checkpointing.unaligned.interruptible-timers.enabled` the timers of one watermark fire in slices;
between two slices unaligned barriers and mail are handled. Timers that have not fired are still in the timers' state,
so that a snapshot in between is right. Until all have fired, the operator takes no input, its watermark stays before
the next of them, and neither idleness nor the end of its input passes. `LateRecords` counts late records and sends them
to a side output if one is configured. Source: Flink MailboxWatermarkProcessor.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from headrace.checkpoint.options import INTERRUPTIBLE_TIMERS
from headrace.core.errors import USER_EXCEPTIONS
from headrace.graph.pipeline_options import runs_in_batch
from headrace.metrics.names import NUM_LATE_RECORDS_DIVERTED, NUM_LATE_RECORDS_DROPPED
from headrace.operators.runtime.emission import ResultCollector
from headrace.operators.runtime.internal_timer_service import InternalTimerService
from headrace.operators.runtime.operator import TURN_MS, Operator, OperatorContext, Output
from headrace.operators.runtime.user_code import user_error
from headrace.state.backend import IsEnough

TIMERS: Final = "timers"
"""Name of the operator's timers in snapshots."""
_SLICE_TIMERS: Final = 1_000
"""Limit of timers that fire in one slice; TURN_MS is the limit of its time."""


class TimedOperator(Operator):
    """Base with a state backend, a collector, and timers that call `_on_event_time` and `_on_processing_time`."""

    # The watermark whose timers are firing in slices, and the idleness after it. On the class, since an operator
    # that had finished before its checkpoint is queried too, and never opened.
    _open_watermark_ms: int | None = None
    _status_behind: bool | None = None
    _opened_timers: InternalTimerService | None = None
    _is_batch = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = context.state.create_keyed_backend()
        self._scope = self._backend.key_scope
        self._collector = ResultCollector(context)
        self._timers = InternalTimerService(
            self._backend,
            context.timers,
            self._on_event_time,
            self._on_processing_time,
            self._on_wake_up,
        )
        self._is_batch = self._timers.waits_for_end_of_keys = runs_in_batch(context.settings)
        self._timers.keep_in(context.state, TIMERS)
        self._opened_timers = self._timers
        self._is_interruptible = context.settings.get_option(INTERRUPTIBLE_TIMERS)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        if self._is_batch:
            self.end_keys(output)
        if self._open_watermark_ms is not None:
            # It applies to records at once, and its timers fire after those that are due already.
            self._open_watermark_ms = self._timers.current_watermark_ms = timestamp_ms
            self._status_behind = None if self._status_behind is False else self._status_behind
            return
        if self._fire_due(timestamp_ms, output):
            super().process_watermark(timestamp_ms, output)

    def process_status(self, is_idle: bool, output: Output) -> None:
        if self._open_watermark_ms is None:
            super().process_status(is_idle, output)
        else:
            self._status_behind = is_idle

    @property
    def can_take_input(self) -> bool:
        return self._open_watermark_ms is None

    @property
    def fired_timer_count(self) -> int:
        """Return how many timers have fired, none before `open`. Any thread."""
        timers = self._opened_timers
        return 0 if timers is None else timers.fired_count

    @property
    def is_drained(self) -> bool:
        return self._open_watermark_ms is None

    def end_keys(self, output: Output) -> None:
        """Fire all timers, those of event time first, and forget the keys' state."""
        self._backend.begin_batch(0)
        try:
            self._timers.end_keys()
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._backend.forget_keys()
        self._collector.flush(output)

    def _fire_due(self, timestamp_ms: int, output: Output) -> bool:
        """Fire the timers of a watermark, or a slice of them; return whether all have fired."""
        is_enough = self._slice() if self._is_interruptible else None
        self._backend.begin_batch(0)
        try:
            is_done = self._timers.advance_watermark(timestamp_ms, is_enough)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(output)
        if is_done:
            self._open_watermark_ms = None
            return True
        self._open_watermark_ms = timestamp_ms
        next_ms = self._timers.next_event_time_ms()
        assert next_ms is not None
        if next_ms - 1 > self.current_watermark:
            super().process_watermark(next_ms - 1, output)
        self.context.mail(self._go_on)
        return False

    def _go_on(self) -> None:
        timestamp_ms, output = self._open_watermark_ms, self.context.output
        assert timestamp_ms is not None
        if not self._fire_due(timestamp_ms, output):
            return
        super().process_watermark(timestamp_ms, output)
        status, self._status_behind = self._status_behind, None
        if status is not None:
            super().process_status(status, output)
        self.context.wake()

    def _slice(self) -> IsEnough:
        timers = self.context.timers
        until_ms = timers.now_ms() + TURN_MS
        left = _SLICE_TIMERS

        def is_enough() -> bool:
            nonlocal left
            left -= 1
            return left <= 0 or timers.now_ms() >= until_ms

        return is_enough

    @abstractmethod
    def _on_event_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Handle an event-time timer of `key`, which is current, and `namespace`."""

    @abstractmethod
    def _on_processing_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        """Handle a processing-time timer of `key`, which is current, and `namespace`."""

    def _on_wake_up(self, run: Callable[[], None]) -> None:
        self._backend.begin_batch(0)
        try:
            run()
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(self.context.output)


class LateRecords:
    """Counts the late records of one input, and sends them to a side output; `tag_id` None drops them."""

    def __init__(
        self, context: OperatorContext, collector: ResultCollector, tag_id: str | None
    ) -> None:
        self._collector = collector
        self._tag_id = tag_id
        self._count = context.metrics.counter(
            NUM_LATE_RECORDS_DROPPED if tag_id is None else NUM_LATE_RECORDS_DIVERTED
        )

    def take(self, value: Any, timestamp: int) -> None:
        """Take one record with its timestamp."""
        self._count.inc()
        if self._tag_id is not None:
            self._collector.add_side(self._tag_id, value, timestamp)
