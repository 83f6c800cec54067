"""PyFlink's module path for user metrics: re-exports only."""

from headrace.metrics.groups import MetricGroup
from headrace.metrics.instruments import Counter, Distribution, Meter, Metric

__all__ = ["MetricGroup", "Metric", "Counter", "Meter", "Distribution"]
