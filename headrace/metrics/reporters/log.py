"""LogReporter: writes metrics to the log, a block per report. Source: Flink Slf4jReporter."""

import logging
from collections.abc import Sequence
from typing import Final

from headrace.metrics.names import kind_of
from headrace.metrics.readings import MetricReport, Span
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig

LOG: Final = logging.getLogger(__name__)


class LogReporter(MetricReporter):
    """Logs metrics; its logger shows INFO even if others do not, because the user has enabled the reporter."""

    def __init__(self, config: ReporterConfig) -> None:
        super().__init__(config)
        if not LOG.isEnabledFor(logging.INFO):
            LOG.setLevel(logging.INFO)

    def report(self, report: MetricReport) -> None:
        by_kind: dict[str, list[str]] = {}
        for group in (*report.groups, *report.ended):
            for sample in group.samples:
                lines = by_kind.setdefault(kind_of(sample).value, [])
                lines.append(f"{self.whole_name(group, sample)}: {sample.value}")
        blocks = [
            f"-- {kind}s --\n" + "\n".join(sorted(lines)) for kind, lines in sorted(by_kind.items())
        ]
        LOG.info("metrics of %s\n%s", self.config.process_name, "\n".join(blocks))

    def report_spans(self, spans: Sequence[Span]) -> None:
        for span in spans:
            facts = ", ".join(f"{name}={value}" for name, value in span.attributes.items())
            failure = f", failed: {span.error}" if span.error else ""
            LOG.info("%s: %d ms, %s%s", span.name, span.end_ms - span.start_ms, facts, failure)
