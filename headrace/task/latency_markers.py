"""LatencyMarkerEmitter: a subtask of a source sends a marker with its time, now and then, among its rows.

Source: Flink SourceOperatorStreamTask.LatencyMarkerEmitter.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.config import Settings
from headrace.core.elements import LatencyMarker
from headrace.core.ids import OperatorId
from headrace.functions.processing_time import ProcessingTimeService
from headrace.metrics.latency import LATENCY_INTERVAL


class LatencyMarkerEmitter:
    """Emits at once and then an interval behind each emission; never where the interval is 0. Mailbox thread only.

    `has_room` says whether a row could be emitted now, and else has its argument called as soon as it can. Until then
    the marker waits, as a row would, and its task goes on with mail and barriers.
    """

    def __init__(
        self,
        source_id: OperatorId,
        subtask_index: int,
        settings: Settings,
        timers: ProcessingTimeService,
        has_room: Callable[[Callable[[], None]], bool],
        emit: Callable[[LatencyMarker], None],
    ) -> None:
        self._source_id: Final = source_id
        self._subtask_index: Final = subtask_index
        # A timer knows no part of a millisecond.
        self._interval_ms: Final = -int(-settings.duration_ms(LATENCY_INTERVAL) // 1)
        self._timers: Final = timers
        self._has_room: Final = has_room
        self._emit: Final = emit

    def start(self) -> None:
        """Begin; it ends with the timers."""
        if self._interval_ms > 0:
            self._timers.schedule(self._timers.now_ms(), self._fire)

    def _fire(self, _time_ms: int) -> None:
        self._send(LatencyMarker(self._timers.now_ms(), self._source_id, self._subtask_index))

    def _send(self, marker: LatencyMarker) -> None:
        if self._has_room(lambda: self._send(marker)):
            self._emit(marker)
            self._timers.schedule(self._timers.now_ms() + self._interval_ms, self._fire)
