"""Kernels of vectorised grouping: ordering, merging and counting rows by columns of integers. Pure.

- Order: `stable_order` sorts integers; `begin_stretches` marks the beginnings of stretches of equal ones.
- Packing: several columns become one integer per row, equal and ordered as the rows are.
- Groups: `merge_integers` and `count_integers` aggregate rows by packed columns, which takes a fraction of the time of
  a hash table. They return None for columns with nulls or of other types: Arrow groups those.
- Group codes: `group_codes` numbers the rows of equal values of any columns.
- Exact sums: the sum of the values, which may wrap, and the sum of their upper 32 bits give the whole sum of fewer than
  2**32 values: the two differ by the sum of the lower halves, which are not negative, and that fits into 64 bits.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.specs.columnar_specs import HALF_BITS

Numbers = npt.NDArray[np.integer[Any]]
Longs = npt.NDArray[np.int64]
"""Values of a column."""
Indexes = npt.NDArray[np.int64]
"""Positions of rows or numbers, from 0."""
Codes = npt.NDArray[np.int64]
"""Number of each row's group, shape (num_rows,)."""

PACKED_MAX: Final = 2**62
"""Limit of different numbers that are packed into one: far below 2**63."""
_BITS: Final = 63
_FOLDS: Final[dict[str, np.ufunc]] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_RUNS_MAX: Final = 8
_COUNTERS_PER_ROW: Final = 4
_COUNTERS_MIN: Final = 1024


def stable_order(numbers: Numbers) -> Indexes:
    """Return the positions of `numbers`, shape (n,), by number and then by position.

    If number and position fit into 64 bits together, they are sorted as one integer: that sort is vectorised and
    takes an eighth of the time of a stable one.
    """
    position_bits = len(numbers).bit_length()
    lowest, highest = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if (highest - lowest).bit_length() + position_bits > _BITS:
        return np.argsort(numbers, kind="stable")
    packed = numbers.astype(np.int64) - lowest
    packed <<= position_bits
    packed |= np.arange(len(numbers), dtype=np.int64)
    packed.sort()
    packed &= (1 << position_bits) - 1
    return packed


def begin_stretches(numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Return whether each number differs from the one before, shape (n,); True for the first one."""
    begins = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=begins[1:])
    return begins


def integers_of(column: pa.ChunkedArray) -> Longs | None:
    """Return signed integers without nulls, shape (num_rows,); None for any other column."""
    if column.null_count or not pa.types.is_signed_integer(column.type):
        return None
    values: Longs = column.to_numpy()
    return values if values.dtype == np.int64 else values.astype(np.int64)


def span_of(column: Longs) -> tuple[int, int]:
    """Return the smallest value and the length of the range up to the largest one; `column` is not empty."""
    smallest = int(column.min())
    return smallest, int(column.max()) - smallest + 1


def packed_integers(columns: Sequence[Longs]) -> Longs | None:
    """Return one integer per row, equal and ordered as the rows are; None if the columns do not fit into 64 bits."""
    spans = [span_of(column) for column in columns]
    if prod(span for _, span in spans) > PACKED_MAX:
        return None
    return packed_in_spans(columns, spans)


def packed_in_spans(columns: Sequence[Longs], spans: Sequence[tuple[int, int]]) -> Longs:
    """Return the packed integers of columns with these spans; the product of their lengths is at most PACKED_MAX."""
    packed = columns[0] - spans[0][0]
    # In place, as fresh memory costs more than these steps.
    for column, (smallest, span) in zip(columns[1:], spans[1:], strict=True):
        packed *= span
        packed += column
        packed -= smallest
    return packed


def are_in_order(table: pa.Table, by: Sequence[str]) -> bool:
    """Return whether rows are in ascending order of `by`; False if a column has nulls or is not of integers."""
    columns = [integers_of(table.column(name)) for name in by]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or not table.num_rows:
        return False
    packed = packed_integers(known)
    return packed is not None and bool((packed[1:] >= packed[:-1]).all())


def merge_integers(
    table: pa.Table, by: Sequence[str], merges: Sequence[tuple[str, str]]
) -> pa.Table | None:
    """Return one row per value of the columns `by`, in ascending order, with the other columns merged.

    `merges`: (column, "sum", "min" or "max"). None if a column has nulls or another type, or if the values of `by` lie
    too far apart.
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
    """Return the values of the columns `by`, in ascending order, and the number of their rows; each of shape (groups,).

    `step`: distance of the values of the first column, all multiples of it from any of them on. Rows are counted in a
    table of all possible values, or by sorting if that table were much larger than the rows. None where
    `merge_integers` returns None.
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
    """Return the positions of the numbers (at least one) in ascending order.

    A few ascending runs are merged by numpy's stable sort, which is the fastest for them.
    """
    run_count = 1 + np.count_nonzero(numbers[1:] < numbers[:-1])
    return np.argsort(numbers, kind="stable") if run_count <= _RUNS_MAX else stable_order(numbers)


def _firsts_of(ordered: Longs) -> Indexes:
    """Return the first position of each distinct number in ascending numbers; at least one number."""
    return np.flatnonzero(begin_stretches(ordered))


def group_codes(rows: pa.Table, by: Sequence[str]) -> tuple[Codes, int]:
    """Return the group of each row, in [0, count), and count; groups are numbered by their first row."""
    return finer_codes(rows, by[1:], *_codes_of(rows.column(by[0])))


def finer_codes(rows: pa.Table, by: Sequence[str], codes: Codes, count: int) -> tuple[Codes, int]:
    """Return the codes of groups that are divided further by the columns `by`."""
    if by and len(codes):
        columns = [column for name in by if (column := integers_of(rows.column(name))) is not None]
        packed = packed_integers([codes, *columns]) if len(columns) == len(by) else None
        if packed is not None:
            # In one grouping, as each further column would take two.
            return _codes_of(pa.chunked_array([pa.array(packed)]))
    for name in by:
        more, more_count = _codes_of(rows.column(name))
        # Both are below the number of rows, so the product stays far below 2**63.
        codes, count = _codes_of(pa.chunked_array([pa.array(codes * more_count + more)]))
    return codes, count


def first_rows(codes: Codes, count: int) -> Indexes:
    """Return the first row of each group, shape (count,); -1 for a group without rows."""
    first: Indexes = np.full(count, -1, dtype=np.int64)
    # Of several values for one group numpy keeps the last, so backwards.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def encoded(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """Return a code for each row, shape (num_rows,), and the value of each code; codes are numbered by first row."""
    values = column.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    both = values.dictionary_encode(null_encoding="encode")
    return both.indices.to_numpy().astype(np.int64), both.dictionary


def _codes_of(column: pa.ChunkedArray) -> tuple[Codes, int]:
    codes, values = encoded(column)
    return codes, len(values)


def upper_halves(values: npt.NDArray[Any]) -> Longs:
    """Return the integers, of any type, without their lower 32 bits: rounded down."""
    if values.dtype != np.uint64:
        values = values.astype(np.int64, copy=False)
    return (values >> HALF_BITS).astype(np.int64, copy=False)


def float_sums(sums: Longs, upper_sums: Longs) -> npt.NDArray[np.float64]:
    """Return the whole sums in double precision; a sum that fits into 64 bits is rounded only once."""
    lower_sums = (sums - (upper_sums << HALF_BITS)).view(np.uint64)
    carries = (lower_sums >> HALF_BITS).astype(np.int64)
    rests = lower_sums & np.uint64(2**HALF_BITS - 1)
    uppers: npt.NDArray[np.float64] = (upper_sums + carries).astype(np.float64)
    return uppers * 2**HALF_BITS + rests.astype(np.float64)


def exact_means(sums: Longs, upper_sums: Longs, counts: Longs) -> npt.NDArray[np.float64]:
    """Return the whole sums divided by `counts`, all of shape (groups,); 0 for a group without values."""
    means: npt.NDArray[np.float64] = float_sums(sums, upper_sums) / np.maximum(counts, 1)
    return means
