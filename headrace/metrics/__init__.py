"""What is measured: metric names, instruments, and the groups they hang in (job → task → operator).

Duty: one row per metric in `names`, cheap instruments for hot paths; values leave in snapshots, no reporter
sends them anywhere yet.
Neighbours: imports `core` only; tasks and the control plane count with it.
Start reading: `names`. PyFlink's public names are exported from here.
"""

from headrace.metrics.groups import MetricGroup
from headrace.metrics.instruments import Counter, Distribution, Meter, Metric

__all__ = ["MetricGroup", "Metric", "Counter", "Meter", "Distribution"]
