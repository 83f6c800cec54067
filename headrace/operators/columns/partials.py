"""Partials: rows become partial results, partial results become fewer ones, and these the aggregates. Pure.

All steps are one grouping each, by Arrow's hash table unless there are only integers. Counts, and sums, extremes and
means of integers come out the same in whatever order their parts are merged.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.functions.columnar_specs import ROWS, SLICE, SlicedAggregation
from headrace.operators.columns.integer_groups import Longs, count_integers, merge_integers

_Grouping = tuple[str | tuple[()], str]
"""A column, or none to count rows, and the name of Arrow's function without `hash_`."""

_MERGES: Final = {"count": "sum", "sum": "sum", "mean": "sum", "min": "min", "max": "max"}


class Partials:
    """The partial results of one aggregation; `schema` is what `SlicedAggregation.partial_schema` says."""

    def __init__(self, aggregation: SlicedAggregation, schema: pa.Schema) -> None:
        self._aggregation = aggregation
        self.schema: Final = schema
        self._keys: Final = list(aggregation.key_columns)
        self._distinct_names: Final = aggregation.distinct_names
        self._plain_schema: Final = pa.schema(
            [field for field in schema if field.name not in self._distinct_names]
        )
        self._merges: Final = _merges_of(aggregation)
        self._slice_ms: Final = aggregation.windows.slice_ms

    def of_rows(self, rows: pa.Table, slices: pa.Array) -> pa.Table:
        """Return one partial result per key and slice; `slices`: where that of each row begins.

        Those of aggregations that only count rows have to lie whole slices apart.
        """
        wanted: list[_Grouping] = [((), "count_all")]
        for one in self._aggregation.aggregates:
            if one.column is None or one.function == "count_distinct":
                continue
            wanted.append((one.column, "sum" if one.function == "mean" else one.function))
            if one.function == "mean":
                wanted.append((one.column, "count"))
        names = {one.column for one in self._aggregation.aggregates if one.column is not None}
        needed = rows.select([*self._keys, *sorted(names - set(self._keys))])
        by = [*self._keys, SLICE]
        # An aggregate that is asked for twice is computed once. By place, since names may clash with those of columns.
        distinct = list(dict.fromkeys(wanted))
        with_slices = needed.append_column(SLICE, slices)
        if len(distinct) == 1 and not self._distinct_names:
            counted = count_integers(with_slices, [SLICE, *self._keys], self._slice_ms)
            if counted is not None:
                return self._of_counts(*counted)
        grouped = _group(with_slices, by, distinct)
        places = [*range(len(by)), *(len(by) + distinct.index(each) for each in wanted)]
        arrays = [
            grouped.column(place).cast(field.type)
            for place, field in zip(places, self._plain_schema, strict=True)
        ]
        plain = pa.Table.from_arrays(arrays, schema=self._plain_schema)
        if not self._distinct_names:
            return plain
        parts = [plain, *self._values_of(with_slices, by)]
        return pa.concat_tables(parts, promote_options="default").select(self.schema.names)

    def _of_counts(self, values: list[Longs], counts: Longs) -> pa.Table:
        """Return partial results that only count rows, of slices and keys in this order."""
        columns = [*values[1:], values[0], counts]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._plain_schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._plain_schema)

    def _values_of(self, rows: pa.Table, by: list[str]) -> list[pa.Table]:
        """Return the values that are counted once each, a table per aggregate with those columns that are not null."""
        tables: list[pa.Table] = []
        for index, one in enumerate(self._aggregation.aggregates):
            if one.function != "count_distinct" or one.column is None:
                continue
            name = self._aggregation.partial_name(index)
            # Under a name of its own, as the column may be one of the key's too.
            values = rows.select(by).append_column(name, rows.column(one.column))
            values = values.filter(values.column(name).is_valid())
            found = _group(values, [*by, name], [])
            nobody = pa.array(np.zeros(found.num_rows, dtype=np.int64))
            tables.append(found.append_column(ROWS, nobody))
        return tables

    def merged(self, partials: pa.Table, by: list[str], smallest: tuple[str, ...]) -> pa.Table:
        """Return one row per value of the columns `by`, with merged partial results and the smallest of `smallest`.

        And one for each value that is counted once there. In ascending order where all columns are integers without
        nulls, else in that of the first rows.
        """
        merges = [*self._merges, *((name, "min") for name in smallest)]
        return _merge(partials, [*by, *self._distinct_names], merges)

    def collapsed(self, partials: pa.Table, by: list[str], smallest: tuple[str, ...]) -> pa.Table:
        """Return what `merged` gave for `by`, with one row per value of these: values that count once are counted.

        As it is where there are none.
        """
        if not self._distinct_names:
            return partials
        counts = [(name, "count") for name in self._distinct_names]
        merges = [*self._merges, *counts, *((name, "min") for name in smallest)]
        return _merge(partials, by, merges)

    def results(self, partials: pa.Table, targets: list[pa.Field]) -> list[pa.ChunkedArray]:
        """Return the value of each aggregate, one row per partial result, collapsed before, as `targets` say."""
        arrays: list[pa.ChunkedArray] = []
        for index, (one, target) in enumerate(
            zip(self._aggregation.aggregates, targets, strict=True)
        ):
            name = ROWS if one.column is None else self._aggregation.partial_name(index)
            values = partials.column(name)
            if one.function == "mean":
                counts = partials.column(self._aggregation.count_name(index))
                values = pc.call_function("divide", [values.cast(pa.float64(), safe=False), counts])
            arrays.append(values.cast(target.type))
        return arrays


def _merges_of(aggregation: SlicedAggregation) -> list[tuple[str, str]]:
    """Return how the columns of partial results are merged, but for values that count once."""
    merges = [(ROWS, "sum")]
    for index, one in enumerate(aggregation.aggregates):
        if one.column is None or one.function == "count_distinct":
            continue
        merges.append((aggregation.partial_name(index), _MERGES[one.function]))
        if one.function == "mean":
            merges.append((aggregation.count_name(index), "sum"))
    return merges


def _merge(partials: pa.Table, by: list[str], merges: list[tuple[str, str]]) -> pa.Table:
    """Return the groups of `by` with their columns merged, under the names that these have."""
    of_integers = merge_integers(partials, by, merges)
    if of_integers is not None:
        return of_integers
    grouped = _group(partials, by, list[_Grouping](merges))
    # Groups first, then the aggregates, in the order in which they were asked for.
    return grouped.rename_columns([*by, *(name for name, _ in merges)])


def _group(table: pa.Table, by: list[str], aggregates: list[_Grouping]) -> pa.Table:
    """Return the groups, in order of their first row, then the aggregates as they were asked for; on this thread."""
    return pa.TableGroupBy(table, by, use_threads=False).aggregate(aggregates)
