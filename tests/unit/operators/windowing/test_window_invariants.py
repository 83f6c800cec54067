"""Invariants of every run of windows: nothing lost, nothing twice, and sessions that do not care for order."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.functions.windowing.assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from headrace.testing.operator_harness import PICKLED, OperatorHarness, Rows, WatermarkAt
from tests.unit.operators.window_specs import window_spec
from tests.unit.operators.windowing.window_expectations import (
    KEYS,
    OwnGap,
    ShownContents,
    assert_nothing_is_left,
)

Records = list[tuple[tuple[str, int], int]]
"""Pairs of a value, (key, number), and its timestamp."""

# Now and then a number is large: as a gap it reaches over many sessions.
NUMBERS = st.one_of(st.integers(0, 6), st.integers(0, 6), st.just(50))
RECORDS = st.lists(
    st.tuples(st.tuples(st.sampled_from("ab"), NUMBERS), st.integers(-30, 60)),
    min_size=1,
    max_size=25,
)


def fired(assigner: WindowAssigner[Any, Any], batches: list[Records | int]) -> OperatorHarness:
    """Run batches of records and watermarks, and the end of input."""
    spec = window_spec(assigner, window_function=ShownContents(), late_tag_id="late")
    harness = OperatorHarness(spec, keys=KEYS, side_types={"late": PICKLED})
    for batch in batches:
        if isinstance(batch, int):
            harness.perform(WatermarkAt(batch))
        else:
            values, timestamps = zip(*batch, strict=True)
            harness.perform(Rows(values, timestamps))
    harness.finish()
    assert_nothing_is_left(harness)
    return harness


FIXED: list[tuple[WindowAssigner[Any, Any], Callable[[int], list[int]], int]] = [
    (
        TumblingEventTimeWindows(7, 2),
        lambda ts: [s for s in range(ts - 6, ts + 1) if s % 7 == 2],
        7,
    ),
    (
        SlidingEventTimeWindows(9, 4, 0),
        lambda ts: [s for s in range(ts - 8, ts + 1) if s % 4 == 0],
        9,
    ),
    (
        SlidingEventTimeWindows(2, 5, 0),
        lambda ts: [s for s in range(ts - 1, ts + 1) if s % 5 == 0],
        2,
    ),
]


@pytest.mark.parametrize(("assigner", "starts", "size"), FIXED)
@given(st.lists(st.one_of(RECORDS, st.integers(0, 15)), max_size=8))
def test_every_record_is_once_in_each_of_its_windows_that_had_not_ended_and_else_is_late(
    assigner: WindowAssigner[Any, Any],
    starts: Callable[[int], list[int]],
    size: int,
    steps: list[Records | int],
) -> None:
    wanted: Counter[Any] = Counter()
    late: list[Any] = []
    watermark = -(2**63)
    batches: list[Records | int] = []
    for step in steps:
        if isinstance(step, int):
            watermark = max(watermark, 0) + step
            batches.append(watermark)
            continue
        batches.append(step)
        for value, timestamp in step:
            open_windows = [one for one in starts(timestamp) if one + size - 1 > watermark]
            wanted.update((("time", one, one + size), value) for one in open_windows)
            if not open_windows and timestamp <= watermark:
                late.append(value)
    harness = fired(assigner, batches)
    found = Counter((label, value) for _, label, values in harness.output.rows for value in values)
    assert found == wanted
    assert harness.output.side_rows("late") == late


@pytest.mark.parametrize(
    "assigner", [EventTimeSessionWindows(4), DynamicEventTimeSessionWindows(OwnGap())]
)
@given(RECORDS, st.randoms(use_true_random=False), st.integers(0, 9))
def test_sessions_depend_on_the_records_and_not_on_their_order(
    assigner: WindowAssigner[Any, Any], records: Records, random: Any, lag: int
) -> None:
    in_order = _sessions(fired(assigner, [sorted(records, key=lambda one: one[1])]))
    shuffled = list(records)
    random.shuffle(shuffled)
    assert _sessions(fired(assigner, [shuffled])) == in_order
    # Out of order by up to `lag`, with watermarks in between that leave no record behind. They keep 2 ms back: a
    # session that ended at t - 1 fires when the watermark is there, and then a record at t touches it no more.
    nearly = sorted(records, key=lambda one: (one[1] // (lag + 1), random.random()))
    batches: list[Records | int] = []
    watermark = -100
    for record in nearly:
        behind = record[1] // (lag + 1) * (lag + 1) - 2
        if behind > watermark:
            watermark = behind
            batches.append(watermark)
        batches.append([record])
    harness = fired(assigner, batches)
    assert harness.output.side_rows("late") == []
    assert _sessions(harness) == in_order


@pytest.mark.parametrize("batch_count", [1, 5])
def test_a_record_makes_one_session_of_all_those_that_its_gap_reaches(batch_count: int) -> None:
    """Each of them has contents of its own, which go with it."""
    records: Records = [(("a", gap), timestamp) for gap, timestamp in enumerate((10, 20, 30, 40))]
    records.append((("a", 50), 0))
    size = len(records) // batch_count
    batches = [records[start : start + size] for start in range(0, len(records), size)]
    harness = fired(DynamicEventTimeSessionWindows(OwnGap()), [*batches])
    assert _sessions(harness) == [("a", ("time", 0, 51), [("a", gap) for gap in (0, 1, 2, 3, 50)])]


def _sessions(harness: OperatorHarness) -> list[Any]:
    """The sessions in order, each with its records in no order; none of a key touches another."""
    sessions = sorted((key, label, sorted(values)) for key, label, values in harness.output.rows)
    for (key, (_, _, end), _), (next_key, (_, start, _), _) in pairwise(sessions):
        assert key != next_key or start > end
    return sessions
