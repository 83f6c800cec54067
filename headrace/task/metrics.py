"""What a task measures of itself: records, watermarks, and how its time was spent.

Written by the mailbox thread once per batch; read by any thread, which may see a value that is one batch old.
Source: Flink TaskIOMetricGroup; formulas as in the network reference, back pressure and metrics.
"""

import enum
from typing import Final

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.metrics import names

_NS_PER_MS: Final = 1_000_000


class Occupation(enum.Enum):
    """What a task does with its time."""

    BUSY = "busy"
    IDLE = "idle"
    BACK_PRESSURED = "backPressured"


_SHARE_NAMES: Final = {
    Occupation.BUSY: names.BUSY_TIME.name,
    Occupation.IDLE: names.IDLE_TIME.name,
    Occupation.BACK_PRESSURED: names.BACK_PRESSURED_TIME.name,
}
_TOTAL_NAMES: Final = {
    Occupation.BUSY: names.ACCUMULATE_BUSY_TIME.name,
    Occupation.IDLE: names.ACCUMULATE_IDLE_TIME.name,
    Occupation.BACK_PRESSURED: names.ACCUMULATE_BACK_PRESSURED_TIME.name,
}


class TaskTimes:
    """Accumulates busy, idle and back-pressured time; their shares of each second sum to 1000 ms.

    Time inside `emit` that was spent waiting for buffers counts as back-pressured, not busy.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ns = clock.monotonic_ns()
        self._since_ns = now_ns
        self._occupation = Occupation.BUSY
        self._totals_ns = {occupation: 0 for occupation in Occupation}
        self._rate_start_ns = now_ns
        self._rate_totals_ns = dict(self._totals_ns)
        self._rates = {occupation: 0.0 for occupation in Occupation}

    def occupy(self, occupation: Occupation) -> None:
        """From now on the task is doing `occupation`."""
        if occupation is self._occupation:
            return
        now_ns = self._clock.monotonic_ns()
        self._totals_ns[self._occupation] += now_ns - self._since_ns
        self._since_ns = now_ns
        self._occupation = occupation

    def hard_back_pressured(self, duration_ns: int) -> None:
        """Move `duration_ns` of the current busy time to back-pressured time."""
        self._totals_ns[Occupation.BACK_PRESSURED] += duration_ns
        self._totals_ns[Occupation.BUSY] -= duration_ns

    def idle_ms(self) -> float:
        """Return how long the task has been idle in all."""
        since_ns = self._clock.monotonic_ns() - self._since_ns
        current_ns = since_ns if self._occupation is Occupation.IDLE else 0
        return (self._totals_ns[Occupation.IDLE] + current_ns) / _NS_PER_MS

    def snapshot(self) -> dict[str, float]:
        """Return accumulated milliseconds and the shares of the time since the last snapshot, in ms per second."""
        now_ns = self._clock.monotonic_ns()
        totals_ns = dict(self._totals_ns)
        totals_ns[self._occupation] += now_ns - self._since_ns
        window_ns = now_ns - self._rate_start_ns
        # Asked twice within a moment the window would be too short to mean anything: keep the last shares.
        if window_ns >= 100 * _NS_PER_MS:
            for occupation, total_ns in totals_ns.items():
                share = (total_ns - self._rate_totals_ns[occupation]) / window_ns
                self._rates[occupation] = 1000 * min(1.0, max(0.0, share))
            self._rate_start_ns, self._rate_totals_ns = now_ns, totals_ns
        values: dict[str, float] = {}
        for occupation, total_ns in totals_ns.items():
            values[_SHARE_NAMES[occupation]] = self._rates[occupation]
            values[_TOTAL_NAMES[occupation]] = total_ns / _NS_PER_MS
        return values


class TaskCounters:
    """Records and watermarks of one task; bytes and batches are counted by its gates and writers."""

    def __init__(self) -> None:
        self.records_in = 0
        self.records_out = 0
        self.input_watermark = MIN_TIMESTAMP
        self.output_watermark = MIN_TIMESTAMP

    def snapshot(self) -> dict[str, float]:
        """Return the counts and, once there are any, the watermarks."""
        values: dict[str, float] = {
            names.NUM_RECORDS_IN.name: self.records_in,
            names.NUM_RECORDS_OUT.name: self.records_out,
        }
        if self.input_watermark != MIN_TIMESTAMP:
            values[names.CURRENT_INPUT_WATERMARK.name] = self.input_watermark
        if self.output_watermark != MIN_TIMESTAMP:
            values[names.CURRENT_OUTPUT_WATERMARK.name] = self.output_watermark
        return values
