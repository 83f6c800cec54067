"""The column that says which slice of event time a row is of. Pure."""

import numpy as np
import pyarrow as pa

from headrace.core.record_batch import Timestamps
from headrace.functions.columnar_specs import SLICE
from headrace.operators.columns.ordered_integers import begin_stretches


def slices_of(rows: pa.Table | pa.RecordBatch) -> Timestamps:
    """Return where the slice of each row begins, epoch ms, shape (num_rows,)."""
    slices: Timestamps = rows.column(SLICE).to_numpy()
    return slices


def different_slices(rows: pa.Table) -> Timestamps:
    """Return where the slices of the rows begin, ascending, each once."""
    slices = slices_of(rows)
    # Rows mostly come in stretches of one slice: only the first of each is looked up.
    return np.unique(slices[begin_stretches(slices)])
