"""ReporterThread: the thread of one reporter, with a queue of a single report.

The waiting data is bounded: one report, the groups that ended since the last one, and spans. So a reporter that hangs
loses only its own reports, and no other thread waits for it. A failure is logged once for each cause.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headrace.core.clock import Clock
from headrace.core.redaction import shown_uri
from headrace.core.threads import Thread, start_thread
from headrace.metrics.readings import ENDED_GROUPS_MAX, GroupReading, MetricReport, Span
from headrace.metrics.reporters.reporter import MetricFilter, MetricReporter

_LOG = logging.getLogger(__name__)

SPANS_MAX: Final = 1_000
"""Maximum number of waiting spans; above it the oldest are dropped."""
_CAUSES_MAX: Final = 20


@dataclass(frozen=True)
class ReportView:
    """The part of a report, and the variables, that one reporter receives."""

    filter: MetricFilter
    excluded_variables: frozenset[str] = frozenset()
    additional_variables: Mapping[str, str] | None = None

    def of(self, report: MetricReport) -> MetricReport:
        """Return the part of `report`, without groups that become empty."""
        return replace(
            report,
            groups=[each for group in report.groups if (each := self._of_group(group)).samples],
            ended=[each for group in report.ended if (each := self._of_group(group)).samples],
        )

    def _of_group(self, reading: GroupReading) -> GroupReading:
        variables = {
            name: value
            for name, value in reading.variables.items()
            if name not in self.excluded_variables
        }
        return replace(
            reading,
            variables=variables | dict(self.additional_variables or {}),
            samples=[sample for sample in reading.samples if self.filter.keeps(reading, sample)],
        )


class ReporterThread:
    """Runs one reporter, and queues data of the registry for it. Any thread may call it."""

    def __init__(
        self, reporter: MetricReporter, view: ReportView, interval_ms: float, clock: Clock
    ) -> None:
        self.name: Final = reporter.config.name
        self.interval_ms: Final = interval_ms
        self.is_pulled: Final = reporter.is_pulled
        self._reporter: Final = reporter
        self._view: Final = view
        self._clock: Final = clock
        # Guards the waiting data, which other threads add and the reporter's thread takes.
        self._lock: Final = threading.Lock()
        self._waiting: MetricReport | None = None
        self._spans: Final = deque[Span](maxlen=SPANS_MAX)
        self._wake: Final = threading.Event()
        self._is_closing = False
        self._busy_since_ms: float | None = None
        self._is_open = False
        self._logged_causes: Final[set[str]] = set()
        self._thread: Thread | None = None
        self._read: Callable[[], MetricReport] = lambda: MetricReport(0, ())

    def start(self, read: Callable[[], MetricReport]) -> None:
        """Start the thread, which opens the reporter first."""
        self._read = lambda: self._view.of(read())
        self._wake.set()
        self._thread = start_thread(f"headrace-reporter-{self.name}", self._run)

    def offer(self, report: MetricReport) -> None:
        """Queue a report, which replaces a waiting one but keeps its ended groups."""
        with self._lock:
            earlier, ended = self._waiting, report.ended
            if earlier is not None:
                ended = [*earlier.ended, *ended][-ENDED_GROUPS_MAX:]
            self._waiting = replace(report, ended=ended)
        self._wake.set()
        since_ms = self._busy_since_ms
        if earlier is not None and since_ms is not None:
            busy_s = (self._clock.monotonic_ms() - since_ms) / 1000
            self._tell(
                "busy", f"has been busy with one report for {busy_s:.0f} s: other reports are lost"
            )

    def offer_span(self, span: Span) -> None:
        """Queue a span."""
        self._spans.append(span)
        self._wake.set()

    def close_soon(self) -> None:
        """Send the waiting data, then end."""
        self._is_closing = True
        self._wake.set()

    def await_end(self, timeout_s: float) -> None:
        """Wait for the thread; if it does not end in time, it is abandoned."""
        if self._thread is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._tell("end", "does not end: the process ends without it")

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            is_last = self._is_closing
            self._busy_since_ms = self._clock.monotonic_ms()
            self._guarded(self._work)
            if is_last:
                if self._is_open:
                    self._guarded(self._reporter.close)
                return
            self._busy_since_ms = None

    def _work(self) -> None:
        if not self._is_open:
            self._reporter.open(self._read)
            self._is_open = True
        with self._lock:
            report, self._waiting = self._waiting, None
        spans: list[Span] = []
        while self._spans:
            spans.append(self._spans.popleft())
        try:
            if report is not None:
                self._reporter.report(self._view.of(report))
        finally:
            if spans:
                self._reporter.report_spans(spans)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            causes = [type(error).__name__]
            cause = error.__cause__
            while cause is not None and len(causes) < _CAUSES_MAX:
                causes.append(type(cause).__name__)
                cause = cause.__cause__
            self._tell(" < ".join(causes), f"failed: {type(error).__name__}: {error}")

    def _tell(self, cause: str, text: str) -> None:
        if cause in self._logged_causes or len(self._logged_causes) >= _CAUSES_MAX:
            return
        self._logged_causes.add(cause)
        _LOG.warning(
            "metric reporter '%s' %s (logged once; the job continues)", self.name, shown_uri(text)
        )
