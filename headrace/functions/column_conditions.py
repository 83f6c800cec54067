"""ColumnCondition: comparisons of columns with values, which smallest and largest values may refute.

Pure. A null compares with nothing. Source: Parquet's statistics filters, Iceberg's InclusiveMetricsEvaluator.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

VALUE_TYPES: Final = (bool, int, float, str)
"""Values that compare in Python as they do in columns; but see `_compare_alike`."""
_EXACT_INTEGERS: Final = 2**24


@dataclass(frozen=True)
class ValueRange:
    """The smallest and the largest of some values, of which none is outside; None for both where there are none."""

    smallest: Any
    largest: Any

    @property
    def is_empty(self) -> bool:
        """Whether there are only nulls."""
        return self.smallest is None


Ranges = Mapping[str, ValueRange]
"""By column; what is not known is not there."""


class ColumnCondition(ABC):
    """A condition on a row."""

    @abstractmethod
    def may_hold(self, ranges: Ranges) -> bool:
        """Whether it can hold of a row of columns with these values; True where that is not known."""


@dataclass(frozen=True)
class Comparison(ColumnCondition):
    """`column operator value`, with ==, <, <=, > or >=."""

    column: str
    operator: str
    value: Any

    def may_hold(self, ranges: Ranges) -> bool:
        values = ranges.get(self.column)
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
    """Conditions, of which all hold."""

    conditions: tuple[ColumnCondition, ...]

    def may_hold(self, ranges: Ranges) -> bool:
        return all(one.may_hold(ranges) for one in self.conditions)


@dataclass(frozen=True)
class Or(ColumnCondition):
    """Conditions, of which at least one holds."""

    conditions: tuple[ColumnCondition, ...]

    def may_hold(self, ranges: Ranges) -> bool:
        return any(one.may_hold(ranges) for one in self.conditions)


def _compare_alike(known: Any, value: Any) -> bool:
    """Whether two values compare here as they do in columns, where one of them is cast to the other's type."""
    if isinstance(known, float) != isinstance(value, float):
        # An integer becomes a floating number there, and may be rounded.
        is_exact = isinstance(value, int | float) and abs(value) <= _EXACT_INTEGERS
        return is_exact and isinstance(known, int | float)
    if isinstance(known, int | float):
        return isinstance(value, int | float)
    return type(known) is type(value)
