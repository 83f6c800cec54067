"""Aggregates of sessions: against sessions made row by row in plain Python, however cut, restored and rescaled."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import UserCodeError
from headrace.core.record_batch import RecordBatch
from headrace.core.types.rows import Row
from headrace.functions.specs.columnar_specs import (
    LAST,
    START,
    TIME_LIMIT_MS,
)
from headrace.operators.columns.session_aggregate import group_stretches
from headrace.testing.operator_harness import OperatorHarness, Rows, WatermarkAt
from headrace.testing.operator_ways import run_all_cuts, run_all_ways
from tests.unit.operators.columns.session_halves import GAP, Drawn, local, second_steps, sessions


def row_by_row(batches: list[list[Drawn] | int]) -> tuple[list[tuple[Any, ...]], int]:
    """Sessions as (key, start, end, rows, sum, most) in order of end and key, and how many rows came too late."""
    live: list[tuple[str, int, int, list[int | None]]] = []
    fired: list[tuple[Any, ...]] = []
    watermark, late_count = -(2**62), 0

    def fire() -> None:
        due = [one for one in live if one[2] - 1 <= watermark]
        for key, start, end, values in sorted(due, key=lambda one: (one[2], one[0])):
            live.remove((key, start, end, values))
            known = [value for value in values if value is not None]
            total, most = (sum(known), max(known)) if known else (None, None)
            fired.append((key, start, end, len(values), total, most))

    for batch in batches:
        if isinstance(batch, int):
            watermark = max(watermark, batch)
            fire()
            continue
        for key, n, time in batch:
            near = [
                one for one in live if one[0] == key and one[1] <= time + GAP and time <= one[2]
            ]
            if not near and time + GAP - 1 <= watermark:
                late_count += 1
                continue
            for one in near:
                live.remove(one)
            start = min([time, *(one[1] for one in near)])
            end = max([time + GAP, *(one[2] for one in near)])
            live.append((key, start, end, [n, *(value for one in near for value in one[3])]))
    watermark = 2**62
    fire()
    return fired, late_count


def found(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for row, time in harness.output.timed_rows:
        start, end = (
            round(row[name].timestamp() * 1000) for name in ("window_start", "window_end")
        )
        assert time == end - 1
        made.append((row["key"], start, end, row["rows"], row["sum"], row["most"]))
    return made


BATCHES: list[list[Drawn] | int] = [
    [("a", 1, 0), ("a", 2, 25), ("b", None, 3), ("a", 3, 10), ("é", 7, 100)],
    12,
    [("a", 4, 15), ("b", 9, -20), ("b", 8, 14), ("b", 5, 13)],
    19,
    [("a", 6, 30), ("c", 5, 9), ("c", 4, 19), ("c", 3, 10)],
    60,
    [("a", 1, 61)],
]


@pytest.mark.slow
def test_sessions_join_late_rows_stay_out_and_a_row_before_may_save_one() -> None:
    expected, late_count = row_by_row(BATCHES)
    harness = run_all_ways(sessions, second_steps(BATCHES))
    assert found(harness) == expected
    assert late_count == 2
    assert harness.metrics.counter("numLateRecordsDropped").get_count() == late_count


def test_rows_whose_distance_is_the_gap_are_of_one_session() -> None:
    batches: list[list[Drawn] | int] = [[("a", 1, 0), ("a", 1, 10), ("a", 1, 21)]]
    harness = run_all_ways(sessions, second_steps(batches))
    assert [one[1:4] for one in found(harness)] == [(0, 20, 2), (21, 31, 1)]


batches_drawn = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.one_of(st.none(), st.integers(-3, 3)),
                st.integers(-40, 80),
            ),
            min_size=1,
            max_size=8,
        ),
        st.integers(-40, 80),
    ),
    max_size=10,
)


@given(batches_drawn)
def test_random_rows_give_the_sessions_that_row_by_row_gives(batches: list[Any]) -> None:
    expected, late_count = row_by_row(batches)
    harness = run_all_cuts(sessions, second_steps(batches))
    assert found(harness) == expected
    assert harness.metrics.counter("numLateRecordsDropped").get_count() == late_count


def test_a_long_stretch_reaches_over_shorter_ones_that_begin_later() -> None:
    codes = np.array([1, 0, 0, 0, 1])
    starts = np.array([50, 0, 5, 95, -7])
    lasts = np.array([50, 90, 6, 96, -7])
    grouping = group_stretches(codes, starts, lasts, GAP)
    assert grouping.sessions.tolist() == [2, 0, 0, 0, 1]
    assert grouping.starts.tolist() == [0, -7, 50]
    assert grouping.lasts.tolist() == [96, -7, 50]


def test_times_at_both_ends_of_64_bits_do_not_overflow_into_one_session() -> None:
    times = np.array([-(2**62), 2**62])
    assert group_stretches(np.array([0, 0]), times, times, GAP).sessions.tolist() == [0, 1]


def test_rows_without_event_time_are_refused() -> None:
    with pytest.raises(UserCodeError, match="timestamp"):
        local().perform(Rows([Row(key="a", n=1)]))


def test_rows_that_lie_within_the_gap_go_out_as_one_unless_one_of_them_may_be_late() -> None:
    harness = local()
    rows = [Row(key="a", n=n) for n in (1, 2, 3)]
    harness.perform(Rows(rows, [11, 21, 15]))
    assert harness.output.rows == []
    assert not harness.snapshot().chunks
    (made,) = harness.output.rows
    assert [made[name] for name in ("$rows", "$1", START, LAST)] == [3, 6, 11, 21]
    harness.perform(WatermarkAt(19))
    harness.perform(Rows(rows, [22, 10, 23]))
    harness.perform(WatermarkAt(20))
    assert [row[START] for row in harness.output.rows[1:]] == [22, 10, 23]


@pytest.mark.parametrize("sign", [1, -1])
def test_sessions_fire_as_far_from_1970_as_a_column_of_times_reaches(sign: int) -> None:
    far = sign * (TIME_LIMIT_MS - GAP - 1)
    harness, emitted = sessions(), list[RecordBatch]()
    harness.output.emit = emitted.append  # Python's own times, of rows, end with the year 9999
    for step in second_steps([[("a", 1, far)]]):
        harness.perform(step)
    harness.finish()
    (columns,) = [batch.columns() for batch in emitted]
    extent = [
        columns.column(name).cast(pa.int64())[0].as_py() for name in ("window_start", "window_end")
    ]
    assert extent == [1000 * time for time in [far, far + GAP]]
    with pytest.raises(
        UserCodeError, match=f"event time {far + 10 * sign} cannot be put into windows"
    ):
        far += 10 * sign
        second_steps([[("a", 1, far)]])


def test_means_of_large_numbers_do_not_wrap_as_sessions_grow() -> None:
    large = 2**63 - 1
    batches: list[list[Drawn] | int] = [
        [("a", large, 0), ("a", large, 1), ("b", -large, 5), ("c", None, 5)],
        4,
        [("a", large - 9, 11), ("b", -large, 14), ("b", 6, 15)],
    ]
    harness = run_all_ways(sessions, second_steps(batches))
    means = {row["key"]: row["mean"] for row in harness.output.rows}
    assert means == {"a": float(large), "b": pytest.approx(-2 * large / 3), "c": None}
