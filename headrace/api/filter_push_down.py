"""Filters right behind a source are told to it, so that it need not read what they would drop.

Source: Flink PushFilterIntoTableSourceScanRule.
"""

from collections import defaultdict
from collections.abc import Sequence

from headrace.api.transformations import OperatorTransformation, upstreams_of
from headrace.core.operator_spec import OperatorSpec
from headrace.functions.column_conditions import ColumnCondition, Or
from headrace.functions.specs import FilterExpressionSpec, SourceSpec


def pushed_down(operators: Sequence[OperatorTransformation]) -> dict[int, OperatorSpec]:
    """Return new specs, by id of their operator, of the sources that nobody but filters reads.

    The filters stay: what a source leaves out is up to it. Watermarks of rows that it leaves out do not come, so event
    time may be later to go on, and never is earlier.
    """
    readers: dict[int, list[OperatorTransformation]] = defaultdict(list)
    sources: dict[int, SourceSpec] = {}
    for operator in operators:
        if isinstance(operator.spec, SourceSpec):
            sources[operator.transformation_id] = operator.spec
        for one in operator.needed_inputs:
            for upstream in upstreams_of(one):
                readers[upstream.operator.transformation_id].append(operator)
    changed: dict[int, OperatorSpec] = {}
    for number, spec in sources.items():
        condition = _condition_of(readers[number])
        if condition is not None:
            source = spec.source.with_condition(condition)
            if source is not spec.source:
                changed[number] = SourceSpec(source, spec.strategy)
    return changed


def _condition_of(readers: Sequence[OperatorTransformation]) -> ColumnCondition | None:
    """Return what must hold of a row for one of the readers to keep it, or None where that is not known."""
    conditions: list[ColumnCondition] = []
    for one in readers:
        if not isinstance(one.spec, FilterExpressionSpec) or one.spec.implied is None:
            return None
        conditions.append(one.spec.implied)
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))
