"""PacedRows: passes batches to per-record user functions in parts, so that mail and timers have their turns in between.

A function that calls an external system may need a quarter of a second for each record, and a batch has thousands of
them: processed in one piece, nothing would be flushed, no timer would fire, and the task could not be cancelled. The
number of rows that take about TURN_MS is learned from earlier rows. Vectorised operators get whole batches, as a part
would cost them as much as the whole.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.elements import LatencyMarker
from headrace.core.record_batch import RecordBatch
from headrace.operators.runtime.operator import TURN_MS

_GROWTH: Final = 8
_ROWS_MAX: Final = 1 << 20
_TURN_NS: Final = TURN_MS * 1_000_000


class Pace:
    """Limits the rows processed in one turn. Starts with one row, because the cost of a row is not known yet."""

    def __init__(self) -> None:
        self._row_count = 1

    def rows_now(self, row_count: int) -> int:
        """Return how many of `row_count` rows to take now; all of them if only few would be left."""
        return row_count if row_count <= 2 * self._row_count else self._row_count

    @property
    def rows_wanted(self) -> int:
        """Most rows that a batch should have; further rows wait, and so do barriers behind them."""
        return 2 * self._row_count

    def took(self, row_count: int, duration_ns: int) -> None:
        """Adapt to the time of a turn. One slow turn lowers the limit at once; fast ones raise it step by step."""
        fitting = _TURN_NS * row_count // max(1, duration_ns)
        self._row_count = max(1, min(self._row_count * _GROWTH, fitting, _ROWS_MAX))


class PacedRows:
    """Passes on batches in parts, and the markers behind them in order. Mailbox thread only.

    `go_on` is called while `is_amid_batch`, until the batch is finished; a barrier or the end of the data must not be
    handled before.
    """

    def __init__(
        self,
        clock: Clock,
        on_batch: Callable[[RecordBatch], None],
        on_watermark: Callable[[int], None],
        on_status: Callable[[bool], None],
        on_latency_marker: Callable[[LatencyMarker], None],
    ) -> None:
        self._clock: Final = clock
        self._on_batch: Final = on_batch
        self._on_watermark: Final = on_watermark
        self._on_status: Final = on_status
        self._on_latency_marker: Final = on_latency_marker
        self._pace: Final = Pace()
        self._waiting: deque[RecordBatch | Callable[[], None]] = deque()

    @property
    def is_amid_batch(self) -> bool:
        """True while rows wait that must be processed before new elements."""
        return bool(self._waiting)

    @property
    def rows_wanted(self) -> int:
        return self._pace.rows_wanted

    def batch(self, batch: RecordBatch) -> None:
        """Queue rows."""
        self._waiting.append(batch)
        if len(self._waiting) == 1:
            self.go_on()

    def watermark(self, timestamp_ms: int) -> None:
        """Pass on a watermark after the queued rows."""
        if self._waiting:
            self._waiting.append(lambda: self._on_watermark(timestamp_ms))
        else:
            self._on_watermark(timestamp_ms)

    def status(self, is_idle: bool) -> None:
        """Pass on a change of idleness after the queued rows."""
        if self._waiting:
            self._waiting.append(lambda: self._on_status(is_idle))
        else:
            self._on_status(is_idle)

    def latency_marker(self, marker: LatencyMarker) -> None:
        """Pass on a latency marker after the queued rows."""
        if self._waiting:
            self._waiting.append(lambda: self._on_latency_marker(marker))
        else:
            self._on_latency_marker(marker)

    def go_on(self) -> None:
        """Process the next part of the waiting rows, and the markers up to the next rows."""
        batch = self._waiting[0]
        assert isinstance(batch, RecordBatch)
        count = self._pace.rows_now(batch.num_rows)
        started_ns = self._clock.monotonic_ns()
        self._on_batch(batch.slice(0, count))
        self._pace.took(count, self._clock.monotonic_ns() - started_ns)
        if count < batch.num_rows:
            self._waiting[0] = batch.slice(count)
            return
        self._waiting.popleft()
        while self._waiting and not isinstance(self._waiting[0], RecordBatch):
            step = self._waiting.popleft()
            assert not isinstance(step, RecordBatch)
            step()
