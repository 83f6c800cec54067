"""PrometheusPushGatewayReporter: pushes metrics to a push gateway, for jobs that end before they are scraped.

Source: Flink PrometheusPushGatewayReporter.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, delete_from_gateway, push_to_gateway
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.core.errors import ConfigurationError
from headrace.core.randomness import system_random
from headrace.metrics.readings import GroupReading, MetricReport
from headrace.metrics.reporters.options import (
    DELETE_ON_SHUTDOWN,
    EXPORT_TIMEOUT,
    FILTER_LABEL_VALUES,
    GROUPING_KEY,
    HOST_URL,
    JOB_NAME,
    RANDOM_JOB_NAME,
)
from headrace.metrics.reporters.prometheus import MetricFamilies
from headrace.metrics.reporters.reporter import MetricReporter, ReporterConfig


class _Pushed(Collector):
    """The families of one report."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


class PrometheusPushGatewayReporter(MetricReporter):
    """Pushes reports; each push replaces the previous one of this process."""

    OPTIONS = (
        HOST_URL, JOB_NAME, RANDOM_JOB_NAME, DELETE_ON_SHUTDOWN, GROUPING_KEY, FILTER_LABEL_VALUES, EXPORT_TIMEOUT,
    )  # fmt: skip

    def __init__(self, config: ReporterConfig) -> None:
        super().__init__(config)
        self._url: Final = config.get_option(HOST_URL)
        if not self._url:
            raise ConfigurationError(
                config.key_of(HOST_URL),
                None,
                "set the URL of the gateway, such as http://host:9091",
            )
        suffix = (
            f"{system_random().getrandbits(64):016x}" if config.get_option(RANDOM_JOB_NAME) else ""
        )
        # A job without a name has no address at the gateway.
        self._job: Final = f"{config.get_option(JOB_NAME)}{suffix}" or "headrace"
        self._grouping_key: Final = config.pairs_of(GROUPING_KEY, ";", "=")
        self._timeout_s: Final = config.get_option(EXPORT_TIMEOUT).total_seconds()
        self._families: Final = MetricFamilies(
            filters_values=config.get_option(FILTER_LABEL_VALUES)
        )

    def report(self, report: MetricReport) -> None:
        readings: Sequence[GroupReading] = (*report.ended, *report.groups)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Pushed(list(self._families.of(readings))))
        push_to_gateway(
            self._url,
            self._job,
            registry,
            grouping_key=self._grouping_key,
            timeout=self._timeout_s,
        )

    def close(self) -> None:
        if self.config.get_option(DELETE_ON_SHUTDOWN):
            delete_from_gateway(
                self._url, self._job, grouping_key=self._grouping_key, timeout=self._timeout_s
            )
