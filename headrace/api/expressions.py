"""Column expressions: `col("delay") > 15`, evaluated on whole batches by Arrow.

A thin layer over `pyarrow.compute` that keeps names for `select` and says what is wrong while the program is built.
Nulls are Arrow's: comparisons and arithmetic with null give null, `&` and `|` follow Kleene's logic.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import ProgramError
from headrace.core.types.arrow_mapping import arrow_type_of, data_schema, type_info_from_schema
from headrace.core.types.type_info import PickledBytesTypeInfo, RowTypeInfo, TypeInformation


class Expression:
    """A value per row, made of columns, literals and operators.

    Example:
        >>> late = (col("delay") > 15) & ~col("cancelled")
        >>> ratio = (col("air_time") / col("distance")).alias("pace")
    """

    def __init__(self, arrow: Any, name: str | None = None) -> None:
        self._arrow = arrow
        self._name = name

    def to_arrow(self) -> Any:
        """Return the `pyarrow.compute.Expression`."""
        return self._arrow

    @property
    def name(self) -> str | None:
        """Name of the column that `select` makes of it, if it has one."""
        return self._name

    def alias(self, name: str) -> "Expression":
        """Name the result."""
        return Expression(self._arrow, name)

    def cast(self, target_type: "TypeInformation | pa.DataType") -> "Expression":
        """Convert to a declared or Arrow type; a value that does not fit fails the job."""
        if isinstance(target_type, TypeInformation):
            target_type = arrow_type_of(target_type)
        return Expression(self._arrow.cast(target_type), self._name)

    def is_null(self) -> "Expression":
        return Expression(self._arrow.is_null())

    def is_not_null(self) -> "Expression":
        return Expression(self._arrow.is_valid())

    def is_in(self, values: Collection[Any]) -> "Expression":
        """Whether the value is one of `values`."""
        return Expression(self._arrow.isin(list(values)))

    def between(self, low: Any, high: Any) -> "Expression":
        """Whether `low <= value <= high`."""
        return (self >= low) & (self <= high)

    def fill_null(self, value: Any) -> "Expression":
        """Replace null."""
        return Expression(_call("coalesce", self._arrow, _arrow_of(value)), self._name)

    def abs(self) -> "Expression":
        return Expression(_call("abs_checked", self._arrow))

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
        return Expression(_true_division(self._arrow, _arrow_of(other)))

    def __rtruediv__(self, other: Any) -> "Expression":
        return Expression(_true_division(_arrow_of(other), self._arrow))

    def __neg__(self) -> "Expression":
        return Expression(_call("negate_checked", self._arrow))

    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]
        return Expression(self._arrow == _arrow_of(other))

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]
        return Expression(self._arrow != _arrow_of(other))

    def __lt__(self, other: Any) -> "Expression":
        return Expression(self._arrow < _arrow_of(other))

    def __le__(self, other: Any) -> "Expression":
        return Expression(self._arrow <= _arrow_of(other))

    def __gt__(self, other: Any) -> "Expression":
        return Expression(self._arrow > _arrow_of(other))

    def __ge__(self, other: Any) -> "Expression":
        return Expression(self._arrow >= _arrow_of(other))

    def __and__(self, other: Any) -> "Expression":
        return Expression(self._arrow & _arrow_of(other))

    def __rand__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) & self._arrow)

    def __or__(self, other: Any) -> "Expression":
        return Expression(self._arrow | _arrow_of(other))

    def __ror__(self, other: Any) -> "Expression":
        return Expression(_arrow_of(other) | self._arrow)

    def __invert__(self) -> "Expression":
        return Expression(~self._arrow)

    __hash__ = None  # type: ignore[assignment]  # == makes an expression

    def __bool__(self) -> bool:
        raise TypeError(
            f"the expression {self} has a value per row and no truth of its own: "
            "use &, | and ~ instead of and, or and not, and brackets around comparisons"
        )

    def __repr__(self) -> str:
        name = f" as {self._name}" if self._name else ""
        return f"{self._arrow}{name}"


def col(name: str) -> Expression:
    """Return the column of that name."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"col needs the name of a column, not {name!r}")
    return Expression(pc.field(name), name)


def lit(value: Any) -> Expression:
    """Return the same value for every row."""
    return Expression(pc.scalar(value))


def as_named_expressions(
    columns: Sequence[str | Expression], named: Mapping[str, Expression]
) -> list[tuple[str, Expression]]:
    """Return (name, expression) pairs; ProgramError where a name is missing or given twice."""
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
    """Return an expression as it is, and any other value as a literal."""
    return value if isinstance(value, Expression) else lit(value)


def check_predicate(predicate: Expression, stream_type: TypeInformation) -> None:
    """Raise ProgramError unless `predicate` is a truth value over the stream's columns."""
    result = _schema_of([("predicate", predicate)], stream_type, "filter").field(0).type
    if not pa.types.is_boolean(result):
        raise ProgramError(f"filter needs a condition, but {predicate} is of type {result}")


def selected_type(
    expressions: Iterable[tuple[str, Expression]], stream_type: TypeInformation
) -> RowTypeInfo:
    """Return the row type of a `select`; ProgramError for unknown columns and impossible operations."""
    return type_info_from_schema(_schema_of(list(expressions), stream_type, "select"))


def columns_of(stream_type: TypeInformation, purpose: str) -> pa.Schema:
    """Return the columns of a typed stream; ProgramError says how to get some."""
    if isinstance(stream_type, PickledBytesTypeInfo):
        raise ProgramError(
            f"{purpose} needs a stream with columns, but the type of this one is not declared: "
            "pass output_type=Types.ROW_NAMED([...], [...]) to the operator before"
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
        # Binding to a table without rows is how Arrow tells the types of results.
        return pads.dataset(columns.empty_table()).scanner(columns=projection).projected_schema
    except (pa.ArrowException, KeyError) as error:
        first_line = str(error).partition("\n")[0]
        raise ProgramError(
            f"{purpose}({', '.join(str(expression) for _, expression in expressions)}) does not fit the "
            f"columns {', '.join(f'{field.name}: {field.type}' for field in columns)}: {first_line}"
        ) from None


def _arrow_of(value: Any) -> Any:
    return as_expression(value).to_arrow()


def _true_division(dividend: Any, divisor: Any) -> Any:
    # Arrow divides integers to integers and fails on zero; here / means what it means in Python and SQL's doubles.
    return _call("divide", dividend.cast(pa.float64()), divisor.cast(pa.float64()))


def _call(function: str, *arguments: Any) -> Any:
    """Apply one of Arrow's compute functions, which the module makes while it is imported."""
    return getattr(pc, function)(*arguments)
