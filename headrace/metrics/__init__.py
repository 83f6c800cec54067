"""Metrics: names, instruments, and the groups that hold them (job → task → operator).

Duty: defines one row per metric in `names`, and cheap instruments for hot paths; `reporters` read the groups of a
process and send them. Neighbours: imports `core` only; tasks and the control plane use it. Start reading: `names`, then
`reporters.registry`. PyFlink's public names are exported from here.
"""

from headrace.metrics.groups import MetricGroup
from headrace.metrics.instruments import Counter, Distribution, Meter, Metric

__all__ = ["MetricGroup", "Metric", "Counter", "Meter", "Distribution"]
