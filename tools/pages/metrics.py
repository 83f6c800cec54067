"""metrics.md: every metric of the runtime, by whose it is, how subtasks combine, and whether it is measured."""

from typing import Final

from headrace.metrics import names
from headrace.metrics.metric_name import MetricName, MetricScope
from headrace.metrics.names import (
    METRIC_NAMES,
    NUM_BYTES_SEND,
    NUM_LATE_RECORDS_DIVERTED,
    NUM_RECORDS_AHEAD_OF_TIME,
    PENDING_BYTES,
    PENDING_RECORDS,
)
from headrace.metrics.network_names import NETWORK_NAMES
from tools.pages.markdown import table
from tools.pages.measured_metrics import MeasuredMetrics, measured_metrics

_INTRODUCTION: Final = """\
# Metrics

The tables of `headrace/metrics/names.py` and `headrace/metrics/cluster_names.py`. Names and meanings are Flink's, but
for `Status.Headrace.*`, which are ours, and `Status.JVM.*`, which tell of the Python process.

"combined" says how the values of a vertex's subtasks become the vertex's own. "measured" is asked of a job while it
runs, when this page is made, with debloating, a latency target, latency markers and detailed metrics on: "yes" is what
clients can read of a job's details, under the plain name for a task and as `<operator>.<metric>` for an operator;
"where asked for" is there too, in jobs with the side output, the option or the connector that it needs; "of its own"
belongs to a process, the cluster, a job or a coordinator and not to a task. [Reporters](../metrics_reporters.md)
send all of them. Metrics that user functions register come beside these, as `<operator>.<metric>`.
"""

_NETWORK_NAMES: Final = """\
### Flink's names of the network's metrics

REST answers them, and reporters send them, beside the plain names. With `taskmanager.network.detailed-metrics` the
queues of input 0 stand below `Shuffle.Netty.Input.0` too, those of output 0 below `Shuffle.Netty.Output.0`.
"""

_TITLES: Final = {
    MetricScope.TASK: "Of a task (one subtask of a vertex)",
    MetricScope.OPERATOR: "Of an operator",
    MetricScope.TASK_MANAGER: "Of a TaskManager, below `Status.Shuffle.Netty`",
    MetricScope.PROCESS: "Of a process: a TaskManager or the driver",
    MetricScope.JOB: "Of a job",
    MetricScope.COORDINATOR: "Of the coordinator of an operator, below `coordinator`",
    MetricScope.CLUSTER: "Of the cluster",
}

_WHERE_ASKED_FOR: Final = (
    NUM_LATE_RECORDS_DIVERTED,
    NUM_RECORDS_AHEAD_OF_TIME,
    NUM_BYTES_SEND,
    PENDING_BYTES,
    PENDING_RECORDS,
    names.WATERMARK_ALIGNMENT_DRIFT,
    names.SPLIT_CURRENT_WATERMARK,
    names.SPLIT_ACTIVE_TIME,
    names.SPLIT_PAUSED_TIME,
    names.SPLIT_ACCUMULATED_ACTIVE_TIME,
    names.SPLIT_ACCUMULATED_IDLE_TIME,
    names.SPLIT_ACCUMULATED_PAUSED_TIME,
)
"""These need a side output for late records, a limit for how far event time runs ahead, or a connector that knows."""


def metrics_page() -> str:
    """One table per scope."""
    measured = measured_metrics()
    lines = [_INTRODUCTION]
    for scope, title in _TITLES.items():
        rows = [
            (
                f"`{metric.name}`",
                metric.kind.value,
                metric.unit,
                metric.meaning,
                "" if metric.combination is None else metric.combination.value,
                _where(metric, measured),
            )
            for metric in METRIC_NAMES
            if metric.scope is scope
        ]
        headings = ("name", "kind", "unit", "meaning", "combined", "measured")
        lines += [f"## {title}", "", *table(headings, rows), ""]
        if scope is MetricScope.TASK:
            pairs = [(f"`{named}`", f"`{name}`") for name, named in NETWORK_NAMES.items()]
            lines += [_NETWORK_NAMES, *table(("Flink's name", "the same as"), pairs), ""]
    return "\n".join(lines)


def _where(metric: MetricName, measured: MeasuredMetrics) -> str:
    if metric in _WHERE_ASKED_FOR:
        return "where asked for"
    if metric.name in measured.reported:
        return "yes"
    assert metric.name in measured.by_reporters, f"nobody measures {metric.name}"
    return "of its own"
