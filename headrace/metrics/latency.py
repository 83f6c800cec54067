"""LatencyStats: ages of the latency markers that reach an operator, by their source.

Names are Flink's: `latency.source_id.<id>.operator_id.<id>.operator_subtask_index.<n>.latency_p99`, with or without
`source_subtask_index.<n>` after the source, depending on the granularity.
Source: Flink LatencyStats, MetricOptions.
"""

import enum
from dataclasses import replace
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.elements import LatencyMarker
from headrace.core.ids import OperatorId
from headrace.metrics.groups import MetricGroup, MetricSample
from headrace.metrics.instruments import Histogram, Number
from headrace.metrics.names import LATENCY


class LatencyGranularity(enum.Enum):
    """Granularity by which an operator groups latency markers."""

    SINGLE = "single"
    OPERATOR = "operator"
    SUBTASK = "subtask"


LATENCY_INTERVAL: Final = ConfigOption(
    "metrics.latency.interval",
    timedelta,
    default=timedelta(0),
    doc="Time between two latency markers of each source subtask; operators record the age of arriving markers. 0: no "
    "markers are sent.",
)
LATENCY_GRANULARITY: Final = ConfigOption(
    "metrics.latency.granularity",
    str,
    default=LatencyGranularity.OPERATOR.value,
    doc="Granularity of latencies: single (one for all), operator (by source) or subtask (by subtask of a source).",
    choices=tuple(each.value for each in LatencyGranularity),
)
LATENCY_HISTORY_SIZE: Final = ConfigOption(
    "metrics.latency.history-size",
    int,
    default=128,
    doc="Number of latest markers from which latencies are computed.",
    least=1,
)
_GROUP: Final = "latency"


class LatencyStats:
    """Latencies of one operator in one subtask, below the task's `group`. Mailbox thread only, except `snapshot_of`."""

    def __init__(
        self, group: MetricGroup, operator_id: OperatorId, subtask_index: int, settings: Settings
    ) -> None:
        self._group: Final = group
        self._operator_id: Final = operator_id
        self._subtask_index: Final = subtask_index
        self._granularity: Final = LatencyGranularity(settings.get_option(LATENCY_GRANULARITY))
        self._history_size: Final = settings.get_option(LATENCY_HISTORY_SIZE)
        self._histograms: dict[tuple[OperatorId, int] | OperatorId | None, Histogram] = {}

    def report(self, marker: LatencyMarker, now_ms: int) -> None:
        """Record a marker that arrived at `now_ms`, epoch ms; its age is negative if its source's clock is ahead."""
        key = self._key_of(marker)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = self._create(marker)
        histogram.update(now_ms - marker.marked_time_ms)

    @staticmethod
    def snapshot_of(group: MetricGroup) -> dict[str, Number]:
        """Return the latencies of all operators below a task's group, by their names there. Any thread."""
        values = group.add_group(_GROUP).snapshot()
        return {f"{_GROUP}.{name}": value for name, value in values.items()}

    @staticmethod
    def samples_of(group: MetricGroup) -> list[MetricSample]:
        """Return the latencies of `snapshot_of` as samples below a task's group."""
        return [
            replace(sample, path=(_GROUP, *sample.path), keys=(_GROUP, *sample.keys))
            for sample in group.add_group(_GROUP).samples()
        ]

    def _key_of(self, marker: LatencyMarker) -> tuple[OperatorId, int] | OperatorId | None:
        match self._granularity:
            case LatencyGranularity.SINGLE:
                return None
            case LatencyGranularity.OPERATOR:
                return marker.source_id
            case LatencyGranularity.SUBTASK:
                return marker.source_id, marker.subtask_index

    def _create(self, marker: LatencyMarker) -> Histogram:
        group = self._group.add_group(_GROUP)
        if self._granularity is not LatencyGranularity.SINGLE:
            group = group.add_group("source_id", marker.source_id.hex())
        if self._granularity is LatencyGranularity.SUBTASK:
            group = group.add_group("source_subtask_index", str(marker.subtask_index))
        group = group.add_group("operator_id", self._operator_id.hex())
        group = group.add_group("operator_subtask_index", str(self._subtask_index))
        return group.histogram(LATENCY, self._history_size)
