"""Groups of rows by columns of integers without nulls: by sorting, which beats a hash table for small tables. Pure.

A plan of Arrow's takes half a millisecond before its first row, and a sliding window is merged from few rows. What is
merged here came in runs that are in order, which a sort notices.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.columns.ordered_integers import begin_stretches, stable_order

Longs = npt.NDArray[np.int64]

_FOLDS: Final[dict[str, np.ufunc]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
PACKED_MAX: Final = 2**62
"""So many different numbers may be packed into one at most: far below 2**63."""
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
    packed = _packed(known, spans)
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


def _order_of(numbers: Longs) -> Longs:
    """Return the places of the numbers (at least one) in ascending order.

    A sort of few runs that are in order each merges them, which nothing else is as fast as.
    """
    run_count = 1 + np.count_nonzero(numbers[1:] < numbers[:-1])
    return np.argsort(numbers, kind="stable") if run_count <= _RUNS_MAX else stable_order(numbers)


def _firsts_of(ordered: Longs) -> Longs:
    """Return where each number stands first; at least one."""
    return np.flatnonzero(begin_stretches(ordered))


def packed_integers(columns: Sequence[Longs]) -> Longs | None:
    """Return numbers that are equal, and ordered, as the rows of the columns are; None where 64 bits hold none such."""
    spans = [span_of(column) for column in columns]
    return None if prod(span for _, span in spans) > PACKED_MAX else _packed(columns, spans)


def span_of(column: Longs) -> tuple[int, int]:
    """Return the smallest value, and how many there could be from it to the largest one."""
    smallest = int(column.min())
    return smallest, int(column.max()) - smallest + 1


def _packed(columns: Sequence[Longs], spans: Sequence[tuple[int, int]]) -> Longs:
    """Return the numbers, where the product of all spans is far below 2**63."""
    packed = columns[0] - spans[0][0]
    # In place: memory that is new to the process costs more than these steps.
    for column, (smallest, span) in zip(columns[1:], spans[1:], strict=True):
        packed *= span
        packed += column
        packed -= smallest
    return packed


def are_in_order(table: pa.Table, by: Sequence[str]) -> bool:
    """Whether rows are in ascending order of `by`; False where these are no integers, or have nulls."""
    columns = [integers_of(table.column(name)) for name in by]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or not table.num_rows:
        return False
    packed = packed_integers(known)
    return packed is not None and bool((packed[1:] >= packed[:-1]).all())


def integers_of(column: pa.ChunkedArray) -> Longs | None:
    """Return signed integers without nulls, shape (num_rows,); None for any other column."""
    if column.null_count or not pa.types.is_signed_integer(column.type):
        return None
    values: Longs = column.to_numpy()
    return values if values.dtype == np.int64 else values.astype(np.int64)
