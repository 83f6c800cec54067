"""SplitMetrics: the watermark of each split of a source, and for how long the split was active, idle and paused.

Source: Flink InternalSourceSplitMetricGroup.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.operators.sources_sinks.split_watermarks import SplitActivity, SplitWatermarks

SPLITS_MAX: Final = 100
"""Splits of a subtask that have metrics at a time: each has seven, and a reader may hold thousands."""
_GROUP: Final = "split"
_NAMES: Final = {
    SplitActivity.ACTIVE: (names.SPLIT_ACTIVE_TIME, names.SPLIT_ACCUMULATED_ACTIVE_TIME),
    SplitActivity.IDLE: (names.IDLE_TIME, names.SPLIT_ACCUMULATED_IDLE_TIME),
    SplitActivity.PAUSED: (names.SPLIT_PAUSED_TIME, names.SPLIT_ACCUMULATED_PAUSED_TIME),
}


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
        """Add to the time of an activity."""
        self._times_ms[activity] += duration_ms

    def _known_watermark(self) -> int:
        if self.watermark_ms == MIN_TIMESTAMP:
            raise LookupError("the split has no watermark yet")
        return self.watermark_ms

    def _reading(self, activity: SplitActivity) -> Callable[[], int]:
        return lambda: self._times_ms[activity]


class SplitMetrics:
    """Keeps figures of the splits that a reader has named, below `split.<id>.watermark`, until they are released.

    The time between two updates counts for what a split does at the second one. Mailbox thread only.
    """

    def __init__(self, metrics: MetricGroup, clock: Clock) -> None:
        self._metrics: Final = metrics
        self._clock: Final = clock
        self._splits: Final[dict[str, _Split]] = {}
        self._updated_ms = clock.monotonic_ms()

    def update(self, watermarks: SplitWatermarks) -> None:
        """Take the watermarks and activities of now."""
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
