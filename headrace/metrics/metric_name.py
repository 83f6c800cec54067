"""MetricName: one row of a table of metrics, with kind, unit, scope, meaning and combination rule."""

import enum
from dataclasses import dataclass


class MetricKind(enum.Enum):
    """Kinds of instruments that measure a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"


class MetricScope(enum.Enum):
    """Scopes to which metrics belong."""

    CLUSTER = "cluster"
    JOB = "job"
    PROCESS = "process"
    TASK_MANAGER = "TaskManager"
    TASK = "task"
    OPERATOR = "operator"
    COORDINATOR = "coordinator"


class Combination(enum.Enum):
    """Ways of combining the values of several subtasks into the value of their vertex."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    AVERAGE = "average"


@dataclass(frozen=True)
class MetricName:
    """One row of the table. `unit` is empty for plain counts; `combination` is None if values are not combined."""

    name: str
    kind: MetricKind
    unit: str
    scope: MetricScope
    meaning: str
    combination: Combination | None


class MetricTable:
    """Rows in the order of their declaration in a module."""

    def __init__(self) -> None:
        self._rows: list[MetricName] = []

    def row(
        self,
        name: str,
        kind: MetricKind,
        unit: str,
        scope: MetricScope,
        meaning: str,
        combination: Combination | None = None,
    ) -> MetricName:
        """Declare a metric. Counts and rates are summed; every other metric states its combination, if any."""
        if kind in (MetricKind.COUNTER, MetricKind.METER):
            combination = Combination.SUM
        row = MetricName(name, kind, unit, scope, meaning, combination)
        self._rows.append(row)
        return row

    def rows(self) -> tuple[MetricName, ...]:
        """Return the rows declared so far."""
        return tuple(self._rows)
