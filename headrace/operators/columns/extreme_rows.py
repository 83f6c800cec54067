"""Whole rows with the largest or smallest value of their window.

Rows with the same value all stay, in order of arrival; a null is never the largest.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.columnar_specs import ExtremeRows
from headrace.operators.columns.group_codes import Codes, finer_codes
from headrace.operators.columns.row_selection import RowSelection


class ExtremeRowSelection(RowSelection):
    """The rows with the extreme value."""

    state_name = "extreme-rows"

    def __init__(self, wanted: ExtremeRows) -> None:
        self._wanted = wanted

    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        return are_extreme(rows, self._wanted, slice_codes, slice_count)


def are_extreme(
    rows: pa.Table, wanted: ExtremeRows, slice_codes: Codes, slice_count: int
) -> npt.NDArray[np.bool_]:
    """Return which rows have the extreme value among those of equal key and `$slice`, shape (num_rows,)."""
    values = rows.column(wanted.column)
    is_extreme: npt.NDArray[np.bool_] = np.asarray(values.is_valid())
    if values.null_count:
        rows, slice_codes = rows.filter(pa.array(is_extreme)), slice_codes[is_extreme]
        values = rows.column(wanted.column)
    if rows.num_rows == 0:
        return is_extreme
    # Whatever the type is, its order is that of the integer behind it.
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    codes, count = finer_codes(rows, wanted.key_columns, slice_codes, slice_count)
    limits = np.iinfo(np.int64)
    extremes = np.full(count, limits.min if wanted.is_largest else limits.max)
    fold = np.maximum if wanted.is_largest else np.minimum
    fold.at(extremes, codes, numbers)
    is_extreme[is_extreme] = numbers == extremes[codes]
    return is_extreme
