"""Conditions of aggregates: what they leave out becomes null before, and no aggregate counts a null."""

from collections.abc import Sequence

from headrace.api.aggregates import Aggregate
from headrace.api.data_stream import DataStream
from headrace.api.expressions import check_columns, check_predicate, col, lit, when


def without_conditions(
    stream: DataStream, key_columns: Sequence[str], aggregates: Sequence[Aggregate]
) -> tuple[DataStream, tuple[Aggregate, ...]]:
    """Return a stream, not keyed, and the aggregates over it that give the same without conditions.

    The stream as it is where there are none. ProgramError where a condition or its column does not fit.
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
