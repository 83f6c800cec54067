"""MetricRegistry: what is read, what is left of groups that end, and that nobody waits for a reporter."""

import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.core.clock import ManualClock, SystemClock
from headrace.core.config import Settings
from headrace.metrics.groups import MetricGroup
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.registry import MetricRegistry
from headrace.metrics.scopes import GroupKind
from tests.unit.metrics.reporters.reports import SPAN, task_reading, values_of

TIMEOUT_S = 20.0


class Receiver:
    """A double of ReporterThread, which notes what it is offered."""

    def __init__(self, interval_ms: float = 1.0, *, is_pulled: bool = False) -> None:
        self.interval_ms = interval_ms
        self.is_pulled = is_pulled
        self.offered: list[MetricReport] = []
        self.spans: list[Span] = []
        self.calls: list[str] = []
        self.came = threading.Semaphore(0)

    def start(self, read: Callable[[], MetricReport]) -> None:
        self.calls.append("start")

    def offer(self, report: MetricReport) -> None:
        self.offered.append(report)
        self.came.release()

    def offer_span(self, span: Span) -> None:
        self.spans.append(span)

    def close_soon(self) -> None:
        self.calls.append("close soon")

    def await_end(self, timeout_s: float) -> None:
        self.calls.append("await end")


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def registry(receiver: Receiver) -> Iterator[MetricRegistry]:
    registry = MetricRegistry(Settings(), SystemClock(), [receiver])
    yield registry
    registry.close()


def test_a_reading_has_the_values_of_every_group_with_its_scope() -> None:
    registry = MetricRegistry(Settings(), ManualClock(7))
    registry.add("a", lambda: [task_reading({"numRecordsIn": 1})])
    registry.add("b", lambda: [task_reading({"numRecordsIn": 2}, task_name="other")])
    report = registry.read()
    assert report.timestamp_ms == 7
    assert [group.scope[-2] for group in report.groups] == ["count", "other"]
    assert [values_of([group]) for group in report.groups] == [
        {"numRecordsIn": 1},
        {"numRecordsIn": 2},
    ]


def test_a_group_goes_with_its_owner() -> None:
    registry = MetricRegistry(Settings(), ManualClock())
    registry.add("a", lambda: [task_reading({"numRecordsIn": 1})])
    registry.remove("a")
    registry.remove("a")
    assert registry.read().groups == []


def test_the_next_report_has_the_last_counts_of_a_group_that_ended(
    registry: MetricRegistry, receiver: Receiver
) -> None:
    counted = {"numRecordsIn": 1.0, "numRecordsInPerSecond": 1.0, "isBackPressured": 1.0}
    registry.add("a", lambda: [task_reading(counted)])
    counted["numRecordsIn"] = 12
    registry.remove("a")
    registry.start()
    assert receiver.came.acquire(timeout=TIMEOUT_S)
    assert values_of(receiver.offered[0].ended) == {"numRecordsIn": 12}
    assert receiver.came.acquire(timeout=TIMEOUT_S)
    assert receiver.offered[1].ended == ()


def test_rates_of_users_are_no_last_values_either(
    registry: MetricRegistry, receiver: Receiver
) -> None:
    group = MetricGroup(ManualClock())
    group.meter("orders").mark_event()
    group.counter("seen").inc()
    registry.add("a", lambda: [GroupReading(GroupKind.OPERATOR, {}, list(group.samples()))])
    registry.remove("a")
    registry.start()
    assert receiver.came.acquire(timeout=TIMEOUT_S)
    assert values_of(receiver.offered[0].ended) == {"seen": 1}


def test_each_reporter_hears_of_an_end_whatever_its_interval() -> None:
    fast, slow = Receiver(1.0), Receiver(3_600_000.0)
    registry = MetricRegistry(Settings(), SystemClock(), [fast, slow])
    registry.start()
    registry.add("a", lambda: [task_reading({"numRecordsIn": 1})])
    registry.remove("a")
    for _ in range(3):
        assert fast.came.acquire(timeout=TIMEOUT_S)
    registry.close()
    assert sum(len(each.ended) for each in fast.offered) == 1
    assert [len(each.ended) for each in slow.offered] == [1]


def test_a_reporter_that_reads_for_itself_hears_of_an_end_at_once_and_is_given_nothing_else() -> (
    None
):
    pulled = Receiver(1.0, is_pulled=True)
    registry = MetricRegistry(Settings(), SystemClock(), [pulled])
    registry.start()
    registry.add("a", lambda: [task_reading({"numRecordsIn": 1})])
    registry.remove("a")
    registry.close()
    assert [(each.groups, values_of(each.ended)) for each in pulled.offered] == [
        ((), {"numRecordsIn": 1})
    ]


def test_of_groups_that_ended_nothing_is_kept_where_nobody_is_to_be_told_later() -> None:
    pulled = Receiver(is_pulled=True)
    registry = MetricRegistry(Settings(), SystemClock(), [pulled])
    registry.start()
    for number in range(5):
        registry.add(number, lambda: [task_reading({"numRecordsIn": 1})])
        registry.remove(number)
    assert len(pulled.offered) == 5 and len(registry._ended) == 0
    registry.close()
    assert pulled.calls == ["start", "close soon", "await end"]


def test_the_last_report_is_made_at_the_end_and_then_reporters_are_closed(
    receiver: Receiver,
) -> None:
    receiver.interval_ms = 3_600_000
    registry = MetricRegistry(Settings(), SystemClock(), [receiver])
    registry.add("a", lambda: [task_reading({"numRecordsIn": 5})])
    registry.start()
    registry.close()
    registry.close()
    assert [values_of(each.groups) for each in receiver.offered] == [{"numRecordsIn": 5}]
    assert receiver.calls == ["start", "close soon", "await end"]


def test_a_source_that_fails_is_told_once_and_spoils_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> list[GroupReading]:
        raise OSError("gone")

    registry = MetricRegistry(Settings(), ManualClock())
    registry.add("bad", fail)
    registry.add("good", lambda: [task_reading({"numRecordsIn": 5})])
    for _ in range(3):
        assert values_of(registry.read().groups) == {"numRecordsIn": 5}
    assert [record.message for record in caplog.records] == [
        "the metrics of bad cannot be read; further failures are not logged"
    ]


def test_spans_go_to_every_reporter() -> None:
    receivers = [Receiver(), Receiver()]
    MetricRegistry(Settings(), ManualClock(), receivers).report_span(SPAN)
    assert [each.spans for each in receivers] == [[SPAN], [SPAN]]


def test_without_reporters_nothing_is_read_and_no_thread_is_started() -> None:
    def never() -> list[GroupReading]:
        raise AssertionError("nobody reports")

    registry = MetricRegistry(Settings(), SystemClock())
    before = threading.active_count()
    registry.start()
    registry.add("a", never)
    registry.remove("a")
    registry.close()
    assert not registry.is_read and threading.active_count() <= before
