"""Metrics of a task: records, watermarks, and the use of its time.

Written by the mailbox thread once per batch; read by any thread, which may see a value that is one batch old.
Source: Flink TaskIOMetricGroup; formulas as in the network reference, back pressure and metrics.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.ids import OperatorId
from headrace.metrics import names
from headrace.metrics.groups import MetricSample
from headrace.metrics.instruments import Histogram

_NS_PER_MS: Final = 1_000_000


class Occupation(enum.Enum):
    """Uses of a task's time."""

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
_SOFT: Final = names.SOFT_BACK_PRESSURED_TIME.name
_HARD: Final = names.HARD_BACK_PRESSURED_TIME.name
_LONGEST_SOFT: Final = names.MAX_SOFT_BACK_PRESSURE_TIME.name
_LONGEST_HARD: Final = names.MAX_HARD_BACK_PRESSURE_TIME.name
_SHARES: Final = (*_SHARE_NAMES.values(), _SOFT, _HARD, _LONGEST_SOFT, _LONGEST_HARD)


class TaskTimes:
    """Accumulates busy, idle and back-pressured time; their shares of each second sum to 1000 ms.

    Back pressure is soft between two batches. Inside `emit` it is hard: the task counted itself as busy, and that
    time is moved from busy to back-pressured.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ns = clock.monotonic_ns()
        self._start_ns = self._since_ns = now_ns
        self._occupation = Occupation.BUSY
        self._totals_ns = {occupation: 0 for occupation in Occupation}
        self._hard_ns = 0
        self._longest_soft_ns = 0
        self._longest_hard_ns = 0
        self._rate_start_ns = now_ns
        self._last = self._accounts(now_ns)
        self._rates: dict[str, float] = dict.fromkeys(_SHARES, 0.0)

    @property
    def is_back_pressured(self) -> bool:
        """True if the task waits for its output, between two batches."""
        return self._occupation is Occupation.BACK_PRESSURED

    @property
    def occupation(self) -> Occupation:
        """Current use of the task's time."""
        return self._occupation

    def occupy(self, occupation: Occupation) -> None:
        """Begin an occupation, which ends the previous one."""
        if occupation is self._occupation:
            return
        now_ns = self._clock.monotonic_ns()
        duration_ns = now_ns - self._since_ns
        self._totals_ns[self._occupation] += duration_ns
        if self.is_back_pressured:
            self._longest_soft_ns = max(self._longest_soft_ns, duration_ns)
        self._since_ns = now_ns
        self._occupation = occupation

    def hard_back_pressured(self, duration_ns: int) -> None:
        """Move `duration_ns` of the current busy time to back-pressured time."""
        self._totals_ns[Occupation.BACK_PRESSURED] += duration_ns
        self._totals_ns[Occupation.BUSY] -= duration_ns
        self._hard_ns += duration_ns
        self._longest_hard_ns = max(self._longest_hard_ns, duration_ns)

    def active_ms(self) -> float:
        """Return the total time for which the task has been busy or back-pressured."""
        now_ns = self._clock.monotonic_ns()
        idle_ns = self._totals_ns[Occupation.IDLE]
        if self._occupation is Occupation.IDLE:
            idle_ns += now_ns - self._since_ns
        return (now_ns - self._start_ns - idle_ns) / _NS_PER_MS

    def back_pressured_ms(self) -> float:
        """Return the total time for which the task could not go on because its outputs were full."""
        since_ns = self._clock.monotonic_ns() - self._since_ns
        current_ns = since_ns if self.is_back_pressured else 0
        return (self._totals_ns[Occupation.BACK_PRESSURED] + current_ns) / _NS_PER_MS

    def snapshot(self) -> dict[str, float]:
        """Return accumulated milliseconds and the shares of the time since the last snapshot, in ms per second."""
        now_ns = self._clock.monotonic_ns()
        accounts = self._accounts(now_ns)
        window_ns = now_ns - self._rate_start_ns
        # After two reads in quick succession the window would be too short: keep the last shares.
        if window_ns >= 100 * _NS_PER_MS:
            for name, total_ns in accounts.items():
                share = (total_ns - self._last[name]) / window_ns
                self._rates[name] = 1000 * min(1.0, max(0.0, share))
            # A wait in progress counts until now.
            current_ns = now_ns - self._since_ns if self.is_back_pressured else 0
            self._rates[_LONGEST_SOFT] = max(self._longest_soft_ns, current_ns) / _NS_PER_MS
            self._rates[_LONGEST_HARD] = self._longest_hard_ns / _NS_PER_MS
            self._longest_soft_ns = self._longest_hard_ns = 0
            self._rate_start_ns, self._last = now_ns, accounts
        values = dict(self._rates)
        values[names.IS_BACK_PRESSURED.name] = float(self.is_back_pressured)
        for occupation, name in _TOTAL_NAMES.items():
            values[name] = accounts[_SHARE_NAMES[occupation]] / _NS_PER_MS
        return values

    def _accounts(self, now_ns: int) -> dict[str, int]:
        """Return nanoseconds so far by the name of their share."""
        totals_ns = dict(self._totals_ns)
        totals_ns[self._occupation] += now_ns - self._since_ns
        accounts = {_SHARE_NAMES[occupation]: total for occupation, total in totals_ns.items()}
        accounts[_HARD] = self._hard_ns
        accounts[_SOFT] = totals_ns[Occupation.BACK_PRESSURED] - self._hard_ns
        return accounts


class EdgeTimes:
    """Measures how long each output blocks the task; if several are full, the first one counts."""

    def __init__(self, clock: Clock, output_count: int) -> None:
        self._clock = clock
        self._totals_ns = [0] * output_count
        self._blamed: int | None = None
        self._since_ns = 0

    def blame(self, index: int | None) -> None:
        """Charge output `index` with blocking the task from now on; None: no output does."""
        if index == self._blamed:
            return
        now_ns = self._clock.monotonic_ns()
        if self._blamed is not None:
            self._totals_ns[self._blamed] += now_ns - self._since_ns
        self._blamed, self._since_ns = index, now_ns

    def soft_ms(self, index: int) -> float:
        """Return the total time in ms that output `index` blocked the task between batches. Any thread."""
        current_ns = self._clock.monotonic_ns() - self._since_ns if index == self._blamed else 0
        return (self._totals_ns[index] + current_ns) / _NS_PER_MS


class MailboxLatency:
    """Measures how long a mail waits, with one mail per reading of the metrics unless one is queued. Any thread.

    Source: Flink MailboxMetricsController.
    """

    def __init__(self, clock: Clock, put: Callable[[Callable[[], None]], object]) -> None:
        self._clock: Final = clock
        self._put: Final = put
        self._is_out = False

    def measure(self, histogram: Histogram) -> None:
        """Put a mail in the mailbox; `histogram` gets its waiting time once it is run."""
        if self._is_out:
            return
        self._is_out = True
        put_ms = self._clock.monotonic_ms()

        def arrived() -> None:
            histogram.update(round(self._clock.monotonic_ms() - put_ms))
            self._is_out = False

        self._put(arrived)


@dataclass(frozen=True)
class TaskSamples:
    """The metrics of one task as samples: its own, and those of each operator."""

    own: Sequence[MetricSample]
    operators: Mapping[OperatorId, Sequence[MetricSample]]


class TaskCounters:
    """Counts the records of one task, with its watermarks; gates and writers count bytes and batches."""

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
