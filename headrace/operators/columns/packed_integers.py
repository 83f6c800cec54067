"""Packed integers: rows of columns of integers as one number each, equal and ordered as the rows are. Pure."""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.operators.columns.ordered_integers import Longs

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
