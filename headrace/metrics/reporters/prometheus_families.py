"""Families of Prometheus: a report as gauges under the names of Flink's reporter.

    flink_taskmanager_job_task_numRecordsIn{job_name="orders",task_name="count",subtask_index="0"} 17

Everything is a gauge, as there: a counter would have to be called `…_total`. Source: Flink AbstractPrometheusReporter.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from headrace.metrics.groups import MetricSample
from headrace.metrics.readings import GroupReading

_PREFIX: Final = "flink"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


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
        families: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for reading in readings:
            labels = self._labels(reading.variables)
            for sample in reading.samples:
                own = labels | self._labels(sample.variables) if sample.variables else labels
                values = families.setdefault(family_name(reading, sample), {})
                values[tuple(sorted(own.items()))] = sample.value
        for name, values in families.items():
            family = GaugeMetricFamily(name, f"{name} of Headrace")
            for pairs, value in values.items():
                family.add_sample(name, dict(pairs), value)
            yield family

    def _labels(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {_label_name(name): self._label_value(value) for name, value in variables.items()}

    def _label_value(self, value: str) -> str:
        return _NOT_IN_A_NAME.sub("_", value) if self._filters_values else value


def _label_name(name: str) -> str:
    cleaned = _NOT_IN_A_LABEL.sub("_", name)
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned
