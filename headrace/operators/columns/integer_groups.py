"""Groups of rows by columns of integers without nulls, for a fraction of what a hash table takes. Pure.

The columns are packed into one number per row. Groups are merged by sorting these: a few runs that are in order each
are brought together, all else is sorted with its places. They are counted in a table of all numbers that there could
be, or by sorting where that would be much larger than the rows are.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.operators.columns.ordered_integers import (
    Indexes,
    Longs,
    begin_stretches,
    stable_order,
)
from headrace.operators.columns.packed_integers import (
    PACKED_MAX,
    integers_of,
    packed_in_spans,
    packed_integers,
    span_of,
)

_FOLDS: Final[dict[str, np.ufunc]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_RUNS_MAX: Final = 8
_COUNTERS_PER_ROW: Final = 4
_COUNTERS_MIN: Final = 1024


def merge_integers(
    table: pa.Table, by: Sequence[str], merges: Sequence[tuple[str, str]]
) -> pa.Table | None:
    """Return one row per value of the columns `by`, in ascending order, with the other columns merged.

    `merges`: (column, "sum", "min" or "max"). None where a column has nulls or another type, or the values of `by` lie
    too far apart: Arrow can do that.
    """
    if not by or not table.num_rows or any(function not in _FOLDS for _, function in merges):
        return None
    names = [*by, *(name for name, _ in merges)]
    columns = [integers_of(table.column(name)) for name in names]
    if any(column is None for column in columns):
        return None
    known: list[Longs] = [column for column in columns if column is not None]
    packed = packed_integers(known[: len(by)])
    if packed is None:
        return None
    order = _order_of(packed)
    firsts = _firsts_of(packed[order])
    arrays: list[Any] = [column[order[firsts]] for column in known[: len(by)]]
    for column, (_, function) in zip(known[len(by) :], merges, strict=True):
        arrays.append(_FOLDS[function].reduceat(column[order], firsts))
    types = [table.schema.field(name).type for name in names]
    return pa.table(
        [pa.array(array, one) for array, one in zip(arrays, types, strict=True)], names=names
    )


def count_integers(
    table: pa.Table, by: Sequence[str], step: int
) -> tuple[list[Longs], Longs] | None:
    """Return the values of the columns `by`, in ascending order, and how many rows have them; each of shape (groups,).

    `step`: what the values of the first column are multiples of, counted from any of them. Counted in a table of all
    values that there could be, or by sorting where that would be much larger than the rows are: for a fraction of what
    a hash table takes. None where `merge_integers` gives none.
    """
    columns = [integers_of(table.column(name)) for name in by]
    known: list[Longs] = [column for column in columns if column is not None]
    if not by or not table.num_rows or len(known) < len(columns):
        return None
    begin, extent = span_of(known[0])
    if extent > PACKED_MAX:
        return None
    known[0] = known[0] - begin
    known[0] //= step
    spans = [(0, (extent - 1) // step + 1), *map(span_of, known[1:])]
    counter_count = prod(span for _, span in spans)
    if counter_count > PACKED_MAX:
        return None
    packed = packed_in_spans(known, spans)
    if counter_count > max(_COUNTERS_MIN, _COUNTERS_PER_ROW * table.num_rows):
        packed.sort()
        firsts = _firsts_of(packed)
        rest, counts = packed[firsts], np.diff(firsts, append=len(packed))
    else:
        counts = np.bincount(packed)
        rest = np.flatnonzero(counts)
        counts = counts[rest]
    values: list[Longs] = []
    for smallest, span in reversed(spans):
        values.insert(0, rest % span + smallest)
        rest = rest // span
    values[0] = values[0] * step + begin
    return values, counts


def _order_of(numbers: Longs) -> Indexes:
    """Return the places of the numbers (at least one) in ascending order.

    A sort of few runs that are in order each merges them, which nothing else is as fast as.
    """
    run_count = 1 + np.count_nonzero(numbers[1:] < numbers[:-1])
    return np.argsort(numbers, kind="stable") if run_count <= _RUNS_MAX else stable_order(numbers)


def _firsts_of(ordered: Longs) -> Indexes:
    """Return where each number stands first; at least one."""
    return np.flatnonzero(begin_stretches(ordered))
