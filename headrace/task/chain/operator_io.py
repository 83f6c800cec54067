"""OperatorIo: metrics of the input and output of each operator of a chain.

Nothing is counted for them: outputs count rows and know their watermark, and reading a metric reads those. Rows of a
side output are not included. Source: Flink OperatorIOMetricGroup.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Return a metric group for each operator; the head's input rows are those of the task."""
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


def register_fired_timers(group: MetricGroup, operators: Iterable[Operator]) -> None:
    """Register the number of fired timers of a task in its group, if any operator has timers."""
    timed = [operator for operator in operators if isinstance(operator, TimedOperator)]
    if timed:
        _register(
            group,
            names.NUM_FIRED_TIMERS,
            lambda: sum(operator.fired_timer_count for operator in timed),
        )


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
    """Return a watermark. LookupError, which omits the gauge, if there is none yet."""
    if watermark_ms == MIN_TIMESTAMP:
        raise LookupError("there is no watermark yet")
    return watermark_ms
