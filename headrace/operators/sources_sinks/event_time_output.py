"""EventTimeOutput: assigns timestamps to emitted rows, sends watermarks after them, and keeps metrics of each split.

Source: Flink ProgressiveTimestampsAndWatermarks, SourceOutputWithWatermarks, InternalSourceSplitMetricGroup.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.errors import USER_EXCEPTIONS, short_repr
from headrace.core.record_batch import RecordBatch, Timestamps
from headrace.functions.runtime_context import ScheduledTimer
from headrace.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headrace.graph.pipeline_options import (
    AUTO_WATERMARK_INTERVAL,
    WATERMARK_IDLE_TIMEOUT,
    WATERMARK_MAX_AHEAD,
)
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.metrics.names import NUM_RECORDS_AHEAD_OF_TIME
from headrace.operators.runtime.emission import timestamps_of
from headrace.operators.runtime.operator import OperatorContext, Output
from headrace.operators.runtime.user_code import user_error
from headrace.operators.sources_sinks.split_watermarks import SplitActivity, SplitWatermarks

SPLITS_MAX: Final = 100
"""Maximum number of splits of a subtask with metrics: each has seven, and a reader may have thousands of splits."""
_GROUP: Final = "split"
_NAMES: Final = {
    SplitActivity.ACTIVE: (names.SPLIT_ACTIVE_TIME, names.SPLIT_ACCUMULATED_ACTIVE_TIME),
    SplitActivity.IDLE: (names.IDLE_TIME, names.SPLIT_ACCUMULATED_IDLE_TIME),
    SplitActivity.PAUSED: (names.SPLIT_PAUSED_TIME, names.SPLIT_ACCUMULATED_PAUSED_TIME),
}
WHOLE_SOURCE: Final = ""
"""Split id of readers that have only one split."""
_REST_MAX_MS: Final = 1_000
_RESTS_IN_TIMEOUT: Final = 10
_LOG: Final = logging.getLogger(__name__)
_NS_PER_MS: Final = 1_000_000


class _Split:
    """Figures of one split; written by the mailbox thread, read by any."""

    def __init__(self, group: MetricGroup) -> None:
        self.watermark_ms = MIN_TIMESTAMP
        self._times_ms: Final = dict.fromkeys(SplitActivity, 0)
        group.gauge(names.SPLIT_CURRENT_WATERMARK, self._known_watermark)
        for activity, (rate, total) in _NAMES.items():
            read = self._reading(activity)
            group.rate(rate, read)
            group.gauge(total, read)

    def spent(self, activity: SplitActivity, duration_ms: int) -> None:
        """Add to the time spent in an activity."""
        self._times_ms[activity] += duration_ms

    def _known_watermark(self) -> int:
        if self.watermark_ms == MIN_TIMESTAMP:
            raise LookupError("the split has no watermark yet")
        return self.watermark_ms

    def _reading(self, activity: SplitActivity) -> Callable[[], int]:
        return lambda: self._times_ms[activity]


class SplitMetrics:
    """Keeps metrics of the splits that a reader has named, below `split.<id>.watermark`, until they are released.

    The time between two updates counts for the split's activity at the second one. Mailbox thread only.
    """

    def __init__(self, metrics: MetricGroup, clock: Clock) -> None:
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._splits: Final[dict[str, _Split]] = {}
        self._updated_ms = clock.monotonic_ms()

    def update(self, watermarks: SplitWatermarks) -> None:
        """Apply the present watermarks and activities."""
        now_ms = self._clock.monotonic_ms()
        duration_ms, self._updated_ms = round(now_ms - self._updated_ms), now_ms
        activities = watermarks.split_activities
        for split_id in [one for one in self._splits if one not in activities]:
            del self._splits[split_id]
            self._metrics.add_group(_GROUP).remove_group(split_id)
        for split_id, activity in activities.items():
            split = self._splits.get(split_id)
            if split is not None:
                split.spent(activity, duration_ms)
            elif split_id and len(self._splits) < SPLITS_MAX:
                group = self._metrics.add_group(_GROUP, split_id).add_group("watermark")
                split = self._splits[split_id] = _Split(group)
            if split is not None:
                split.watermark_ms = watermarks.split_watermarks[split_id]


class TrustedTimes:
    """Selects the timestamps that may advance event time: those not too far ahead of the clock, if there is a bound.

    The others are counted, and the first of them is logged: one wrong timestamp would make all other records late.
    """

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._max_ahead_ms = int(context.settings.duration_ms(WATERMARK_MAX_AHEAD))
        self._is_logged = False

    def are_trusted(self, times: Timestamps) -> npt.NDArray[np.bool_] | None:
        """Return whether each timestamp may advance event time, shape (num_rows,); None if all may."""
        if not self._max_ahead_ms:
            return None
        limit_ms = self._context.timers.now_ms() + self._max_ahead_ms
        latest_ms = int(times.max())
        if latest_ms <= limit_ms:
            return None
        are_trusted: npt.NDArray[np.bool_] = times <= limit_ms
        count = len(times) - int(np.count_nonzero(are_trusted))
        self._context.metrics.counter(NUM_RECORDS_AHEAD_OF_TIME).inc(count)
        if not self._is_logged:
            self._is_logged = True
            _LOG.warning(
                "operator '%s': a record of %d (epoch ms) is more than %d ms ahead of the clock and does not "
                "advance event time (%s); further ones are only counted, in %s",
                self._context.operator_name,
                latest_ms,
                self._max_ahead_ms,
                WATERMARK_MAX_AHEAD.key,
                NUM_RECORDS_AHEAD_OF_TIME.name,
            )
        return are_trusted


class EventTimeOutput:
    """Assigns timestamps to emitted rows, and sends watermarks after them: per interval, or after a row.

    Idleness is measured on a clock that stands still while the input could not emit: while the task was back-pressured,
    and for a source also while it was not polled. `has_polled`: the source was polled since the last interval;
    `is_waiting`: it was polled and had nothing. `is_bounded`: rows will come, however long that takes, so that only a
    strategy with an idle timeout makes the input idle.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy | None,
        context: OperatorContext,
        output: Output,
        *,
        is_bounded: bool,
    ) -> None:
        self._assigner = None if strategy is None else strategy.timestamp_assigner
        idle_timeout_ms = int(context.settings.duration_ms(WATERMARK_IDLE_TIMEOUT))
        self.watermarks: Final = (
            None
            if strategy is None
            else SplitWatermarks(strategy, 0 if is_bounded else idle_timeout_ms)
        )
        self._context = context
        self._output = output
        self._silence_clock_ms = 0.0
        self._last_reading_ns = context.clock.monotonic_ns()
        self._last_back_pressured_ms = context.back_pressured_ms()
        self._interval_ms = int(context.settings.duration_ms(AUTO_WATERMARK_INTERVAL))
        self._rest_ms = 0 if strategy is None else _rest_ms(strategy, idle_timeout_ms)
        self._is_quiet = False
        self._resting: ScheduledTimer | None = None
        self._trust = TrustedTimes(context)
        self._split_metrics: Final = SplitMetrics(context.metrics, context.clock)
        self.has_polled = True
        self.is_waiting = True
        self.emitted_ms = context.clock.now_ms()
        """Time at which the last rows were emitted, or this object was created: epoch ms."""
        self.event_time_ms = MIN_TIMESTAMP
        """Newest event time of emitted rows, if a built-in strategy reads it."""

    def start(self, split_id: str | None) -> None:
        """Start with one split, or with none, and schedule the first interval."""
        if self.watermarks is None:
            return
        if split_id is not None:
            self.add_split(split_id)
        if self._interval_ms > 0:
            self._schedule(self._interval_ms)

    def emit(self, batch: RecordBatch, split_id: str = WHOLE_SOURCE, /) -> None:
        """Emit rows of one split."""
        if batch.num_rows == 0:
            return
        self.emitted_ms = self._context.clock.now_ms()
        if self._assigner is not None:
            batch = batch.with_timestamps(self._assign(batch, self._assigner))
        watermarks = self.watermarks
        if watermarks is None:
            self._output.emit(batch)
        elif watermarks.looks_at_events:
            self._emit_looking(batch, split_id, watermarks)
        else:
            self._emit_rows(batch, split_id, watermarks)
            times = batch.timestamps
            if times is not None:
                are_trusted = self._trust.are_trusted(times)
                trusted = times if are_trusted is None else times[are_trusted]
                latest_ms = int(trusted.max(initial=MIN_TIMESTAMP))
                self.event_time_ms = max(self.event_time_ms, latest_ms)
                watermarks.on_batch(split_id, latest_ms)

    @property
    def rows_wanted(self) -> int:
        return self._context.rows_wanted()

    def add_split(self, split_id: str, /) -> None:
        """Add a split, which holds back the watermark from now on; the unnamed split is removed."""
        if self.watermarks is None:
            return
        self._end_rest()
        try:
            self.watermarks.add_split(split_id)
        except USER_EXCEPTIONS as error:  # it may create a generator of the program
            raise user_error(error, self._context.operator_name) from error
        if split_id != WHOLE_SOURCE:
            self.watermarks.release_split(WHOLE_SOURCE)

    def release_split(self, split_id: str, /) -> None:
        """Remove a finished split, which no longer holds the watermark back."""
        if self.watermarks is not None:
            self._end_rest()
            self.watermarks.release_split(split_id)

    def emit_watermark(self) -> None:
        """Send a watermark that has grown, or a change of idleness."""
        watermarks = self.watermarks
        if watermarks is None:
            return
        self._move_silence_clock()
        try:
            watermarks.on_periodic_emit(int(self._silence_clock_ms))
        except USER_EXCEPTIONS as error:
            raise user_error(error, self._context.operator_name) from error
        self._split_metrics.update(watermarks)
        self._announce(watermarks)

    def _emit_looking(self, batch: RecordBatch, split_id: str, watermarks: SplitWatermarks) -> None:
        """Emit rows to a generator of the program, cut after each row at which the generator reports something."""
        start = 0
        times = timestamps_of(batch)
        are_trusted = (
            None if batch.timestamps is None else self._trust.are_trusted(batch.timestamps)
        )
        for index, row in enumerate(batch.rows()):
            if are_trusted is not None and not are_trusted[index]:
                continue
            try:
                says_something = watermarks.on_event(split_id, row, times[index])
            except USER_EXCEPTIONS as error:
                raise user_error(error, self._context.operator_name) from error
            if says_something:
                self._emit_rows(batch.slice(start, index + 1 - start), split_id, watermarks)
                start = index + 1
                watermarks.on_event_emitted(split_id)
                self._announce(watermarks)
        if start < batch.num_rows:
            self._emit_rows(batch.slice(start), split_id, watermarks)

    def _emit_rows(self, batch: RecordBatch, split_id: str, watermarks: SplitWatermarks) -> None:
        self._end_rest()
        watermarks.activate(split_id)
        self._output.emit_status(False)
        self._output.emit(batch)

    def _announce(self, watermarks: SplitWatermarks) -> None:
        if not watermarks.is_idle:
            self._output.emit_status(False)
        self._output.emit_watermark(watermarks.watermark_ms)
        if watermarks.is_idle:
            self._output.emit_status(True)

    def _move_silence_clock(self) -> None:
        now_ns = self._context.clock.monotonic_ns()
        back_pressured_ms = self._context.back_pressured_ms()
        elapsed_ms = (now_ns - self._last_reading_ns) / _NS_PER_MS
        held_up_ms = back_pressured_ms - self._last_back_pressured_ms
        if self.has_polled or self.is_waiting:
            self._silence_clock_ms += max(0.0, elapsed_ms - held_up_ms)
        self._last_reading_ns, self._last_back_pressured_ms = now_ns, back_pressured_ms

    def _schedule(self, delay_ms: int) -> ScheduledTimer:
        timers = self._context.timers
        return timers.schedule(timers.now_ms() + delay_ms, self._on_interval)

    def _on_interval(self, _time_ms: int) -> None:
        self._resting = None
        self.emit_watermark()
        self.has_polled = False
        # No rows for an interval: the watermark stays, and idleness takes many intervals.
        if self._is_quiet and self._rest_ms > self._interval_ms:
            self._resting = self._schedule(self._rest_ms)
        else:
            self._schedule(self._interval_ms)
        self._is_quiet = True

    def _end_rest(self) -> None:
        """Send the next watermark after an interval, as something has changed."""
        self._is_quiet = False
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
            self._schedule(self._interval_ms)

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


def _rest_ms(strategy: WatermarkStrategy, idle_timeout_ms: int) -> int:
    """Return the interval for an input without rows; 0: a generator of the program depends on time."""
    if strategy.generator_supplier is not None:
        return 0
    own_ms = strategy.idle_timeout_ms
    timeout_ms = idle_timeout_ms if own_ms is None else own_ms
    return min(_REST_MAX_MS, timeout_ms // _RESTS_IN_TIMEOUT) if timeout_ms > 0 else _REST_MAX_MS


def _as_timestamps(assigned: list[Any]) -> Timestamps:
    """Return assigned timestamps as an array; TypeError unless all are integers, which numpy does not check."""
    if not set(map(type, assigned)) <= {int}:
        for value in assigned:
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise TypeError(
                    "extract_timestamp must return epoch milliseconds as an int, "
                    f"but it returned {type(value).__name__} {short_repr(value)}"
                )
    return np.array(assigned, dtype=np.int64)
