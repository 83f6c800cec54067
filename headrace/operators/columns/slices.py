"""The column that says which slice of event time a row is of."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.functions.columnar_specs import SLICE


def slices_of(rows: pa.Table | pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return where the slice of each row begins, epoch ms, shape (num_rows,)."""
    slices: npt.NDArray[np.int64] = rows.column(SLICE).to_numpy()
    return slices
