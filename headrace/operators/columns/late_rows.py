"""Rows that came too late: they are dropped, and counted with those that they stand for."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.columnar_specs import ROWS
from headrace.metrics.instruments import Counter


def without_late(rows: pa.Table, is_late: npt.NDArray[np.bool_], late_count: Counter) -> pa.Table:
    """Return the rows that are not late, and add to `late_count` the `$rows` of the others.

    `is_late` has shape (num_rows,).
    """
    if not is_late.any():
        return rows
    stood_for: npt.NDArray[np.int64] = rows.column(ROWS).to_numpy()
    late_count.inc(int(stood_for[is_late].sum()))
    return rows.filter(pa.array(~is_late))
