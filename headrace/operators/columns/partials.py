"""Partials: rows become partial results, partial results become fewer ones, and these the aggregates. Pure.

All steps are one grouping by Arrow's hash table each; counts, and sums, extremes and means of integers come out the
same in whatever order their parts are merged.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.functions.columnar_specs import ROWS, SLICE, SlicedAggregation

_Grouping = tuple[str | tuple[()], str]
"""A column, or none to count rows, and the name of Arrow's function without `hash_`."""

_MERGES: Final = {"count": "sum", "sum": "sum", "mean": "sum", "min": "min", "max": "max"}


class Partials:
    """The partial results of one aggregation; `schema` is what `SlicedAggregation.partial_schema` says."""

    def __init__(self, aggregation: SlicedAggregation, schema: pa.Schema) -> None:
        self._aggregation = aggregation
        self.schema: Final = schema
        self._keys: Final = list(aggregation.key_columns)

    def of_rows(self, rows: pa.Table, slices: pa.Array) -> pa.Table:
        """Return one partial result per key and slice; `slices`: where that of each row begins."""
        wanted: list[_Grouping] = [((), "count_all")]
        for one in self._aggregation.aggregates:
            if one.column is None:
                continue
            wanted.append((one.column, "sum" if one.function == "mean" else one.function))
            if one.function == "mean":
                wanted.append((one.column, "count"))
        names = {one.column for one in self._aggregation.aggregates if one.column is not None}
        needed = rows.select([*self._keys, *sorted(names - set(self._keys))])
        by = [*self._keys, SLICE]
        # An aggregate that is asked for twice is computed once. By place, since names may clash with those of columns.
        distinct = list(dict.fromkeys(wanted))
        grouped = _group(needed.append_column(SLICE, slices), by, distinct)
        places = [*range(len(by)), *(len(by) + distinct.index(each) for each in wanted)]
        arrays = [
            grouped.column(place).cast(field.type)
            for place, field in zip(places, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def merged(self, partials: pa.Table, by: list[str], smallest: tuple[str, ...]) -> pa.Table:
        """Return one row per value of the columns `by`, with merged partial results and the smallest of `smallest`."""
        aggregates: list[_Grouping] = [(ROWS, "sum")]
        names = [ROWS]
        for index, one in enumerate(self._aggregation.aggregates):
            if one.column is None:
                continue
            name = self._aggregation.partial_name(index)
            aggregates.append((name, _MERGES[one.function]))
            names.append(name)
            if one.function == "mean":
                name = self._aggregation.count_name(index)
                aggregates.append((name, "sum"))
                names.append(name)
        aggregates += [(name, "min") for name in smallest]
        names += smallest
        grouped = _group(partials, by, aggregates)
        # Groups first, then the aggregates, in the order in which they were asked for.
        return grouped.rename_columns([*by, *names])

    def results(self, partials: pa.Table, targets: list[pa.Field]) -> list[pa.ChunkedArray]:
        """Return the value of each aggregate, one row per partial result, as `targets` say."""
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


def _group(table: pa.Table, by: list[str], aggregates: list[_Grouping]) -> pa.Table:
    """Return the groups, in order of their first row, then the aggregates as they were asked for; on this thread."""
    return pa.TableGroupBy(table, by, use_threads=False).aggregate(aggregates)
