"""MetricRegistry: knows the groups of metrics of one process, reads them, and hands what it read to reporters.

Owners add a source for each of their groups and remove it when they end: its values are read once more then, and the
next report carries them, so that no count is lost. A thread of the registry reads; each reporter runs on a thread of
its own (`reporters.reporter_thread`). Nobody who counts waits for either. Without reporters no thread is started and
nothing is read. Source: Flink MetricRegistryImpl.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from headrace.core.clock import Clock
from headrace.core.config import Settings
from headrace.core.threads import start_thread
from headrace.metrics.groups import MetricSample
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.names import is_momentary
from headrace.metrics.scopes import GroupKind, ScopeFormats
from headrace.metrics.spans import Span

_LOG = logging.getLogger(__name__)

ENDED_GROUPS_MAX: Final = 10_000
"""Groups that ended between two reports; of more the oldest are left out."""
_CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class GroupReading:
    """The values of one group at one moment.

    `variables`: by name, without brackets. `scope`: the names in front of its metrics, filled in by the registry.
    """

    kind: GroupKind
    variables: Mapping[str, str]
    samples: Sequence[MetricSample]
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricReport:
    """The values of one process. `ended`: last values of groups that are gone."""

    timestamp_ms: int
    groups: Sequence[GroupReading]
    ended: Sequence[GroupReading] = ()


MetricSource = Callable[[], Iterable[GroupReading]]
"""Reads one owner's groups; from any thread."""


class ReportReceiver(Protocol):
    """A reporter as the registry sees it: none of the calls waits, but for `await_end`."""

    @property
    def interval_ms(self) -> float:
        """Return the time between two reports."""
        ...

    @property
    def is_pulled(self) -> bool:
        """Return whether it reads the groups when it is asked itself, and hears of those that ended as they do."""
        ...

    def start(self, read: Callable[[], MetricReport]) -> None:
        """Begin; `read` reads all groups."""
        ...

    def offer(self, report: MetricReport) -> None:
        """Take a report; while an earlier one is not done with, this one takes the place of the one that waits."""
        ...

    def offer_span(self, span: Span) -> None:
        """Take a span of a trace."""
        ...

    def close_soon(self) -> None:
        """Send what waits, then end."""
        ...

    def await_end(self, timeout_s: float) -> None:
        """Wait for the end; give up after `timeout_s`."""
        ...


@dataclass
class _Schedule:
    """A receiver, when its next report is due (monotonic ms), and the groups that ended since its last one."""

    receiver: ReportReceiver
    due_ms: float
    ended: deque[GroupReading] = field(
        default_factory=lambda: deque[GroupReading](maxlen=ENDED_GROUPS_MAX)
    )


class MetricRegistry:
    """One per TaskManager, and one for the driver. All methods may be called from any thread."""

    def __init__(
        self, settings: Settings, clock: Clock, receivers: Sequence[ReportReceiver] = ()
    ) -> None:
        self._clock: Final = clock
        self._formats: Final = ScopeFormats(settings)
        self._receivers: Final = tuple(receivers)
        self._sources: Final[dict[Hashable, MetricSource]] = {}
        self._failed: Final[set[Hashable]] = set()
        self._ended: Final = deque[GroupReading](maxlen=ENDED_GROUPS_MAX)
        self._is_stopped: Final = threading.Event()
        self._is_running = False
        self._has_ended: Final = threading.Event()
        self._schedules: list[_Schedule] = []

    @property
    def is_read(self) -> bool:
        """Return whether anybody reports what is registered here."""
        return bool(self._receivers)

    @property
    def interval_ms(self) -> float:
        """Return the shortest interval of all reporters; infinity without any."""
        return min((receiver.interval_ms for receiver in self._receivers), default=float("inf"))

    def start(self) -> None:
        """Start the reporters."""
        now_ms = self._clock.monotonic_ms()
        for receiver in self._receivers:
            receiver.start(self.read)
            if not receiver.is_pulled:
                self._schedules.append(_Schedule(receiver, now_ms + receiver.interval_ms))
        if self._schedules:
            self._is_running = True
            start_thread("headrace-metrics", self._run)

    def add(self, key: Hashable, source: MetricSource) -> None:
        """Read `source` from now on, under a key of its owner's."""
        assert key not in self._sources, f"{key} is registered already"
        self._sources[key] = source

    def remove(self, key: Hashable) -> None:
        """Read a source once more, without rates, and forget it; unknown keys are passed over."""
        source = self._sources.pop(key, None)
        if source is not None and self._receivers:
            last = [_without_rates(each) for each in self._read_one(key, source)]
            self._ended.extend(last)
            for receiver in self._receivers:
                if receiver.is_pulled:
                    receiver.offer(MetricReport(self._clock.now_ms(), (), last))
        self._failed.discard(key)

    def report_span(self, span: Span) -> None:
        """Hand a span of a trace to the reporters."""
        for receiver in self._receivers:
            receiver.offer_span(span)

    def read(self) -> MetricReport:
        """Read all groups now."""
        groups: list[GroupReading] = []
        # A copy: owners come and go while this reads.
        for key, source in list(self._sources.items()):
            groups += self._read_one(key, source)
        return MetricReport(self._clock.now_ms(), groups)

    def close(self) -> None:
        """Report for the last time, then end the reporters; those that hang are left behind after two seconds."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        # Where it still reads, something that it reads hangs: that must not keep the process from its end.
        if self._is_running and self._has_ended.wait(_CLOSE_TIMEOUT_S):
            self._hand_out(self._schedules)
        for receiver in self._receivers:
            receiver.close_soon()
        deadline_ms = self._clock.monotonic_ms() + _CLOSE_TIMEOUT_S * 1000
        for receiver in self._receivers:
            receiver.await_end(max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000)

    def _run(self) -> None:
        while True:
            due_ms = min(schedule.due_ms for schedule in self._schedules)
            if self._is_stopped.wait(max(0.0, due_ms - self._clock.monotonic_ms()) / 1000):
                self._has_ended.set()
                return
            now_ms = self._clock.monotonic_ms()
            due = [schedule for schedule in self._schedules if schedule.due_ms <= now_ms]
            for schedule in due:
                schedule.due_ms = now_ms + schedule.receiver.interval_ms
            try:
                self._hand_out(due)
            except Exception:
                # The next report may succeed: one that failed must not be the last.
                _LOG.exception("metrics could not be handed to reporters")

    def _hand_out(self, schedules: Sequence[_Schedule]) -> None:
        while self._ended:
            ended = self._ended.popleft()
            for schedule in self._schedules:
                schedule.ended.append(ended)
        report = self.read()
        for schedule in schedules:
            ended_groups = tuple(schedule.ended)
            schedule.ended.clear()
            schedule.receiver.offer(replace(report, ended=ended_groups))

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
                    "the metrics of %s cannot be read; further failures are not told", key
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
