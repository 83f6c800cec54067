"""OpenTelemetryReporter: metrics and traces as a collector gets them."""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace.metrics.readings import MetricReport
from headrace.metrics.reporters.otel import OpenTelemetryReporter
from headrace.metrics.reporters.reporter import ReportingError
from tests.unit.metrics.reporters.local_server import LocalServer, local_server
from tests.unit.metrics.reporters.reports import (
    FAILED_SPAN,
    SPAN,
    config,
    report,
    task_reading,
    user_reading,
)


class NotingExporter(MetricExporter):
    def __init__(self) -> None:
        super().__init__()
        self.exported: list[MetricsData] = []
        self.result = MetricExportResult.SUCCESS

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: Any
    ) -> MetricExportResult:
        self.exported.append(metrics_data)
        return self.result

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
        self.exported.clear()


@pytest.fixture
def metrics() -> NotingExporter:
    return NotingExporter()


@pytest.fixture
def traces() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def reporter(metrics: NotingExporter, traces: InMemorySpanExporter) -> OpenTelemetryReporter:
    values = {"service.name": "orders", "service.version": "3"}
    return OpenTelemetryReporter(config(values), metrics, traces)


def exported(metrics: NotingExporter, reports: Sequence[MetricReport]) -> dict[str, Any]:
    """The last exported data as JSON: metrics by name."""
    (resource,) = json.loads(metrics.exported[-1].to_json())["resource_metrics"]
    (scope,) = resource["scope_metrics"]
    return {each["name"]: each["data"] for each in scope["metrics"]}


def test_a_metric_is_called_by_its_logical_scope_and_variables_are_attributes(
    reporter: OpenTelemetryReporter, metrics: NotingExporter
) -> None:
    sent = report(task_reading({"numRecordsIn": 3, "busyTimeMsPerSecond": 7}), user_reading())
    reporter.report(sent)
    found = exported(metrics, [sent])
    assert list(found) == [
        "taskmanager.job.task.numRecordsIn",
        "taskmanager.job.task.busyTimeMsPerSecond",
        "taskmanager.job.task.operator.shop.tenant.seen",
    ]
    count, share, users = found.values()
    assert count["aggregation_temporality"] == 2 and "aggregation_temporality" not in share
    (point,) = users["data_points"]
    assert (point["value"], point["attributes"]["tenant"]) == (3, "acme")
    assert point["time_unix_nano"] == 5_000_000_000


def test_the_resource_names_the_service_and_the_process(
    reporter: OpenTelemetryReporter, metrics: NotingExporter
) -> None:
    reporter.report(report(task_reading({"numRecordsIn": 3})))
    attributes = metrics.exported[0].resource_metrics[0].resource.attributes
    assert attributes["service.name"] == "orders"
    assert attributes["service.version"] == "3"
    assert attributes["service.instance.id"] == "tm-1"


def test_a_checkpoint_is_a_trace_of_its_own_with_its_times(
    reporter: OpenTelemetryReporter, traces: InMemorySpanExporter
) -> None:
    reporter.report_spans([SPAN, FAILED_SPAN])
    good, bad = traces.get_finished_spans()
    assert (good.name, good.start_time, good.end_time) == (
        "Checkpoint",
        1_000_000_000,
        1_250_000_000,
    )
    assert dict(good.attributes or {}) == {"checkpointId": 7}
    assert good.status.is_unset and good.parent is None
    assert bad.status.description == "CHECKPOINT_EXPIRED"
    assert good.context.trace_id != bad.context.trace_id


def test_spans_are_sent_once(reporter: OpenTelemetryReporter, traces: InMemorySpanExporter) -> None:
    reporter.report_spans([SPAN])
    reporter.report_spans([FAILED_SPAN])
    assert len(traces.get_finished_spans()) == 2


def test_a_collector_that_refuses_is_an_error(
    reporter: OpenTelemetryReporter, metrics: NotingExporter, traces: InMemorySpanExporter
) -> None:
    metrics.result = MetricExportResult.FAILURE
    with pytest.raises(ReportingError, match="did not accept the metrics"):
        reporter.report(report(task_reading({"numRecordsIn": 3})))
    traces.shutdown()
    with pytest.raises(ReportingError, match="did not accept the traces"):
        reporter.report_spans([SPAN])


@pytest.fixture
def collector() -> Iterator[LocalServer]:
    with local_server() as server:
        yield server


def test_by_default_both_go_to_a_collector_as_otlp_over_http(collector: LocalServer) -> None:
    reporter = OpenTelemetryReporter(config({"exporter.endpoint": f"{collector.url}/"}))
    reporter.report(report(task_reading({"numRecordsIn": 3})))
    reporter.report_spans([SPAN])
    reporter.close()
    sent = {request.path: request.body for request in collector.requests}
    metrics = ExportMetricsServiceRequest.FromString(sent["/v1/metrics"])
    (metric,) = metrics.resource_metrics[0].scope_metrics[0].metrics
    assert metric.sum.data_points[0].as_double == 3 or metric.sum.data_points[0].as_int == 3
    traces = ExportTraceServiceRequest.FromString(sent["/v1/traces"])
    (span,) = traces.resource_spans[0].scope_spans[0].spans
    assert span.name == "Checkpoint"


def test_what_exporters_log_of_each_attempt_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = {"exporter.endpoint": "http://127.0.0.1:9", "exporter.timeout": "50 ms"}
    reporter = OpenTelemetryReporter(config(values))
    with caplog.at_level(logging.INFO), pytest.raises(ReportingError):
        reporter.report(report(task_reading({"numRecordsIn": 3})))
    assert caplog.records == []
