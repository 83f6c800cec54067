"""ColumnCondition: comparisons of columns with values, which the value ranges of columns can refute.

Pure. A comparison with null never holds. Source: Parquet's statistics filters, Iceberg's InclusiveMetricsEvaluator.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

VALUE_TYPES: Final = (bool, int, float, str)
"""Types of values that compare in Python as they do in columns, except integers with floating numbers."""
_EXACT_INTEGERS: Final = 2**24


@dataclass(frozen=True)
class ValueRange:
    """Bounds of the values of a column; both are None if all values are null."""

    smallest: Any
    largest: Any

    @property
    def is_empty(self) -> bool:
        """Return whether all values are null."""
        return self.smallest is None


Ranges = Callable[[str], ValueRange | None]
"""Function from a column's name to its range, or to None if it is not known."""


class ColumnCondition(ABC):
    """A condition on a row."""

    @abstractmethod
    def may_hold(self, ranges: Ranges) -> bool:
        """Return whether the condition can hold for a row of columns with these ranges; True if that is not known."""


@dataclass(frozen=True)
class Comparison(ColumnCondition):
    """`column operator value`, with ==, <, <=, > or >=."""

    column: str
    operator: str
    value: Any

    def may_hold(self, ranges: Ranges) -> bool:
        values = ranges(self.column)
        if values is None:
            return True
        if values.is_empty:
            return False
        if not _compare_alike(values.smallest, self.value):
            return True
        match self.operator:
            case "==":
                return bool(values.smallest <= self.value <= values.largest)
            case "<":
                return bool(values.smallest < self.value)
            case "<=":
                return bool(values.smallest <= self.value)
            case ">":
                return bool(values.largest > self.value)
            case _:
                return bool(values.largest >= self.value)


@dataclass(frozen=True)
class And(ColumnCondition):
    """Holds if all of its conditions do."""

    conditions: tuple[ColumnCondition, ...]

    def may_hold(self, ranges: Ranges) -> bool:
        return all(one.may_hold(ranges) for one in self.conditions)


@dataclass(frozen=True)
class Or(ColumnCondition):
    """Holds if at least one of its conditions does."""

    conditions: tuple[ColumnCondition, ...]

    def may_hold(self, ranges: Ranges) -> bool:
        return any(one.may_hold(ranges) for one in self.conditions)


def _compare_alike(known: Any, value: Any) -> bool:
    """Return whether two values compare as they do in columns, where one of them is cast to the other's type."""
    if value != value:
        return False  # NaN equals nothing, but is_in finds it
    if isinstance(known, float) != isinstance(value, float):
        # An integer becomes a floating number there, and may be rounded.
        is_exact = isinstance(value, int | float) and abs(value) <= _EXACT_INTEGERS
        return is_exact and isinstance(known, int | float)
    if isinstance(known, int | float):
        return isinstance(value, int | float)
    return type(known) is type(value)
