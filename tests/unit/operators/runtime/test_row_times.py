"""Event time of whole batches: what is asked of a record that has none, and no advice that its windows do not take."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.operators.runtime.row_times import TIME_LIMIT_MS, require_times, window_columns

SIZE_MS = 1000
FARTHEST_MS = TIME_LIMIT_MS - SIZE_MS
BATCH_TYPE = BatchType(Types.ROW_NAMED(["n"], [Types.LONG()]))


def _batch(times: list[int] | None) -> RecordBatch:
    columns = pa.record_batch({"n": pa.array([1, 2], pa.int64())})
    return RecordBatch.of_columns(BATCH_TYPE, columns, None if times is None else np.array(times))


@pytest.mark.parametrize("times", [None, [5, MIN_TIMESTAMP]], ids=["no row", "not every row"])
def test_where_a_row_has_no_timestamp_the_user_is_told_what_gives_it_one(
    times: list[int] | None,
) -> None:
    with pytest.raises(UserCodeError) as raised:
        require_times(_batch(times), "Join", SIZE_MS)
    assert raised.value.cause_text == (
        "a record without a timestamp cannot be put into event-time windows: "
        "call assign_timestamps_and_watermarks before"
    )
    assert "in operator 'Join'" in str(raised.value)


def test_rows_that_all_have_timestamps_pass() -> None:
    times = [-FARTHEST_MS, FARTHEST_MS]
    assert require_times(_batch(times), "Join", SIZE_MS).tolist() == times


@pytest.mark.parametrize(
    "far", [MIN_TIMESTAMP + 1, -FARTHEST_MS - 1, FARTHEST_MS + 1, 2**62, MAX_WATERMARK]
)
def test_a_time_whose_windows_would_end_outside_of_a_column_of_times_is_refused(far: int) -> None:
    with pytest.raises(UserCodeError) as raised:
        require_times(_batch([5, far]), "Sum", SIZE_MS)
    assert raised.value.cause_text == (
        f"event time {far} cannot be put into windows in columns of 1000 ms: it is counted in milliseconds from 1970 "
        "on, and this is too far from there"
    )


def test_windows_have_a_column_each_for_where_they_begin_and_end() -> None:
    fields = [
        pa.field("window_start", pa.timestamp("us")),
        pa.field("window_end", pa.timestamp("ms")),
        pa.field("count", pa.int64()),
    ]
    starts, ends = window_columns(np.array([-1000, 0]), np.array([0, 1000]), fields)
    assert starts.equals(pa.array([-1_000_000, 0], pa.timestamp("us")))
    assert ends.equals(pa.array([0, 1000], pa.timestamp("ms")))
