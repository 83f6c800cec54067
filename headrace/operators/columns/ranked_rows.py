"""The first rows of each window in the order of some columns, whole: a top n, or the last row of a key.

Of rows that are equal in all these columns the one that came first is before the others; nulls and NaN come last.
Source: Flink AppendOnlyTopNFunction.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.functions.columnar_specs import SLICE, RankedRows
from headrace.operators.columns.group_codes import Codes, finer_codes, first_rows, group_codes
from headrace.operators.columns.ordered_integers import Indexes
from headrace.operators.columns.row_selection import RowSelection

Places = npt.NDArray[np.int64]
"""For each row a number that is larger the earlier the row comes, shape (num_rows,)."""


class RankedRowSelection(RowSelection):
    """The first rows. Within a window the rows of a key come together, in their order."""

    state_name = "ranked-rows"

    def __init__(self, wanted: RankedRows) -> None:
        self._wanted = wanted

    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        return are_first(rows, self._wanted, slice_codes, slice_count)

    def ordered(self, due: pa.Table) -> pa.Table:
        if self._wanted.count == 1 or not due.num_rows:
            return due
        codes, _ = finer_codes(due, self._wanted.key_columns, *group_codes(due, [SLICE]))
        return due.take(pa.array(_in_order(codes, _places_by_column(due, self._wanted))))


def are_first(
    rows: pa.Table, wanted: RankedRows, slice_codes: Codes, slice_count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows are among the first `wanted.count` of equal key and slice, shape (num_rows,)."""
    codes, count = finer_codes(rows, wanted.key_columns, slice_codes, slice_count)
    if rows.num_rows == 0:
        return np.zeros(0, dtype=np.bool_)
    if wanted.count == 1:
        return _are_the_first(rows, wanted, codes, count)
    order = _in_order(codes, _places_by_column(rows, wanted))
    sorted_codes = codes[order]
    begins = np.searchsorted(sorted_codes, np.arange(count))
    ranks = np.arange(len(order)) - begins[sorted_codes]
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[order[ranks < wanted.count]] = True
    return is_first


def _are_the_first(
    rows: pa.Table, wanted: RankedRows, codes: Codes, count: int
) -> npt.NDArray[np.bool_]:
    """Return the one row of each group that comes first, without sorting."""
    left = np.arange(len(codes))
    for name in wanted.order_columns:
        if len(left) == count:
            break
        # Only rows that are equal so far: few, where the first column tells most of them apart.
        values = rows.column(name)
        chosen = values if len(left) == len(codes) else values.take(pa.array(left))
        places = _places(chosen, wanted.is_largest)
        largest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(largest, codes[left], places)
        left = left[places == largest[codes[left]]]
    is_first = np.zeros(len(codes), dtype=np.bool_)
    is_first[left[first_rows(codes[left], count)]] = True
    return is_first


def _in_order(codes: Codes, by_column: list[Places]) -> Indexes:
    """Return the rows by group, then by place, then as they came."""
    order: Indexes = np.lexsort((*(~places for places in reversed(by_column)), codes))
    return order


def _places_by_column(rows: pa.Table, wanted: RankedRows) -> list[Places]:
    return [_places(rows.column(name), wanted.is_largest) for name in wanted.order_columns]


def _places(values: pa.ChunkedArray, is_largest: bool) -> Places:
    kinds = pa.types
    is_integer = kinds.is_signed_integer(values.type) or kinds.is_timestamp(values.type)
    if is_integer and not values.null_count:
        # Whatever the type is, its order is that of the integer behind it. Not the negative one: the smallest has none.
        numbers: Places = values.cast(pa.int64()).to_numpy()
        return numbers if is_largest else ~numbers
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    order = "ascending" if is_largest else "descending"
    options = pc.RankOptions(sort_keys=order, tiebreaker="dense")
    ranks: Places = pc.call_function("rank", [values], options).to_numpy().astype(np.int64)
    # Arrow has its own place for what has none in the order: here it is behind all others.
    ranks[values.is_null(nan_is_null=True).to_numpy()] = 0
    return ranks
