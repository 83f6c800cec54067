"""MetricRegistry: holds the groups of metrics of one process, reads them, and passes the readings to reporters.

Owners add a source for each of their groups and remove it when they end: its values are then read once more for the
next report, so that no count is lost. A thread of the registry reads; each reporter runs on a thread of its own
(`reporter_thread`). Counting threads wait for neither. Without reporters no thread is started and no metrics are read.
Source: Flink MetricRegistryImpl.
"""

import logging
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.threads import Thread, start_thread
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.names import is_momentary
from headrace.metrics.readings import (
    ENDED_GROUPS_MAX,
    GroupReading,
    MetricReport,
    MetricSource,
    Span,
)
from headrace.metrics.reporters.reporter_thread import ReporterThread
from headrace.metrics.scopes import ScopeFormats

_LOG = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S: Final = 2.0


@dataclass
class _Schedule:
    """A reporter, the time of its next report (monotonic ms), and the groups that ended since its last one."""

    reporter: ReporterThread
    due_ms: float
    ended: deque[GroupReading] = field(
        default_factory=lambda: deque[GroupReading](maxlen=ENDED_GROUPS_MAX)
    )


class MetricRegistry:
    """Registry of metric groups; one per TaskManager, and one for the driver. Methods may be called from any thread."""

    def __init__(
        self, settings: Settings, clock: Clock, reporters: Sequence[ReporterThread] = ()
    ) -> None:
        self._clock: Final = clock
        self._formats: Final = ScopeFormats(settings)
        self._reporters: Final = tuple(reporters)
        self._pulled: Final = tuple(each for each in reporters if each.is_pulled)
        self._are_pushed: Final = len(self._pulled) < len(self._reporters)
        self._sources: Final[dict[Hashable, MetricSource]] = {}
        self._failed: Final[set[Hashable]] = set()
        self._ended: Final = deque[GroupReading](maxlen=ENDED_GROUPS_MAX)
        self._is_stopped: Final = threading.Event()
        self._thread: Thread | None = None
        self._schedules: list[_Schedule] = []

    @property
    def is_read(self) -> bool:
        """Return whether any reporter reads the metrics registered here."""
        return bool(self._reporters)

    @property
    def interval_ms(self) -> float:
        """Return the shortest interval of all reporters; infinity without any."""
        return min((reporter.interval_ms for reporter in self._reporters), default=float("inf"))

    def start(self) -> None:
        """Start the reporters."""
        now_ms = self._clock.monotonic_ms()
        for reporter in self._reporters:
            reporter.start(self.read)
            if not reporter.is_pulled:
                self._schedules.append(_Schedule(reporter, now_ms + reporter.interval_ms))
        if self._schedules:
            self._thread = start_thread("headrace-metrics", self._run)

    def add(self, key: Hashable, source: MetricSource) -> None:
        """Read `source` from now on, under a key of its owner."""
        assert key not in self._sources, f"{key} is registered already"
        self._sources[key] = source

    def remove(self, key: Hashable) -> None:
        """Read a source once more, without rates, and remove it; unknown keys are ignored."""
        source = self._sources.pop(key, None)
        if source is not None and self._reporters:
            last = [_without_rates(each) for each in self._read_one(key, source)]
            if self._are_pushed:
                self._ended.extend(last)
            for reporter in self._pulled:
                reporter.offer(MetricReport(self._clock.now_ms(), (), last))
        self._failed.discard(key)

    def report_span(self, span: Span) -> None:
        """Pass a span of a trace to the reporters."""
        for reporter in self._reporters:
            reporter.offer_span(span)

    def read(self) -> MetricReport:
        """Read all groups now."""
        groups: list[GroupReading] = []
        # A copy: owners come and go while this reads.
        for key, source in list(self._sources.items()):
            groups += self._read_one(key, source)
        return MetricReport(self._clock.now_ms(), groups)

    def close(self) -> None:
        """Report for the last time, then end the reporters; those that hang are abandoned after two seconds."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)
            # Where it still reads, something that it reads hangs: that must not keep the process from its end.
            if not self._thread.is_alive():
                self._hand_out(self._schedules)
        for reporter in self._reporters:
            reporter.close_soon()
        deadline_ms = self._clock.monotonic_ms() + _CLOSE_TIMEOUT_S * 1000
        for reporter in self._reporters:
            reporter.await_end(max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000)

    def _run(self) -> None:
        while True:
            due_ms = min(schedule.due_ms for schedule in self._schedules)
            if self._is_stopped.wait(max(0.0, due_ms - self._clock.monotonic_ms()) / 1000):
                return
            now_ms = self._clock.monotonic_ms()
            due = [schedule for schedule in self._schedules if schedule.due_ms <= now_ms]
            for schedule in due:
                schedule.due_ms = now_ms + schedule.reporter.interval_ms
            try:
                self._hand_out(due)
            except Exception:
                # The next report may succeed: one that failed must not be the last.
                _LOG.exception("metrics could not be passed to reporters")

    def _hand_out(self, schedules: Sequence[_Schedule]) -> None:
        while self._ended:
            ended = self._ended.popleft()
            for schedule in self._schedules:
                schedule.ended.append(ended)
        report = self.read()
        for schedule in schedules:
            ended_groups = tuple(schedule.ended)
            schedule.ended.clear()
            schedule.reporter.offer(replace(report, ended=ended_groups))

    def _read_one(self, key: Hashable, source: MetricSource) -> list[GroupReading]:
        try:
            return [
                replace(reading, scope=self._formats.scope(reading.kind, reading.variables))
                for reading in source()
            ]
        except Exception:
            if key not in self._failed:
                self._failed.add(key)
                _LOG.exception(
                    "the metrics of %s cannot be read; further failures are not logged", key
                )
            return []


def _without_rates(reading: GroupReading) -> GroupReading:
    return replace(
        reading,
        samples=[
            sample
            for sample in reading.samples
            if sample.kind is not MetricKind.METER and not is_momentary(sample.name)
        ],
    )
