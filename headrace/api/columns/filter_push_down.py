"""Pushes filters right behind a source down to it, so that it need not read rows that they would drop.

Source: Flink PushFilterIntoTableSourceScanRule.

Also derives the comparisons of columns with values that hold for every row for which an expression is true.

Expressions carry them along, and a source may skip rows by them. None where nothing is known.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from headrace.api.transformations import OperatorTransformation, upstreams_of
from headrace.core.operator_spec import OperatorSpec
from headrace.functions.column_conditions import VALUE_TYPES, And, ColumnCondition, Comparison, Or
from headrace.functions.specs.operator_specs import FilterExpressionSpec, SourceSpec


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


def implied_by_comparison(column: str | None, operator: str, value: Any) -> ColumnCondition | None:
    """Return the comparison of a column (None: of something else) with a value, which may be no plain one."""
    if column is None or not isinstance(value, VALUE_TYPES):
        return None
    return Comparison(column, operator, value)


def implied_by_membership(column: str | None, values: Collection[Any]) -> ColumnCondition | None:
    """Return that a column is equal to one of `values`, among which there is no None."""
    equal = [implied_by_comparison(column, "==", value) for value in values]
    known = tuple(one for one in equal if one is not None)
    return Or(known) if len(known) == len(equal) else None


def implied_by_both(
    one: ColumnCondition | None, other: ColumnCondition | None
) -> ColumnCondition | None:
    """Return what is known to hold where two conditions do, of which one may not be known."""
    return And((one, other)) if one is not None and other is not None else one or other


def implied_by_either(
    one: ColumnCondition | None, other: ColumnCondition | None
) -> ColumnCondition | None:
    """Return what is known to hold where one of two conditions does: nothing where one is not known."""
    return Or((one, other)) if one is not None and other is not None else None
