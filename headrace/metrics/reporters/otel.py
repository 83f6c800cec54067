"""OpenTelemetryReporter: sends metrics, and a trace for each checkpoint and each recovery, to a collector by OTLP/HTTP.

A metric's name is its logical scope and name, such as `taskmanager.job.task.numRecordsIn`; variables are attributes.
Counts are cumulative sums; everything else is a gauge.
Source: Flink OpenTelemetryMetricReporter, OpenTelemetryTraceReporter.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from headrace.metrics.metric_name import MetricKind
from headrace.metrics.names import kind_of
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters.options import (
    ENDPOINT,
    EXPORT_TIMEOUT,
    SERVICE_NAME,
    SERVICE_VERSION,
)
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig, ReportingError

_NS_PER_MS: Final = 1_000_000
_LIBRARY: Final = "headrace"
_EXPORTER_LOG: Final = "opentelemetry.exporter.otlp.proto.http"


class _EndedSpans(SpanProcessor):
    """Collects spans as they end, to be sent together."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class OpenTelemetryReporter(MetricReporter):
    """Sends metrics and spans. `metrics` and `traces` are the exporters, by default those of OTLP over HTTP."""

    OPTIONS = (ENDPOINT, EXPORT_TIMEOUT, SERVICE_NAME, SERVICE_VERSION)

    def __init__(
        self,
        config: ReporterConfig,
        metrics: MetricExporter | None = None,
        traces: SpanExporter | None = None,
    ) -> None:
        super().__init__(config)
        endpoint = config.get_option(ENDPOINT).rstrip("/")
        timeout_s = config.get_option(EXPORT_TIMEOUT).total_seconds()
        self._metrics: Final = metrics or OTLPMetricExporter(
            endpoint=f"{endpoint}/v1/metrics", timeout=timeout_s
        )
        self._traces: Final = traces or OTLPSpanExporter(
            endpoint=f"{endpoint}/v1/traces", timeout=timeout_s
        )
        # The exporters log every failed attempt; the reporter's thread logs failures once.
        logging.getLogger(_EXPORTER_LOG).setLevel(logging.CRITICAL)
        version = config.get_option(SERVICE_VERSION)
        self._resource: Final = Resource(
            {
                "service.name": config.get_option(SERVICE_NAME),
                "service.instance.id": config.process_name,
                **({"service.version": version} if version else {}),
            }
        )
        self._ended: Final = _EndedSpans()
        provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer: Final = provider.get_tracer(_LIBRARY)
        self._start_ns: int | None = None

    def report(self, report: MetricReport) -> None:
        time_ns = report.timestamp_ms * _NS_PER_MS
        if self._start_ns is None:
            self._start_ns = time_ns
        metrics = list(self._metrics_of((*report.ended, *report.groups), self._start_ns, time_ns))
        scope = ScopeMetrics(InstrumentationScope(_LIBRARY), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        if metrics and self._metrics.export(data) is not MetricExportResult.SUCCESS:
            raise ReportingError("the collector did not accept the metrics")

    def report_spans(self, spans: Sequence[Span]) -> None:
        for span in spans:
            started = self._tracer.start_span(
                span.name,
                start_time=span.start_ms * _NS_PER_MS,
                attributes=dict(span.attributes),
            )
            if span.error:
                started.set_status(Status(StatusCode.ERROR, span.error))
            started.end(end_time=span.end_ms * _NS_PER_MS)
        ended = list(self._ended.spans)
        self._ended.spans.clear()
        if self._traces.export(ended) is not SpanExportResult.SUCCESS:
            raise ReportingError("the collector did not accept the traces")

    def close(self) -> None:
        self._metrics.shutdown()
        self._traces.shutdown()

    def _metrics_of(
        self, readings: Iterable[GroupReading], start_ns: int, time_ns: int
    ) -> Iterable[Metric]:
        points: dict[tuple[str, bool], list[NumberDataPoint]] = {}
        for reading in readings:
            for sample in reading.samples:
                name = ".".join((reading.kind.value, *sample.keys, sample.name))
                is_count = kind_of(sample) is MetricKind.COUNTER
                attributes: Mapping[str, str] = {**reading.variables, **sample.variables}
                points.setdefault((name, is_count), []).append(
                    NumberDataPoint(attributes, start_ns, time_ns, sample.value)
                )
        for (name, is_count), found in points.items():
            # A counter may go down: it is not called monotonic.
            data = (
                Sum(found, AggregationTemporality.CUMULATIVE, is_monotonic=False)
                if is_count
                else Gauge(found)
            )
            yield Metric(name, "", "", data)
