"""metrics.md: every metric of the runtime, by whose it is, and whether something measures it."""

import re
from typing import Final

from headrace.core.clock import SystemClock
from headrace.metrics import names
from headrace.metrics.names import MetricName, MetricScope
from headrace.task.metrics import TaskTimes
from tests.architecture.floor_plan import source_files
from tools.pages.markdown import table

_INTRODUCTION: Final = """\
# Metrics

The table of `headrace/metrics/names.py`. Names and meanings are Flink's; a row whose last column says
"not yet" keeps its name for what will measure it. Metrics that user functions register come beside these,
as `<operator>.<metric>`.
"""

_TITLES: Final = {
    MetricScope.TASK: "Of a task (one subtask of a vertex)",
    MetricScope.OPERATOR: "Of an operator",
    MetricScope.TASK_MANAGER: "Of a TaskManager",
    MetricScope.JOB: "Of a job",
    MetricScope.JOB_MANAGER: "Of the JobManager",
}


def metrics_page() -> str:
    """One table per scope."""
    code = _code_outside_the_table()
    lines = [_INTRODUCTION]
    for scope, title in _TITLES.items():
        rows = [
            (
                f"`{metric.name}`",
                metric.kind.value,
                metric.unit,
                metric.meaning,
                "yes" if _is_measured(constant, metric, code) else "not yet",
            )
            for constant, metric in _constants()
            if metric.scope is scope
        ]
        headings = ("name", "kind", "unit", "meaning", "measured")
        lines += [f"## {title}", "", *table(headings, rows), ""]
    return "\n".join(lines)


def _constants() -> list[tuple[str, MetricName]]:
    """The rows of the table with the names of their constants."""
    return [(name, value) for name, value in vars(names).items() if isinstance(value, MetricName)]


def _code_outside_the_table() -> str:
    return "\n".join(
        file.read_text(encoding="utf-8") for file in source_files() if file.parent.name != "metrics"
    )


def _is_measured(constant: str, metric: MetricName, code: str) -> bool:
    """Whether code names the metric: by its constant, as text, or among the names that a task puts together."""
    if metric.name in TaskTimes(SystemClock()).snapshot():
        return True
    return re.search(rf'\b{constant}\b|"{re.escape(metric.name)}"', code) is not None
