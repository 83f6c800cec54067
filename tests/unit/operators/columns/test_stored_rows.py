"""Tables as batches: each with the timestamps of its own rows."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import Types
from headrace.operators.columns.stored_rows import emit_table
from headrace.testing.operator_harness import RecordedOutput

TABLE = pa.table({"n": pa.chunked_array([[1, 2], [3], [4, 5, 6]], pa.int64())})
BATCH_TYPE = BatchType(Types.ROW_NAMED(["n"], [Types.LONG()]))


@pytest.mark.parametrize("are_timed", [True, False])
def test_each_row_keeps_its_timestamp_whatever_batch_it_goes_out_in(are_timed: bool) -> None:
    output = RecordedOutput()
    times = np.arange(10, 16, dtype=np.int64) if are_timed else None
    emit_table(TABLE, times, BATCH_TYPE, output)
    assert [batch.num_rows for batch in output.batches] == [2, 1, 3]
    assert [(row["n"], time) for row, time in output.timed_rows] == [
        (n, n + 9 if are_timed else None) for n in range(1, 7)
    ]
