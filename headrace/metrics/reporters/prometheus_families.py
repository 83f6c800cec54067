"""Families of Prometheus: a report as gauges and summaries under the names of Flink's reporter.

    flink_taskmanager_job_task_numRecordsIn{job_name="orders",task_name="count",subtask_index="0"} 17
    flink_taskmanager_job_task_mailboxLatencyMs{task_name="count",subtask_index="0",quantile="0.99"} 4

A histogram is a summary of its count and quantiles; its extremes, mean and deviation, which a summary has no place for,
are gauges. All else is a gauge, as there: a counter would have to be called `…_total`.
Source: Flink AbstractPrometheusReporter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from headrace.metrics.groups import MetricSample
from headrace.metrics.instruments import QUANTILES
from headrace.metrics.metric_name import MetricKind
from headrace.metrics.readings import GroupReading

_PREFIX: Final = "flink"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_SUFFIXES: Final = frozenset({"count", "sum"})
_Key = tuple[str, tuple[tuple[str, str], ...]]


def family_name(reading: GroupReading, sample: MetricSample) -> str:
    """Return the name of a metric, which is the same in all groups of a kind."""
    parts = (_PREFIX, *reading.kind.value.split("."), *sample.keys, sample.name)
    return _NOT_IN_A_NAME.sub("_", "_".join(parts))


class MetricFamilies:
    """Turns readings into families. `filters_values`: nothing but letters, digits, `:` and `_` in values of labels."""

    def __init__(self, *, filters_values: bool) -> None:
        self._filters_values: Final = filters_values

    def of(self, readings: Iterable[GroupReading]) -> Iterator[Metric]:
        """Yield each family once; of two samples with the same labels, which would be refused, the later one counts."""
        families: dict[str, Metric] = {}
        values: dict[str, dict[_Key, float]] = {}
        for reading in readings:
            labels = self._labels(reading.variables)
            for sample in reading.samples:
                own = labels | self._labels(sample.variables) if sample.variables else labels
                full_name = family_name(reading, sample)
                name, suffix, quantile = _part_of_summary(full_name, sample.kind)
                if name not in families:
                    kind = SummaryMetricFamily if suffix or quantile else GaugeMetricFamily
                    families[name] = kind(name, f"{name} of Headrace")
                if quantile:
                    own = own | {"quantile": quantile}
                key = (name + suffix, tuple(sorted(own.items())))
                values.setdefault(name, {})[key] = sample.value
        for name, family in families.items():
            for (full_name, pairs), value in values[name].items():
                family.add_sample(full_name, dict(pairs), value)
            yield family

    def _labels(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {_label_name(name): self._label_value(value) for name, value in variables.items()}

    def _label_value(self, value: str) -> str:
        return _NOT_IN_A_NAME.sub("_", value) if self._filters_values else value


def _label_name(name: str) -> str:
    cleaned = _NOT_IN_A_LABEL.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def _part_of_summary(full_name: str, kind: MetricKind) -> tuple[str, str, str]:
    """Return family, suffix and quantile of a sample; both are empty where it is a gauge."""
    if kind is MetricKind.HISTOGRAM:
        name, _, part = full_name.rpartition("_")
        if part in QUANTILES:
            return name, "", str(QUANTILES[part])
        if part in _SUFFIXES:
            return name, f"_{part}", ""
    return full_name, "", ""
