"""Column expressions: `col("delay") > 15`, evaluated on whole batches by Arrow.

A thin layer over `pyarrow.compute` that keeps names for `select`. Nulls behave as in SQL: an operation on null is null,
`&` and `|` follow Kleene's logic (`null & False` is False, `null | True` is True), a filter drops rows whose condition
is null. Operators behave as they do on Python values, so that a filter may be written either way:

- an integer overflow fails the job; a column combined with a literal keeps the column's type if the literal fits;
- `/` is floating division, which gives inf or NaN for a zero divisor;
- `//` rounds down and `%` has the divisor's sign, where SQL rounds towards zero and gives the dividend's; an integer
  zero as divisor fails the job, a floating one gives NaN;
- `**` of integers is an integer and fails for a negative exponent: cast to floating first.

An expression also carries a condition on single columns that it implies, so that a source may skip rows by it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import ProgramError
from headrace.core.types.arrow_types import arrow_type_of, data_schema, type_info_from_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from headrace.functions.column_conditions import VALUE_TYPES, And, ColumnCondition, Comparison, Or


def call_arrow(function: str, *arguments: Any, **options: Any) -> Any:
    """Apply a compute function of Arrow. ProgramError if this version of Arrow has none of that name."""
    if not hasattr(pc, function):
        raise ProgramError(
            f"pyarrow {pa.__version__} has no function '{function}': take a newer one"
        )
    return getattr(pc, function)(*arguments, **options)


def true_division(dividend: Any, divisor: Any) -> Any:
    """Return `/` of two Arrow expressions: floating, with inf or NaN for a zero divisor."""
    # Arrow divides integers to integers and fails on zero; this / behaves as in Python and for SQL's doubles.
    # The cast is not a safe one: integers beyond 2**53 are rounded, as in Python, where a safe one fails.
    return call_arrow(
        "divide", dividend.cast(pa.float64(), safe=False), divisor.cast(pa.float64(), safe=False)
    )


def floor_division(dividend: Any, divisor: Any) -> Any:
    """Return `//` of two Arrow expressions, rounded down; an integer divisor of zero fails the job."""
    whole = call_arrow("subtract_checked", dividend, call_arrow("modulo", dividend, divisor))
    # By the absolute value, and checked with the sign: Arrow's division of the smallest integer by -1 gives 0.
    quotient = call_arrow("divide", whole, call_arrow("abs_checked", divisor))
    # The quotient of floating numbers is whole except for rounding; integers are not changed.
    return call_arrow(
        "round", call_arrow("multiply_checked", quotient, call_arrow("sign", divisor))
    )


# Arrow's error text for a missing column.
_MISSING_FIELD: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\)")


class Expression:
    """A value per row, computed from columns, literals and operators.

    Comparing with `== None` gives null: use `is_null()`.

    Example:
        >>> late = (col("delay") > 15) & ~col("cancelled")
        >>> ratio = (col("air_time") / col("distance")).alias("pace")
    """

    def __init__(
        self,
        arrow: Any,
        name: str | None = None,
        *,
        implied: ColumnCondition | None = None,
        is_implied_whole: bool = True,
        column: str | None = None,
    ) -> None:
        self._arrow = arrow
        self._name = name
        self._implied = implied
        self._is_implied_whole = is_implied_whole and implied is not None
        self._column = column

    def to_arrow(self) -> Any:
        """Return the `pyarrow.compute.Expression`."""
        return self._arrow

    @property
    def implied(self) -> ColumnCondition | None:
        """Condition on single columns that holds wherever this one does, or None if none is known."""
        return self._implied

    @property
    def is_implied_whole(self) -> bool:
        """True if this condition also holds wherever the implied one holds."""
        return self._is_implied_whole

    @property
    def name(self) -> str | None:
        """Name of the column that `select` makes of this expression, or None if it has none."""
        return self._name

    def alias(self, name: str) -> "Expression":
        """Name the result."""
        return Expression(self._arrow, name)

    def cast(self, target_type: "TypeInformation | pa.DataType") -> "Expression":
        """Convert to a declared or Arrow type.

        Null stays null, and a value that cannot be converted without loss fails the job.
        """
        if isinstance(target_type, TypeInformation):
            target_type = arrow_type_of(target_type)
        return Expression(self._arrow.cast(target_type), self._name)

    def is_null(self) -> "Expression":
        """Test whether the value is null; never null itself, and False for NaN."""
        return Expression(self._arrow.is_null())

    def is_not_null(self) -> "Expression":
        """Test whether the value is not null; never null itself."""
        return Expression(self._arrow.is_valid())

    def is_in(self, values: Collection[Any]) -> "Expression":
        """Test whether the value is in `values`, like SQL's IN. Null gives null.

        Without a match the result is null if `values` has None, else False.
        """
        known = [value for value in values if value is not None]
        found = self._arrow.isin(known) if known else pc.scalar(False)
        if len(known) < len(values):
            found = call_arrow("if_else", found, pc.scalar(True), pc.scalar(None).cast(pa.bool_()))
        return Expression(
            call_arrow("if_else", self._arrow.is_valid(), found, pc.scalar(None).cast(pa.bool_())),
            implied=_implied_by_membership(self._column, known),
        )

    def between(self, low: Any, high: Any) -> "Expression":
        """Test whether `low <= value <= high`.

        If one bound is null, the result is False if the other bound excludes the value, else null.
        """
        return (self >= low) & (self <= high)

    def fill_null(self, value: Any) -> "Expression":
        """Replace null."""
        return Expression(call_arrow("coalesce", self._arrow, _arrow_of(value)), self._name)

    def abs(self) -> "Expression":
        """Return the absolute value; the smallest integer of a type has none and fails the job."""
        return Expression(call_arrow("abs_checked", self._arrow))

    def round(self, digits: int = 0) -> "Expression":
        """Round to `digits` decimal places, halves away from zero as in SQL (Python rounds them to even).

        The type stays.
        """
        return Expression(
            call_arrow("round", self._arrow, ndigits=digits, round_mode="half_towards_infinity")
        )

    def lower(self) -> "Expression":
        """Convert a string to lower case, letter by letter."""
        return Expression(call_arrow("utf8_lower", self._arrow))

    def upper(self) -> "Expression":
        """Convert a string to upper case, letter by letter; `ß` does not become two letters."""
        return Expression(call_arrow("utf8_upper", self._arrow))

    def strip(self) -> "Expression":
        """Remove leading and trailing white space from a string."""
        return Expression(call_arrow("utf8_trim_whitespace", self._arrow))

    def length(self) -> "Expression":
        """Return the number of characters (code points) of a string."""
        return Expression(call_arrow("utf8_length", self._arrow))

    def starts_with(self, prefix: str) -> "Expression":
        """Test whether a string begins with `prefix`; case matters."""
        return Expression(call_arrow("starts_with", self._arrow, prefix))

    def ends_with(self, suffix: str) -> "Expression":
        """Test whether a string ends with `suffix`; case matters."""
        return Expression(call_arrow("ends_with", self._arrow, suffix))

    def contains(self, part: str) -> "Expression":
        """Test whether `part` occurs in a string; case matters, and `part` is not a pattern."""
        return Expression(call_arrow("match_substring", self._arrow, part))

    def __add__(self, other: Any) -> "Expression":
        return Expression(self._arrow + _arrow_of(other))

    def __radd__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) + self._arrow)

    def __sub__(self, other: Any) -> "Expression":
        return Expression(self._arrow - _arrow_of(other))

    def __rsub__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) - self._arrow)

    def __mul__(self, other: Any) -> "Expression":
        return Expression(self._arrow * _arrow_of(other))

    def __rmul__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) * self._arrow)

    def __truediv__(self, other: Any) -> "Expression":
        return Expression(true_division(self._arrow, _arrow_of(other)))

    def __rtruediv__(self, other: Any) -> "Expression":
        return Expression(true_division(_arrow_of(other), self._arrow))

    def __mod__(self, other: Any) -> "Expression":
        return Expression(call_arrow("modulo", self._arrow, _arrow_of(other)))

    def __rmod__(self, other: Any) -> "Expression":
        return Expression(call_arrow("modulo", _arrow_of(other), self._arrow))

    def __floordiv__(self, other: Any) -> "Expression":
        return Expression(floor_division(self._arrow, _arrow_of(other)))

    def __rfloordiv__(self, other: Any) -> "Expression":
        return Expression(floor_division(_arrow_of(other), self._arrow))

    def __pow__(self, other: Any) -> "Expression":
        return Expression(call_arrow("power_checked", self._arrow, _arrow_of(other)))

    def __rpow__(self, other: Any) -> "Expression":
        return Expression(call_arrow("power_checked", _arrow_of(other), self._arrow))

    def __neg__(self) -> "Expression":
        return Expression(call_arrow("negate_checked", self._arrow))

    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]
        implied = _implied_by_comparison(self._column, "==", other)
        return Expression(self._arrow == _arrow_of(other), implied=implied)

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]
        return Expression(self._arrow != _arrow_of(other))

    def __lt__(self, other: Any) -> "Expression":
        implied = _implied_by_comparison(self._column, "<", other)
        return Expression(self._arrow < _arrow_of(other), implied=implied)

    def __le__(self, other: Any) -> "Expression":
        implied = _implied_by_comparison(self._column, "<=", other)
        return Expression(self._arrow <= _arrow_of(other), implied=implied)

    def __gt__(self, other: Any) -> "Expression":
        implied = _implied_by_comparison(self._column, ">", other)
        return Expression(self._arrow > _arrow_of(other), implied=implied)

    def __ge__(self, other: Any) -> "Expression":
        implied = _implied_by_comparison(self._column, ">=", other)
        return Expression(self._arrow >= _arrow_of(other), implied=implied)

    def __and__(self, other: Any) -> "Expression":
        other = as_expression(other)
        return Expression(
            self._arrow & other.to_arrow(),
            implied=_implied_by_both(self._implied, other.implied),
            is_implied_whole=self.is_implied_whole and other.is_implied_whole,
        )

    def __rand__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) & self._arrow)

    def __or__(self, other: Any) -> "Expression":
        other = as_expression(other)
        return Expression(
            self._arrow | other.to_arrow(),
            implied=_implied_by_either(self._implied, other.implied),
            is_implied_whole=self.is_implied_whole and other.is_implied_whole,
        )

    def __ror__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) | self._arrow)

    def __invert__(self) -> "Expression":
        return Expression(~self._arrow)

    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    def __bool__(self) -> bool:
        raise TypeError(
            f"the expression {self} has a value per row and cannot be used as a single boolean: use &, | and ~ "
            f"instead of and, or and not, with parentheses around comparisons"
        )

    def __repr__(self) -> str:
        name = f" as {self._name}" if self._name else ""
        return f"{self._arrow}{name}"


def col(name: str) -> Expression:
    """Return the column of that name."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"col needs the name of a column, not {name!r}")
    return Expression(pc.field(name), name, column=name)


def lit(value: Any) -> Expression:
    """Return the same value for every row."""
    if isinstance(value, float):
        # Arrow takes a bare literal for the smallest type that holds it: an integer plus 0.5 would be a 32-bit float.
        return Expression(pc.scalar(value).cast(pa.float64()))
    return Expression(pc.scalar(value))


def coalesce(*values: Any) -> Expression:
    """Return the first of the values (expressions or literals) that is not null; null if all are."""
    if not values:
        raise TypeError("coalesce needs a value")
    return Expression(call_arrow("coalesce", *map(_arrow_of, values)))


def when(condition: Expression, value: Any) -> "CaseExpression":
    """Return `value` where `condition` is true; `.when(…)` and `.otherwise(…)` add other cases, like SQL's CASE.

    Example:
        >>> size = when(col("delay") > 60, "long").when(col("delay") > 15, "short").otherwise("none")
    """
    return CaseExpression(((condition, value),))


class CaseExpression(Expression):
    """Value of the first condition that is true, neither false nor null; null if none is."""

    def __init__(self, branches: tuple[tuple[Expression, Any], ...]) -> None:
        self._branches = branches
        super().__init__(_case(branches, None))

    def when(self, condition: Expression, value: Any) -> "CaseExpression":
        """Add a value for the rows where this condition is the first true one."""
        return CaseExpression((*self._branches, (condition, value)))

    def otherwise(self, value: Any) -> Expression:
        """Set the value for rows where no condition is true."""
        return Expression(_case(self._branches, value))


def as_named_expressions(
    columns: Sequence[str | Expression], named: Mapping[str, Expression]
) -> list[tuple[str, Expression]]:
    """Return (name, expression) pairs; ProgramError if a name is missing or given twice."""
    pairs: list[tuple[str, Expression]] = []
    for column in columns:
        expression = col(column) if isinstance(column, str) else column
        if not isinstance(expression, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"select needs column names and expressions, not {column!r}")
        if expression.name is None:
            raise ProgramError(
                f"name the result of {expression}: .alias('...'), or a keyword argument"
            )
        pairs.append((expression.name, expression))
    pairs += [(name, as_expression(expression)) for name, expression in named.items()]
    names = [name for name, _ in pairs]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated or not names:
        raise ProgramError(
            f"select makes the column '{min(repeated)}' twice"
            if repeated
            else "select needs a column"
        )
    return pairs


def as_expression(value: Any) -> Expression:
    """Return an expression unchanged, and any other value as a literal."""
    return value if isinstance(value, Expression) else lit(value)


def check_predicate(predicate: Expression, stream_type: TypeInformation, purpose: str) -> None:
    """Raise ProgramError unless `predicate` is a boolean over the stream's columns.

    `purpose`: the called method, for the error.
    """
    result = _schema_of([("predicate", predicate)], stream_type, purpose).field(0).type
    if not pa.types.is_boolean(result):
        raise ProgramError(f"{purpose} needs a condition, but {predicate} is of type {result}")


def selected_type(
    expressions: Iterable[tuple[str, Expression]], stream_type: TypeInformation
) -> RowTypeInfo:
    """Return the row type of a `select`; ProgramError for unknown columns and impossible operations."""
    return type_info_from_schema(_schema_of(list(expressions), stream_type, "select"))


def columns_of(stream_type: TypeInformation, purpose: str) -> pa.Schema:
    """Return the columns of a typed stream; for an untyped one ProgramError explains how to declare its type."""
    if isinstance(stream_type, PickledBytesTypeInfo):
        raise ProgramError(
            f"{purpose} needs a stream with columns, but the type of this one is not declared: "
            "pass output_type=Types.ROW_NAMED([...], [...]) to the operator before it"
        )
    return data_schema(stream_type)


def check_columns(names: Iterable[str], stream_type: TypeInformation, purpose: str) -> None:
    """Raise ProgramError unless all `names` are columns of the stream."""
    known = columns_of(stream_type, purpose).names
    for name in names:
        if name not in known:
            raise ProgramError(f"{purpose}: there is no column '{name}' among {', '.join(known)}")


def _schema_of(
    expressions: list[tuple[str, Expression]], stream_type: TypeInformation, purpose: str
) -> pa.Schema:
    # Imported here, because it imports pandas where there is one: a quarter of a second for every program.
    import pyarrow.dataset as pads

    columns = columns_of(stream_type, purpose)
    projection = {name: expression.to_arrow() for name, expression in expressions}
    try:
        # Arrow returns the types of results for an expression over a table without rows.
        return pads.dataset(columns.empty_table()).scanner(columns=projection).projected_schema
    except (pa.ArrowException, KeyError) as error:
        first_line = str(error).partition("\n")[0]
        missing = missing_column(first_line)
        reason = first_line if missing is None else f"there is no column '{missing}'"
        raise ProgramError(
            f"{purpose}({', '.join(str(expression) for _, expression in expressions)}) does not fit the "
            f"columns {', '.join(f'{field.name}: {field.type}' for field in columns)}: {reason}"
        ) from None


def missing_column(text: str) -> str | None:
    """Return the name of the missing column if this is Arrow's error about one, else None."""
    found = _MISSING_FIELD.search(text)
    return None if found is None else found.group(1)


def _arrow_of(value: Any) -> Any:
    return as_expression(value).to_arrow()


def _case(branches: tuple[tuple[Expression, Any], ...], default: Any) -> Any:
    chosen = _arrow_of(default)
    for condition, value in reversed(branches):
        is_true = call_arrow("coalesce", _arrow_of(condition), pc.scalar(False))
        chosen = call_arrow("if_else", is_true, _arrow_of(value), chosen)
    return chosen


def _implied_by_comparison(column: str | None, operator: str, value: Any) -> ColumnCondition | None:
    """Return the comparison of a column (None: of another expression) with a value, which may not be a plain one."""
    if column is None or not isinstance(value, VALUE_TYPES):
        return None
    return Comparison(column, operator, value)


def _implied_by_membership(column: str | None, values: Collection[Any]) -> ColumnCondition | None:
    """Return that a column is equal to one of `values`, among which there is no None."""
    equal = [_implied_by_comparison(column, "==", value) for value in values]
    known = tuple(one for one in equal if one is not None)
    return Or(known) if len(known) == len(equal) else None


def _implied_by_both(
    one: ColumnCondition | None, other: ColumnCondition | None
) -> ColumnCondition | None:
    """Return what is known to hold where both conditions do; one of them may not be known."""
    return And((one, other)) if one is not None and other is not None else one or other


def _implied_by_either(
    one: ColumnCondition | None, other: ColumnCondition | None
) -> ColumnCondition | None:
    """Return what is known to hold where one of two conditions does; None unless both are known."""
    return Or((one, other)) if one is not None and other is not None else None
