"""OperatorIo: what goes into each operator of a chain and what comes out of it, as metrics beside the user's own.

Nothing is counted for it: outputs count rows and know their watermark, and who reads the metrics looks at them. Rows of
a side output are not among them. Source: Flink OperatorIOMetricGroup.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.ids import OperatorId
from headrace.graph.job_graph import JobVertex
from headrace.metrics import names
from headrace.metrics.groups import MetricGroup
from headrace.metrics.metric_name import MetricName
from headrace.operators.runtime.operator import Operator, SourceOperator
from headrace.operators.runtime.timed_operator import TimedOperator
from headrace.task.chain.outputs import OperatorOutput
from headrace.task.metrics import TaskCounters


def operator_io_groups(
    vertex: JobVertex,
    operators: Mapping[OperatorId, Operator],
    outputs: Mapping[OperatorId, OperatorOutput],
    counters: TaskCounters,
    clock: Clock,
) -> dict[OperatorId, MetricGroup]:
    """Return a group of its own for each operator; the rows that its head takes are those of the task."""
    groups: dict[OperatorId, MetricGroup] = {}
    for position, described in enumerate(vertex.operators):
        operator_id = described.operator_id
        group = groups[operator_id] = MetricGroup(clock)
        operator, output = operators[operator_id], outputs[operator_id]
        _register(group, names.NUM_RECORDS_OUT, lambda output=output: output.records_out)
        edges = [edge for edge in vertex.chain_edges if edge.target_id == operator_id]
        if position == 0:
            _register(group, names.NUM_RECORDS_IN, lambda: counters.records_in)
        elif all(edge.side_output_tag is None for edge in edges):
            sources = [outputs[edge.source_id] for edge in edges]
            _register(group, names.NUM_RECORDS_IN, lambda sources=sources: _rows_of(sources))
        group.gauge(names.CURRENT_OUTPUT_WATERMARK, lambda output=output: _known(output.watermark))
        if isinstance(operator, TimedOperator):
            _register(
                group, names.NUM_FIRED_TIMERS, lambda operator=operator: operator.fired_timer_count
            )
        if not isinstance(operator, SourceOperator):
            group.gauge(
                names.CURRENT_INPUT_WATERMARK,
                lambda operator=operator: _known(operator.current_watermark),
            )
    return groups


_RATES: Final = {
    names.NUM_RECORDS_IN: names.NUM_RECORDS_IN_PER_SECOND,
    names.NUM_RECORDS_OUT: names.NUM_RECORDS_OUT_PER_SECOND,
    names.NUM_FIRED_TIMERS: names.NUM_FIRED_TIMERS_PER_SECOND,
}


def _register(group: MetricGroup, name: MetricName, read: Callable[[], int]) -> None:
    group.gauge(name, read)
    group.rate(_RATES[name], read)


def _rows_of(outputs: Sequence[OperatorOutput]) -> int:
    return sum(output.records_out for output in outputs)


def _known(watermark_ms: int) -> int:
    """Return a watermark; LookupError, which leaves the gauge out, before there is one."""
    if watermark_ms == MIN_TIMESTAMP:
        raise LookupError("there is no watermark yet")
    return watermark_ms
