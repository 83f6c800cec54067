"""ReporterThread: one that hangs, fails or is slow costs its own reports alone."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.metrics.readings import MetricReport
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.reporters.reporter import MetricFilter
from headrace.metrics.reporters.reporter_thread import SPANS_MAX, ReporterThread, ReportView
from tests.unit.metrics.reporters.reports import (
    SPAN,
    NotingReporter,
    names_in,
    process_reading,
    report,
    task_reading,
    values_of,
)

TIMEOUT_S = 20.0
EVERYTHING = ReportView(MetricFilter("includes", "*", "excludes"))


def thread_of(reporter: NotingReporter, view: ReportView = EVERYTHING) -> ReporterThread:
    return ReporterThread(reporter, view, 1.0, SystemClock())


def end(*threads: ReporterThread) -> None:
    for thread in threads:
        thread.close_soon()
    for thread in threads:
        thread.await_end(TIMEOUT_S)


def start(thread: ReporterThread) -> ReporterThread:
    thread.start(lambda: MetricReport(0, ()))
    return thread


class Gate:
    """Something that a reporter waits in, until it is let go."""

    def __init__(self) -> None:
        self.is_in = threading.Event()
        self.may_go = threading.Event()

    def __call__(self) -> None:
        self.is_in.set()
        assert self.may_go.wait(TIMEOUT_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.may_go.set()


def test_a_report_reaches_the_reporter_and_the_end_closes_it() -> None:
    reporter = NotingReporter()
    thread = start(thread_of(reporter))
    thread.offer(report(task_reading({"numRecordsIn": 1})))
    thread.offer_span(SPAN)
    end(thread)
    assert values_of(reporter.reports[0].groups) == {"numRecordsIn": 1}
    assert reporter.spans == [SPAN] and reporter.is_closed


def test_while_a_reporter_hangs_offers_return_and_the_newest_report_waits(gate: Gate) -> None:
    reporter = NotingReporter(act=gate)
    thread = start(thread_of(reporter))
    thread.offer(report(task_reading({"numRecordsIn": 1})))
    assert gate.is_in.wait(TIMEOUT_S)
    for count in range(2, 1_000):
        ended = [task_reading({"ended": count})] if count < 4 else []
        thread.offer(report(task_reading({"numRecordsIn": count}), ended=ended))
        thread.offer_span(SPAN)
    gate.may_go.set()
    end(thread)
    assert [values_of(each.groups) for each in reporter.reports] == [
        {"numRecordsIn": 1},
        {"numRecordsIn": 999},
    ]
    assert [values_of([each]) for each in reporter.reports[1].ended] == [{"ended": 2}, {"ended": 3}]


def test_spans_that_wait_are_bounded(gate: Gate) -> None:
    reporter = NotingReporter(act=gate)
    thread = start(thread_of(reporter))
    thread.offer(report())
    assert gate.is_in.wait(TIMEOUT_S)
    for _ in range(SPANS_MAX + 50):
        thread.offer_span(SPAN)
    gate.may_go.set()
    end(thread)
    assert len(reporter.spans) == SPANS_MAX


def test_a_reporter_that_hangs_holds_up_neither_tasks_nor_other_reporters(gate: Gate) -> None:
    hanging, healthy = NotingReporter("hanging", gate), NotingReporter("healthy")
    came = threading.Semaphore(0)
    healthy.act = came.release
    registry = MetricRegistry(Settings(), SystemClock(), [thread_of(hanging), thread_of(healthy)])
    registry.start()
    assert gate.is_in.wait(TIMEOUT_S)
    # What tasks do: begin, end, tell of a checkpoint.
    for number in range(100):
        registry.add(number, lambda: [task_reading({"numRecordsIn": 1})])
        registry.remove(number)
        registry.report_span(SPAN)
    for _ in range(5):
        assert came.acquire(timeout=TIMEOUT_S)
    registry.close()
    assert sum(len(each.ended) for each in healthy.reports) == 100
    assert healthy.is_closed and not hanging.is_closed and hanging.reports == []


def test_a_hang_and_an_end_without_it_are_told_once(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    thread = start(thread_of(NotingReporter("stuck", gate)))
    thread.offer(report())
    assert gate.is_in.wait(TIMEOUT_S)
    for _ in range(5):
        thread.offer(report())
    thread.close_soon()
    thread.await_end(0.01)
    busy, left = (record.message for record in caplog.records)
    assert busy.startswith("metric reporter 'stuck' has been busy with one report for 0 s")
    assert left.startswith("metric reporter 'stuck' does not end")


def failing(*errors: Callable[[], BaseException]) -> tuple[NotingReporter, threading.Semaphore]:
    """A reporter that raises each of the errors in turn, and then nothing more."""
    done = threading.Semaphore(0)
    left = list(errors)

    def act() -> None:
        done.release()
        if left:
            raise left.pop(0)()

    return NotingReporter("failing", act), done


def test_failures_are_told_once_for_each_cause_and_the_reporter_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter, done = failing(
        *(lambda: OSError("no route"), lambda: OSError("no host"), lambda: ValueError("odd"))
    )
    thread = start(thread_of(reporter))
    for _ in range(4):
        thread.offer(report(task_reading({"numRecordsIn": 1})))
        assert done.acquire(timeout=TIMEOUT_S)
    end(thread)
    assert [record.message for record in caplog.records] == [
        "metric reporter 'failing' failed: OSError: no route (logged once; the job continues)",
        "metric reporter 'failing' failed: ValueError: odd (logged once; the job continues)",
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert len(reporter.reports) == 1


def test_even_an_exit_in_a_reporter_is_a_failure_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reporter, done = failing(lambda: SystemExit(3))
    thread = start(thread_of(reporter))
    for _ in range(2):
        thread.offer(report())
        assert done.acquire(timeout=TIMEOUT_S)
    end(thread)
    assert "SystemExit" in caplog.text and reporter.is_closed


def test_spans_are_sent_although_the_report_failed() -> None:
    reporter, done = failing(lambda: OSError("no"))
    thread = thread_of(reporter)
    thread.offer(report())
    thread.offer_span(SPAN)
    start(thread)
    assert done.acquire(timeout=TIMEOUT_S)
    end(thread)
    assert reporter.spans == [SPAN]


def test_one_that_cannot_open_tries_again_before_the_next_report() -> None:
    class Closed(NotingReporter):
        attempts = 0

        def open(self, read: Callable[[], MetricReport]) -> None:
            self.attempts += 1
            if self.attempts == 1:
                raise OSError("the port is taken")

    reporter = Closed()
    thread = start(thread_of(reporter))
    while not reporter.attempts:
        thread.offer(report())
    thread.offer(report(task_reading({"numRecordsIn": 1})))
    end(thread)
    assert reporter.attempts == 2 and values_of(reporter.reports[-1].groups) == {"numRecordsIn": 1}


def test_a_reporter_sees_its_part_with_its_variables() -> None:
    view = ReportView(
        MetricFilter("includes", "taskmanager.job.task:numRecords*", "excludes"),
        frozenset({"host"}),
        {"region": "eu"},
    )
    found = view.of(
        report(
            process_reading({"Status.JVM.Threads.Count": 3}),
            task_reading({"numRecordsIn": 1, "busyTimeMsPerSecond": 2}),
        )
    )
    assert names_in(found) == ["numRecordsIn"]
    (group,) = found.groups
    assert "host" not in group.variables
    assert (group.variables["region"], group.variables["task_name"]) == ("eu", "count")
