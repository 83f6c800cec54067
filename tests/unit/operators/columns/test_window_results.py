"""Output of columns: each row keeps its timestamp, and results of windows name their window."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TimestampTypeInfo, Types
from headrace.operators.columns.window_results import WindowResults, emit_table, in_portions
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


@pytest.mark.parametrize("are_timed", [True, False])
def test_results_have_key_window_and_aggregates_and_the_windows_last_millisecond(
    are_timed: bool,
) -> None:
    instant = TimestampTypeInfo("UTC")
    names = ["key", *(["start", "end"] if are_timed else []), "sum"]
    types = [Types.STRING(), *([instant] * 2 if are_timed else []), Types.LONG()]
    results = WindowResults(BatchType(Types.ROW_NAMED(names, types)), 1, are_timed=are_timed)
    output = RecordedOutput()
    starts = np.array([-1000, 0])
    results.emit([pa.array(["a", "b"])], starts, starts + 1000, [pa.array([1, 2])], output)
    (batch,) = output.batches
    columns = batch.columns()
    assert columns.column("sum").to_pylist() == [1, 2]
    assert [field.name for field in results.aggregate_fields] == ["sum"]
    if are_timed:
        assert columns.column("start").cast(pa.int64()).to_pylist() == [-1_000_000, 0]
        assert columns.column("end").cast(pa.int64()).to_pylist() == [0, 1_000_000]
    times = None if batch.timestamps is None else batch.timestamps.tolist()
    assert times == ([-1, 999] if are_timed else None)


def test_windows_that_fire_together_go_out_in_portions_of_bounded_size() -> None:
    portions = in_portions([40_000, 40_000, 1, 70_000, 2], lambda rows: rows)
    assert list(portions) == [[40_000, 40_000], [1, 70_000], [2]]
