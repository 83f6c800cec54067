"""Groups of rows by columns of integers without nulls, for a fraction of what a hash table takes. Pure.

The columns are packed into one number per row. Groups are merged by sorting these: a few runs that are in order each
are brought together, all else is sorted with its places. They are counted in a table of all numbers that there could
be, or by sorting where that would be much larger than the rows are.

Integers in order: the places at which they stand in it, and where stretches of equal ones begin. Pure.

Packed integers: rows of columns of integers as one number each, equal and ordered as the rows are. Pure.

Group codes: the rows of a table as small numbers, the same for equal values of some columns. Pure.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.integer[Any]]
Longs = npt.NDArray[np.int64]
"""Values of a column."""
Indexes = npt.NDArray[np.int64]
"""Places of rows or numbers, from 0."""

_BITS: Final = 63


def stable_order(numbers: Numbers) -> Indexes:
    """Return the places of `numbers`, shape (n,), by number and then by place.

    Numbers whose range leaves room for a place beside each are sorted with it, as that sort is vectorised: an eighth of
    the time of a stable one.
    """
    place_bits = len(numbers).bit_length()
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if (highest - lowest).bit_length() + place_bits > _BITS:
        return np.argsort(numbers, kind="stable")
    packed = numbers.astype(np.int64) - lowest
    packed <<= place_bits
    packed |= np.arange(len(numbers), dtype=np.int64)
    packed.sort()
    packed &= (1 << place_bits) - 1
    return packed


def begin_stretches(numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Return which numbers differ from the one before, shape (n,); the first one does."""
    begins = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    return begins


PACKED_MAX: Final = 2**62
"""So many different numbers may be packed into one at most: far below 2**63."""


def integers_of(column: pa.ChunkedArray) -> Longs | None:
    """Return signed integers without nulls, shape (num_rows,); None for any other column."""
    if column.null_count or not pa.types.is_signed_integer(column.type):
        return None
    values: Longs = column.to_numpy()
    return values if values.dtype == np.int64 else values.astype(np.int64)


def span_of(column: Longs) -> tuple[int, int]:
    """Return the smallest value, and how many there could be from it to the largest one; at least one value."""
    smallest = int(column.min())
    return smallest, int(column.max()) - smallest + 1


def packed_integers(columns: Sequence[Longs]) -> Longs | None:
    """Return numbers that are equal, and ordered, as the rows of the columns are; None where 64 bits hold none such."""
    spans = [span_of(column) for column in columns]
    if prod(span for _, span in spans) > PACKED_MAX:
        return None
    return packed_in_spans(columns, spans)


def packed_in_spans(columns: Sequence[Longs], spans: Sequence[tuple[int, int]]) -> Longs:
    """Return the numbers where the spans are known; their product is at most PACKED_MAX."""
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


Codes = npt.NDArray[np.int64]


def group_codes(rows: pa.Table, by: Sequence[str]) -> tuple[Codes, int]:
    """Return a number in [0, count) for each row, shape (num_rows,), and count; groups by their first row."""
    return finer_codes(rows, by[1:], *_codes_of(rows.column(by[0])))


def finer_codes(rows: pa.Table, by: Sequence[str], codes: Codes, count: int) -> tuple[Codes, int]:
    """Return the codes of the same groups, each divided by more columns; the same codes without any."""
    if by and len(codes):
        columns = [column for name in by if (column := integers_of(rows.column(name))) is not None]
        packed = packed_integers([codes, *columns]) if len(columns) == len(by) else None
        if packed is not None:
            # In one go, where each further column would take two.
            return _codes_of(pa.chunked_array([pa.array(packed)]))
    for name in by:
        more, more_count = _codes_of(rows.column(name))
        # Both are below the number of rows, so the product stays far below 2**63.
        codes, count = _codes_of(pa.chunked_array([pa.array(codes * more_count + more)]))
    return codes, count


def first_rows(codes: Codes, count: int) -> Indexes:
    """Return the first row of each group, shape (count,); -1 where it has none."""
    first: Indexes = np.full(count, -1, dtype=np.int64)
    # Of several values for one group numpy takes the last, so from behind.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def encoded(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """Return a number for each row, shape (num_rows,), and the value of each number; values by their first row."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    both = values.dictionary_encode(null_encoding="encode")
    return both.indices.to_numpy().astype(np.int64), both.dictionary


def _codes_of(column: pa.ChunkedArray) -> tuple[Codes, int]:
    codes, values = encoded(column)
    return codes, len(values)
