"""LogReporter: a block of lines per report."""

import logging

import pytest

from headrace.metrics.reporters.log import LOG, LogReporter
from tests.unit.metrics.reporters.reports import (
    FAILED_SPAN,
    SPAN,
    config,
    report,
    task_reading,
    user_reading,
)


def test_metrics_are_listed_by_their_kind_with_whole_names(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOG, "level", LOG.level)
    reporter = LogReporter(config())
    reporter.report(
        report(
            task_reading({"numRecordsOut": 2, "numRecordsIn": 3, "busyTimeMsPerSecond": 7}),
            user_reading(),
        )
    )
    (record,) = caplog.records
    assert record.message.splitlines() == [
        "metrics of tm-1",
        "-- counters --",
        "h.taskmanager.tm-1.orders.Map.0.shop.tenant.acme.seen: 3",
        "h.taskmanager.tm-1.orders.count.0.numRecordsIn: 3",
        "h.taskmanager.tm-1.orders.count.0.numRecordsOut: 2",
        "-- gauges --",
        "h.taskmanager.tm-1.orders.count.0.busyTimeMsPerSecond: 7",
    ]


def test_it_is_shown_whatever_the_level_of_other_loggers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOG, "level", logging.ERROR)
    LogReporter(config()).report_spans([SPAN, FAILED_SPAN])
    assert [record.message for record in caplog.records] == [
        "Checkpoint: 250 ms, checkpointId=7",
        "Checkpoint: 100 ms, checkpointId=8, failed: CHECKPOINT_EXPIRED",
    ]
