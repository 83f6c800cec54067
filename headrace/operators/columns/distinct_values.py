"""Distinct values of many groups, as a column of lists with one list per group. Pure.

A value in a list takes its own bytes, and not a row with everything else that is kept of its group.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.columns.integer_columns import (
    PACKED_MAX,
    Codes,
    Longs,
    begin_stretches,
    encoded,
    integers_of,
    span_of,
)

VALUES_PER_ROW: Final = 4096
"""Length above which lists are cut where rows are sent or stored: both move whole rows."""


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
    """Return the number of pieces that each row's lists are cut into; None if all stay whole."""
    if not columns:
        return None
    longest: Longs = np.max([lengths_of(lists) for lists in columns], axis=0, initial=1)
    pieces = -(-longest // VALUES_PER_ROW)
    return None if (pieces == 1).all() else pieces


def cut_lists(lists: pa.ChunkedArray, pieces: Longs) -> pa.Array:
    """Return each list cut into `pieces`, of at most VALUES_PER_ROW values each, in its order."""
    lengths = lengths_of(lists).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    skipped = piece_numbers(pieces) * VALUES_PER_ROW
    offsets = np.repeat(begins, pieces) + np.minimum(skipped, np.repeat(lengths, pieces))
    values = _combined(_values_in(lists))
    return pa.ListArray.from_arrays(_offsets(offsets, len(values)), values)


def piece_numbers(pieces: Longs) -> Longs:
    """Return the index of each piece within its row, shape (pieces in all,). `pieces`: the number of each row's."""
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
