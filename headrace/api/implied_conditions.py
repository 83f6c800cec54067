"""What is known to hold of a row wherever an expression does: comparisons of columns with values.

Expressions carry it along, and a source may leave out rows by it. None where nothing is known.
"""

from collections.abc import Collection
from typing import Any

from headrace.functions.column_conditions import VALUE_TYPES, And, ColumnCondition, Comparison, Or


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
