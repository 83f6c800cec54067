"""Built-in aggregates of windows: `agg.mean("delay").alias("mean_delay")`, computed on whole batches.

The condition of an aggregate becomes a column that is null where the condition does not hold, because no aggregate
counts a null.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.api.columns.expressions import (
    Expression,
    check_columns,
    check_predicate,
    col,
    columns_of,
    lit,
    when,
)
from headrace.api.streams.data_stream import DataStream
from headrace.core.errors import ProgramError
from headrace.core.types.arrow_types import type_info_of_arrow
from headrace.core.types.type_info import TimestampTypeInfo, TypeInformation, Types
from headrace.functions.specs.operator_specs import ColumnAggregate

WINDOW_TYPE = TimestampTypeInfo("UTC")
"""Type of `window_start` and `window_end`."""


class Aggregate:
    """One aggregate of a window, with the name of its column in the result."""

    def __init__(
        self,
        function: str,
        column: str | None,
        output_name: str,
        parameter: float | None = None,
        condition: Expression | None = None,
    ) -> None:
        self.column_aggregate = ColumnAggregate(function, column, output_name, parameter)
        self.condition = condition

    def alias(self, name: str) -> "Aggregate":
        """Name the result."""
        one = self.column_aggregate
        return Aggregate(one.function, one.column, name, one.parameter, self.condition)

    def where(self, condition: Expression) -> "Aggregate":
        """Take only the rows for which `condition` is true: SQL's FILTER (WHERE …). Not supported by first and last.

        Example:
            >>> from headrace import agg, col
            >>> agg.count().where(col("delay") > 60).alias("late")
            count() where (delay > 60) as late
        """
        if not isinstance(condition, Expression):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"where needs a condition over columns, not {condition!r}")
        one = self.column_aggregate
        if one.function in ("first", "last"):
            raise TypeError(f"{one.function} takes no condition: filter the stream before")
        if self.condition is not None:
            condition = self.condition & condition
        return Aggregate(one.function, one.column, one.output_name, one.parameter, condition)

    def __repr__(self) -> str:
        one = self.column_aggregate
        arguments = ", ".join(str(part) for part in (one.column, one.parameter) if part is not None)
        where = "" if self.condition is None else f" where {self.condition}"
        return f"{one.function}({arguments}){where} as {one.output_name}"


def count(column: str | None = None) -> Aggregate:
    """Count rows, or the values of a column that are not null."""
    return Aggregate("count", column, "count" if column is None else f"count_{column}")


def count_distinct(column: str) -> Aggregate:
    """Count the different values that are not null; for strings, integers and booleans. The state holds all of them."""
    return Aggregate("count_distinct", column, f"count_distinct_{column}")


def sum(column: str) -> Aggregate:
    """Add up the values that are not null. Integers are summed in 64 bits and wrap on overflow, as in Java."""
    return Aggregate("sum", column, f"sum_{column}")


def mean(column: str) -> Aggregate:
    """Return the mean of the values that are not null; null if there are none. The mean of integers never wraps."""
    return Aggregate("mean", column, f"mean_{column}")


def min(column: str) -> Aggregate:
    """Return the smallest value."""
    return Aggregate("min", column, f"min_{column}")


def max(column: str) -> Aggregate:
    """Return the largest value."""
    return Aggregate("max", column, f"max_{column}")


def first(column: str) -> Aggregate:
    """Return the value of the row that came first."""
    return Aggregate("first", column, f"first_{column}")


def last(column: str) -> Aggregate:
    """Return the value of the row that came last."""
    return Aggregate("last", column, f"last_{column}")


def quantile(column: str, q: float) -> Aggregate:
    """Return the `q` quantile (0..1) of the values that are not null, interpolated linearly between neighbours."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile must be between 0 and 1, not {q}")
    return Aggregate("quantile", column, f"quantile_{column}", q)


def aggregated_type(
    stream_type: TypeInformation,
    key_columns: Iterable[str],
    aggregates: Iterable[Aggregate],
    *,
    has_times: bool = True,
) -> TypeInformation:
    """Return the row type of a windowed aggregation; ProgramError for unknown columns and types that do not fit.

    `has_times`: True if windows have a start and an end.
    """
    columns = columns_of(stream_type, "aggregate")
    window_names = ["window_start", "window_end"] if has_times else []
    names = [*key_columns, *window_names]
    types = [type_info_of_arrow(columns.field(name).type) for name in key_columns]
    types += [WINDOW_TYPE for _ in window_names]
    for aggregate in aggregates:
        names.append(aggregate.column_aggregate.output_name)
        types.append(_result_type(aggregate, columns))
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ProgramError(
            f"the aggregation would have two columns '{sorted(repeated)[0]}': rename one with .alias('...')"
        )
    return Types.ROW_NAMED(names, types)


def _result_type(aggregate: Aggregate, columns: pa.Schema) -> TypeInformation:
    function, column = aggregate.column_aggregate.function, aggregate.column_aggregate.column
    if column is None:
        return Types.LONG()
    if column not in columns.names:
        raise ProgramError(
            f"{aggregate!r}: there is no column '{column}' among {', '.join(columns.names)}"
        )
    arrow_type = columns.field(column).type
    is_number = (
        pa.types.is_integer(arrow_type)
        or pa.types.is_floating(arrow_type)
        or pa.types.is_boolean(arrow_type)
    )
    if function in ("count", "count_distinct"):
        return Types.LONG()
    if function in ("min", "max", "first", "last"):
        return type_info_of_arrow(arrow_type)
    if not is_number:
        raise ProgramError(f"{aggregate!r} needs a column of numbers, but its type is {arrow_type}")
    if function == "sum" and not pa.types.is_floating(arrow_type):
        return Types.LONG()
    return Types.DOUBLE()


def without_conditions(
    stream: DataStream, key_columns: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[DataStream, tuple[Aggregate, ...]]:
    """Return a stream without keys, and aggregates over it that give the same result without conditions.

    Returns the stream unchanged if there are no conditions. ProgramError if a condition or its column does not fit.
    """
    if all(one.condition is None for one in aggregates):
        return stream, tuple(aggregates)
    columns = {name: col(name) for name in key_columns}
    plain: list[Aggregate] = []
    for index, aggregate in enumerate(aggregates):
        one = aggregate.column_aggregate
        if one.column is not None:
            check_columns((one.column,), stream.get_type(), repr(aggregate))
        if aggregate.condition is None:
            plain.append(aggregate)
            if one.column is not None:
                columns[one.column] = col(one.column)
            continue
        check_predicate(aggregate.condition, stream.get_type(), "where")
        name = f"$where_{index}"
        value = lit(True) if one.column is None else col(one.column)
        columns[name] = when(aggregate.condition, value)
        plain.append(Aggregate(one.function, name, one.output_name, one.parameter))
    named = [expression.alias(name) for name, expression in columns.items()]
    return stream.select(*named), tuple(plain)
