"""Distinct values: the different values of many groups, as a column of lists, one per group. Pure.

So a value takes what it takes in its column, and not a row with all else that is kept of its group.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.columns.integer_groups import (
    PACKED_MAX,
    Codes,
    Longs,
    begin_stretches,
    encoded,
    integers_of,
    span_of,
)

VALUES_PER_ROW: Final = 4096
"""Where rows travel or are stored, longer lists are cut: pieces of snapshots and of the exchange are whole rows."""


def lists_of_rows(column: pa.ChunkedArray, codes: Codes, count: int) -> pa.Array:
    """Return the different values, but no nulls, of each of `count` groups. `codes`: the group of each row."""
    if column.null_count:
        is_valid = column.is_valid()
        column, codes = column.filter(is_valid), codes[is_valid.to_numpy()]
    return _as_lists(column, codes, None, count)


def merged_lists(lists: pa.ChunkedArray, codes: Codes, count: int) -> pa.Array:
    """Return the different values in all lists of each of `count` groups. `codes`: the group of each list."""
    return _as_lists(_values_in(lists), codes, lengths_of(lists), count)


def lengths_of(lists: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """Return how many values each list has, shape (num_rows,); none is null."""
    lengths: npt.NDArray[np.int32] = pc.call_function("list_value_length", [lists]).to_numpy()
    return lengths


def piece_counts(columns: Sequence[pa.ChunkedArray]) -> Longs | None:
    """Return how many pieces the lists of each row are cut into; None where all stay whole."""
    if not columns:
        return None
    longest: Longs = np.max([lengths_of(lists) for lists in columns], axis=0, initial=1)
    pieces = -(-longest // VALUES_PER_ROW)
    return None if (pieces == 1).all() else pieces


def cut_lists(lists: pa.ChunkedArray, pieces: Longs) -> pa.Array:
    """Return each list as so many, of at most VALUES_PER_ROW values where there are enough `pieces`; in its order."""
    lengths = lengths_of(lists).astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    skipped = piece_numbers(pieces) * VALUES_PER_ROW
    offsets = np.repeat(begins, pieces) + np.minimum(skipped, np.repeat(lengths, pieces))
    values = _combined(_values_in(lists))
    return pa.ListArray.from_arrays(_offsets(offsets, len(values)), values)


def piece_numbers(pieces: Longs) -> Longs:
    """Return 0, 1, … for the pieces of each row, shape (pieces in all,). `pieces`: how many each row has."""
    ends = np.cumsum(pieces)
    places: Longs = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - pieces, pieces)
    return places


def _as_lists(
    values: pa.ChunkedArray, codes: Codes, lengths: npt.NDArray[np.int32] | None, count: int
) -> pa.Array:
    """Return the different ones of `values`, which have no nulls, as a list for each group.

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
    """Return where the different numbers of each group begin, shape (count,), and all of them, ascending in each.

    By sorting group and number as one: a sort of integers beats a hash table of two columns several times.
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
