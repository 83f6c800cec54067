"""Partials: computes partial results of rows, merges them, and computes aggregates from them. Pure.

Each of these steps is one grouping: of integers by the kernels of `integer_columns`, else by Arrow's hash table.
Counts, and sums, extremes and means of integers are the same in whatever order their parts are merged.

Distinct values of many groups are a column of lists, one for each group: a value in a list takes only its own bytes,
while a row would repeat all other columns of its group.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.functions.specs.columnar_specs import HALF_BITS, ROWS, SLICE, SlicedAggregation
from headrace.operators.columns.integer_columns import (
    PACKED_MAX,
    Codes,
    Longs,
    begin_stretches,
    count_integers,
    encoded,
    exact_means,
    first_rows,
    group_codes,
    integers_of,
    merge_integers,
    span_of,
)

_Grouping = tuple[str | tuple[()], str]
"""Column, or () to count rows, and the name of Arrow's function without `hash_`."""

_GROUP: Final = "$group"
"""Column with the number of a row's group, used where lists of values are merged too."""
_UPPER: Final = "$upper_"
"""Prefix of a column with the upper halves of another column's values."""
_MERGES: Final = {"count": "sum", "sum": "sum", "mean": "sum", "min": "min", "max": "max"}
VALUES_PER_ROW: Final = 4096
"""Most values of a list in a row that is sent or stored; longer lists are cut, as both move whole rows."""


def lists_of_rows(column: pa.ChunkedArray, codes: Codes, count: int) -> pa.Array:
    """Return the distinct values, without nulls, of each of `count` groups. `codes`: the group of each row."""
    if column.null_count:
        is_valid = column.is_valid()
        column, codes = column.filter(is_valid), codes[is_valid.to_numpy()]
    return _as_lists(column, codes, None, count)


def merged_lists(lists: pa.ChunkedArray, codes: Codes, count: int) -> pa.Array:
    """Return the distinct values in all lists of each of `count` groups. `codes`: the group of each list."""
    return _as_lists(_values_in(lists), codes, lengths_of(lists), count)


def lengths_of(lists: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Return the length of each list, shape (num_rows,); no list is null."""
    lengths: npt.NDArray[np.int32] = pc.call_function("list_value_length", [lists]).to_numpy()
    return lengths


def piece_counts(columns: Sequence[pa.ChunkedArray]) -> Longs | None:
    """Return the number of pieces into which each row's lists are cut; None if all stay whole."""
    if not columns:
        return None
    longest: Longs = np.max([lengths_of(lists) for lists in columns], axis=0, initial=1)
    pieces = -(-longest // VALUES_PER_ROW)
    return None if (pieces == 1).all() else pieces


def cut_lists(lists: pa.ChunkedArray, pieces: Longs) -> pa.Array:
    """Return each list cut into `pieces` of at most VALUES_PER_ROW values each, in its order."""
    lengths = lengths_of(lists).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    skipped = piece_numbers(pieces) * VALUES_PER_ROW
    offsets = np.repeat(begins, pieces) + np.minimum(skipped, np.repeat(lengths, pieces))
    values = _combined(_values_in(lists))
    return pa.ListArray.from_arrays(_offsets(offsets, len(values)), values)


def piece_numbers(pieces: Longs) -> Longs:
    """Return the index of each piece within its row, shape (total pieces,). `pieces`: number of pieces per row."""
    ends = np.cumsum(pieces)
    places: Longs = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - pieces, pieces)
    return places


def _as_lists(
    values: pa.ChunkedArray, codes: Codes, lengths: npt.NDArray[np.int32] | None, count: int
) -> pa.Array:
    """Return the distinct values of each group as a list; `values` has no nulls.

    `codes`: the group of each value, or of each run of values whose `lengths` are given.
    """
    if not len(values):
        none: Longs = np.zeros(count, dtype=np.int64)
        return pa.ListArray.from_arrays(_offsets(none, 0), encoded(values)[1])
    numbers, dictionary = integers_of(values), None
    if numbers is None or count * span_of(numbers)[1] > PACKED_MAX:
        numbers, dictionary = encoded(values)
    begins, found = _distinct_numbers(numbers, codes, lengths, count)
    if dictionary is None:
        made = pa.array(found, values.type)
    else:
        made = dictionary.take(pa.array(found))
    return pa.ListArray.from_arrays(_offsets(begins, len(made)), made)


def _distinct_numbers(
    numbers: Longs, codes: Codes, lengths: npt.NDArray[np.int32] | None, count: int
) -> tuple[Longs, Longs]:
    """Return the first position of each group, shape (count,), and the distinct numbers, ascending in each group.

    Group and number are sorted as one integer, which is several times as fast as a hash table of two columns.
    """
    smallest, span = span_of(numbers)
    bases = codes * span - smallest
    packed = bases + numbers if lengths is None else np.repeat(bases, lengths)
    if lengths is not None:
        packed += numbers
    packed.sort()
    packed = packed[begin_stretches(packed)]
    firsts = np.arange(count, dtype=np.int64) * span
    begins = np.searchsorted(packed, firsts)
    packed -= np.repeat(firsts - smallest, np.diff(begins, append=len(packed)))
    return begins, packed


def _offsets(begins: Longs, end: int) -> pa.Array:
    return pa.array(np.append(begins, end), pa.int32())


def _values_in(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.call_function("list_flatten", [lists])


def _combined(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


class Partials:
    """The partial results of one aggregation; `schema` is its `SlicedAggregation.partial_schema`."""

    def __init__(self, aggregation: SlicedAggregation, schema: pa.Schema) -> None:
        self._aggregation = aggregation
        self.schema: Final = schema
        self._keys: Final = list(aggregation.key_columns)
        self._distinct_names: Final = aggregation.distinct_names
        self._merges: Final = _merges_of(aggregation)
        wanted = _groupings_of(aggregation)
        # A repeated aggregate is computed once. By position, since names may clash with those of columns.
        self._asked: Final = list(dict.fromkeys(wanted))
        self._places: Final = [self._asked.index(each) for each in wanted]
        self._slice_ms: Final = aggregation.windows.slice_ms

    def of_rows(self, rows: pa.Table, slices: pa.Array) -> pa.Table:
        """Return one partial result per key and slice; `slices`: the beginning of each row's slice.

        In aggregations that only count rows, beginnings must be multiples of the slice's length apart.
        """
        by = [*self._keys, SLICE]
        asked = self._asked
        with_slices = self._needed(rows).append_column(SLICE, slices)
        if self._distinct_names:
            return self._with_values(with_slices, by)
        if len(asked) == 1:
            counted = count_integers(with_slices, [SLICE, *self._keys], self._slice_ms)
            if counted is not None:
                return self._of_counts(*counted)
        grouped = _group(with_slices, by, asked)
        places = [*range(len(by)), *(len(by) + place for place in self._places)]
        return self._as_partials([grouped.column(place) for place in places])

    def _needed(self, rows: pa.Table) -> pa.Table:
        """Return the columns from which partial results are computed, except `$slice`."""
        aggregates = self._aggregation.aggregates
        names = {one.column for one in aggregates if one.column is not None}
        needed = rows.select([*self._keys, *sorted(names - set(self._keys))])
        means = {one.column for one in aggregates if one.function == "mean"}
        for name in sorted(name for name in means if name is not None):
            longs = rows.column(name).cast(pa.int64())
            upper = pc.call_function("shift_right", [longs, pa.scalar(HALF_BITS, pa.int64())])
            needed = needed.append_column(_UPPER + name, upper)
        return needed

    def _with_values(self, rows: pa.Table, by: list[str]) -> pa.Table:
        """Return partial results with lists of distinct values."""
        codes, count = group_codes(rows, by)
        grouped = _group(rows.append_column(_GROUP, pa.array(codes)), [_GROUP], self._asked)
        keys = rows.select(by).take(pa.array(first_rows(codes, count)))
        plain = iter(grouped.column(1 + place) for place in self._places)
        arrays: list[Any] = [*keys.columns, next(plain)]
        for one in self._aggregation.aggregates:
            if one.column is None:
                continue
            if one.function == "count_distinct":
                arrays.append(lists_of_rows(rows.column(one.column), codes, count))
                continue
            arrays.append(next(plain))
            if one.function == "mean":
                arrays += [next(plain), next(plain)]
        return self.cut(self._as_partials(arrays))

    def _of_counts(self, values: list[Longs], counts: Longs) -> pa.Table:
        """Return partial results that only count rows. `values`: the columns slice and keys, in this order."""
        columns = [*values[1:], values[0], counts]
        return self._as_partials([pa.array(column) for column in columns])

    def _as_partials(self, arrays: list[Any]) -> pa.Table:
        typed = [array.cast(field.type) for array, field in zip(arrays, self.schema, strict=True)]
        return pa.Table.from_arrays(typed, schema=self.schema)

    def cut(self, partials: pa.Table) -> pa.Table:
        """Return partial results whose lists are short enough to be sent and stored (`VALUES_PER_ROW`).

        Summed columns have their value in the first piece only; all other columns, also those beyond
        `schema`, have the same value in every piece.
        """
        pieces = piece_counts([partials.column(name) for name in self._distinct_names])
        if pieces is None:
            return partials
        is_first = pa.array(piece_numbers(pieces) == 0)
        rows = pa.array(np.repeat(np.arange(len(pieces)), pieces))
        once = {name: None for name, function in self._merges if function == "sum"} | {ROWS: 0}
        arrays: list[Any] = []
        for field, column in zip(partials.schema, partials.columns, strict=True):
            if field.name in self._distinct_names:
                arrays.append(cut_lists(column, pieces))
                continue
            taken = column.take(rows)
            if field.name in once:
                nothing = pa.scalar(once[field.name], field.type)
                taken = pc.call_function("if_else", [is_first, taken, nothing])
            arrays.append(taken)
        return pa.Table.from_arrays(arrays, schema=partials.schema)

    def value_count(self, partials: pa.Table) -> int:
        """Return the number of values in all lists."""
        return sum(int(lengths_of(partials.column(name)).sum()) for name in self._distinct_names)

    def merged(self, partials: pa.Table, by: list[str], smallest: tuple[str, ...]) -> pa.Table:
        """Return one row per value of the columns `by`, with merged partial results and the minimum of `smallest`.

        Rows are in ascending order if all columns are integers without nulls and none is a list, else in the order of
        each group's first row.
        """
        merges = [*self._merges, *((name, "min") for name in smallest)]
        if not self._distinct_names:
            return _merge(partials, by, merges)
        # Codes are numbered by their first rows, so both ways of merging keep this order.
        codes, count = group_codes(partials, by)
        columns = partials.select([name for name, _ in merges])
        plain = _merge(columns.append_column(_GROUP, pa.array(codes)), [_GROUP], merges)
        made = partials.select(by).take(pa.array(first_rows(codes, count)))
        for name in plain.column_names[1:]:
            made = made.append_column(name, plain.column(name))
        for name in self._distinct_names:
            made = made.append_column(name, merged_lists(partials.column(name), codes, count))
        return made

    def results(self, partials: pa.Table, targets: list[pa.Field]) -> list[pa.ChunkedArray]:
        """Return one column per aggregate, of the types of `targets`, with one row per partial result."""
        arrays: list[pa.ChunkedArray] = []
        for index, (one, target) in enumerate(
            zip(self._aggregation.aggregates, targets, strict=True)
        ):
            name = ROWS if one.column is None else self._aggregation.partial_name(index)
            values = partials.column(name)
            if one.function == "count_distinct":
                values = pa.chunked_array([pa.array(lengths_of(values))])
            if one.function == "mean":
                upper_sums = partials.column(self._aggregation.upper_name(index))
                counts = partials.column(self._aggregation.count_name(index))
                values = pa.chunked_array([_means(values, upper_sums, counts)])
            arrays.append(values.cast(target.type))
        return arrays


def _groupings_of(aggregation: SlicedAggregation) -> list[_Grouping]:
    """Return the groupings that compute the columns of partial results, except lists of distinct values."""
    wanted: list[_Grouping] = [((), "count_all")]
    for one in aggregation.aggregates:
        if one.column is None or one.function == "count_distinct":
            continue
        if one.function == "mean":
            wanted += [(one.column, "sum"), (_UPPER + one.column, "sum"), (one.column, "count")]
        else:
            wanted.append((one.column, one.function))
    return wanted


def _merges_of(aggregation: SlicedAggregation) -> list[tuple[str, str]]:
    """Return the function that merges each column of partial results, except lists of distinct values."""
    merges = [(ROWS, "sum")]
    for index, one in enumerate(aggregation.aggregates):
        if one.column is None or one.function == "count_distinct":
            continue
        merges.append((aggregation.partial_name(index), _MERGES[one.function]))
        if one.function == "mean":
            merges.append((aggregation.upper_name(index), "sum"))
            merges.append((aggregation.count_name(index), "sum"))
    return merges


def _means(sums: pa.ChunkedArray, upper_sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """Return the means, null where there are no values; all of shape (num_rows,)."""
    known: list[Longs] = [one.fill_null(0).to_numpy() for one in (sums, upper_sums, counts)]
    return pa.array(exact_means(*known), mask=known[2] == 0)


def _merge(partials: pa.Table, by: list[str], merges: list[tuple[str, str]]) -> pa.Table:
    """Return one row per group of `by`, with the columns of `merges` merged and named as before."""
    of_integers = merge_integers(partials, by, merges)
    if of_integers is not None:
        return of_integers
    grouped = _group(partials, by, list[_Grouping](merges))
    # Groups first, then the aggregates, in the requested order.
    return grouped.rename_columns([*by, *(name for name, _ in merges)])


def _group(table: pa.Table, by: list[str], aggregates: list[_Grouping]) -> pa.Table:
    """Return the groups in order of their first row: columns of `by`, then the aggregates; computed on this thread."""
    return pa.TableGroupBy(table, by, use_threads=False).aggregate(aggregates)
