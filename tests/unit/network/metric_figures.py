"""Figures of metric groups, as a test reads them."""

from headrace.core.clock import ManualClock
from headrace.metrics import MetricGroup
from headrace.metrics.metric_name import MetricName


class Figures:
    """Reads one group by rows of the table."""

    def __init__(self) -> None:
        self.group = MetricGroup(ManualClock())

    def __getitem__(self, row: MetricName) -> float:
        return self.group.own_snapshot()[row.name]
