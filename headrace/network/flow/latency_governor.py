"""LatencyGovernor: chooses hold time and batch size of one output to meet a latency target. Pure arithmetic.

A batch costs the same whether full or not, so a longer wait gives more throughput; and a row waits as long as its batch
is held, then behind the batches before it. With a rate of λ rows per ms for a channel, held for h, a batch is λh rows;
behind q of its kind in the queue, which go on at the rate at which they came, a row waits h(1 + q). So

    h = budget / (1 + q)        rows = λh, a quarter more, where there is a queue

where the budget is four fifths of the target less the lateness of flushes, for example while user code runs. The
rest is for transport and the consumer's turn, which are not measured here: they take some milliseconds for the slowest
rows, however short the target is, so a short target leaves less time to hold rows. Without a queue the hold alone
decides, so that a burst is not cut into tiny batches. If the consumer is slower, batches leave when they have their
rows, and the quarter more fills the last fifth. A queue that batches wait in because they are too small must not make
them smaller still: hence the minimum hold, which grows with the number of channels.

Source: Little 1961 (the wait behind q); Nagle, RFC 896 (hold while something is on its way); as batches of Clipper
(Crankshaw et al., NSDI 2017) follow a latency objective.
"""

from dataclasses import dataclass
from datetime import timedelta
from math import ceil, exp
from typing import Final

from headrace.core.config import ConfigOption, Settings

LATENCY_TARGET: Final = ConfigOption(
    "headrace.latency.target", timedelta, timedelta(0),
    "Longest time that a row should take from the operator that emits it to the next task. Each exchange then holds "
    "rows as long as this allows, given its rate and its queues, instead of for the buffer timeout, and gates limit "
    "the rows in flight to match. 0: the buffer timeout alone. Below about 5 ms the slowest rows take longer, because "
    "of transport and checkpoints. Exchanges with a buffer timeout of -1 still hold rows until a batch is full, of "
    "fewer bytes if their consumer is slow.",
)  # fmt: skip
BUDGET_SHARE: Final = 0.8
WAY_MS: Final = 4.0
"""Approximate 99th percentile of the transport time of a row that is not held, in ms, with checkpoints, at half load.
"""
BUDGET_SHARE_MIN: Final = 0.2
"""Minimum share of the target for holding rows: not holding them at all makes everything slower."""
HEADROOM: Final = 1.25
QUEUE_MIN: Final = 0.5
"""Average queue length below which the queue is only a batch that was just handed over."""
HOLD_MIN_MS: Final = 1.0
BATCH_COST_MS: Final = 0.25
"""Approximate time in ms that both sides spend on a batch, whatever its size."""
LATENESS_SHARE_MAX: Final = 0.75
"""Share of the budget that late flushes may take; with more, a busy task would hold nothing back and become busier."""
SMOOTHING_MS: Final = 200.0
PERIOD_NS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """Limits of a batch until the next choice: its longest wait, and its rows per channel."""

    hold_ms: float
    rows: int


@dataclass(frozen=True, slots=True)
class FlushObserved:
    """Measurements of an output at a flush.

    `row_count`: rows emitted so far; `queued_count`: batches in the longest queue before this flush; `waited_ms`: time
    that the first row of this flush has waited.
    """

    now_ns: int
    row_count: int
    queued_count: int
    waited_ms: float


def budget_of(target_ms: float) -> float:
    """Return the share of a latency target that may be spent holding rows back, in ms."""
    return min(BUDGET_SHARE * target_ms, max(target_ms - WAY_MS, BUDGET_SHARE_MIN * target_ms))


class LatencyGovernor:
    """Chooses the batch limits of one output with `channel_count` channels.

    Holds rows for the whole budget at first.
    """

    def __init__(self, target_ms: float, channel_count: int, rows_max: int) -> None:
        assert target_ms > 0 and channel_count > 0 and rows_max > 0
        self._channel_count = channel_count
        self._rows_max = rows_max
        self._hold_min_ms = max(HOLD_MIN_MS, BATCH_COST_MS * channel_count)
        self._last: FlushObserved | None = None
        self._rate = 0.0
        self._queue = 0.0
        self._lateness_ms = 0.0
        self._budget_ms = budget_of(target_ms)
        self.choice = BatchChoice(self._budget_ms, rows_max)

    @classmethod
    def from_settings(
        cls, settings: Settings, channel_count: int, rows_max: int
    ) -> "LatencyGovernor | None":
        """Make a governor from the options; None if no latency target is set."""
        target_ms = settings.duration_ms(LATENCY_TARGET)
        return cls(target_ms, channel_count, rows_max) if target_ms > 0 else None

    def is_due(self, now_ns: int) -> bool:
        """Return whether enough time has passed to measure a rate."""
        return self._last is None or now_ns - self._last.now_ns >= PERIOD_NS

    def flushed(self, seen: FlushObserved) -> BatchChoice:
        """Record a flush, when `is_due`, and return the new limits."""
        last, self._last = self._last, seen
        late_ms = max(0.0, seen.waited_ms - self.choice.hold_ms)
        if last is None:
            self._lateness_ms = late_ms
            return self.choice
        elapsed_ms = (seen.now_ns - last.now_ns) / 1e6
        assert elapsed_ms > 0
        weight = 1 - exp(-elapsed_ms / SMOOTHING_MS)
        rate = (seen.row_count - last.row_count) / elapsed_ms
        self._rate = rate if self._rate == 0 else self._rate + weight * (rate - self._rate)
        self._queue += weight * (seen.queued_count - self._queue)
        # Lateness counts at once and decays slowly: the target is about the slowest rows.
        self._lateness_ms = max(late_ms, (1 - weight) * self._lateness_ms)
        self.choice = self._choose()
        return self.choice

    def _choose(self) -> BatchChoice:
        lateness_max_ms = LATENESS_SHARE_MAX * self._budget_ms
        budget_ms = self._budget_ms - min(self._lateness_ms, lateness_max_ms)
        hold_ms = min(max(budget_ms / (1 + self._queue), self._hold_min_ms), self._budget_ms)
        if self._queue < QUEUE_MIN:
            return BatchChoice(hold_ms, self._rows_max)
        rows = ceil(HEADROOM * self._rate / self._channel_count * hold_ms)
        return BatchChoice(hold_ms, min(max(rows, 1), self._rows_max))
