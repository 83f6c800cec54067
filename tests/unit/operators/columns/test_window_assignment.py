"""Windows of whole batches: rows need a usable timestamp, go into all their windows, and are dropped when late."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.elements import MAX_WATERMARK, MIN_TIMESTAMP
from headrace.core.errors import UserCodeError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.functions.specs.columnar_specs import ROWS, TIME_LIMIT_MS, EventTimeWindows
from headrace.metrics.instruments import Counter
from headrace.operators.columns.window_assignment import (
    assign_windows,
    require_times,
    without_late,
)

SIZE_MS = 1000
FARTHEST_MS = TIME_LIMIT_MS - SIZE_MS
PARTIALS = pa.table({"n": [1, 2, 3, 4], ROWS: [10, 20, 30, 40]})
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
        f"event time {far} cannot be put into windows of 1000 ms: event time is in milliseconds since 1970, "
        "and this value is out of range"
    )


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (EventTimeWindows(10, 10, 0), [(0, 0), (1, 10), (2, -10)]),
        (EventTimeWindows(10, 5, 0), [(0, 5), (0, 0), (1, 15), (1, 10), (2, -5), (2, -10)]),
        (EventTimeWindows(6, 10, 0), [(1, 10)]),
    ],
    ids=["tumbling", "sliding", "with gaps"],
)
def test_each_row_is_in_the_windows_that_cover_it_newest_first(
    windows: EventTimeWindows, expected: list[tuple[int, int]]
) -> None:
    pairs = assign_windows(np.array([9, 15, -1]), windows)
    assert list(zip(pairs.rows.tolist(), pairs.starts.tolist(), strict=True)) == expected


def test_late_rows_go_and_count_for_all_that_they_stand_for() -> None:
    count = Counter()
    count.inc(5)
    timely = without_late(PARTIALS, np.array([True, False, True, False]), count)
    assert timely.to_pydict() == {"n": [2, 4], ROWS: [20, 40]}
    assert count.get_count() == 5 + 10 + 30


def test_where_all_are_late_no_row_stays() -> None:
    count = Counter()
    timely = without_late(PARTIALS, np.full(4, True), count)
    assert (timely.num_rows, timely.schema, count.get_count()) == (0, PARTIALS.schema, 100)


def test_where_none_is_late_rows_stay_as_they_are() -> None:
    count = Counter()
    assert without_late(PARTIALS, np.full(4, False), count) is PARTIALS
    assert count.get_count() == 0


def test_a_row_that_stands_for_itself_counts_once() -> None:
    count = Counter()
    timely = without_late(PARTIALS.select(["n"]), np.array([True, False, True, False]), count)
    assert (timely.to_pydict(), count.get_count()) == ({"n": [2, 4]}, 2)
