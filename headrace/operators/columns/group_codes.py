"""Group codes: the rows of a table as small numbers, the same for equal values of some columns. Pure."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.columns.ordered_integers import Indexes
from headrace.operators.columns.packed_integers import integers_of, packed_integers

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
