"""Window assigners: which windows a record is in."""

import pickle
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.types.time_values import Time
from headrace.functions.windowing.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
    WindowStagger,
)
from headrace.functions.windows import CountWindow, GlobalWindow, TimeWindow
from tests.unit.functions.windowing.window_contexts import AssignerSurroundings

TIMES = [1, 2, 3, 4, 5, 8, 9, 15]


def windows_of(
    assigner: WindowAssigner[Any, TimeWindow],
    timestamp: int,
    context: AssignerSurroundings | None = None,
) -> list[TimeWindow]:
    return list(assigner.assign_windows(None, timestamp, context or AssignerSurroundings()))


def counts(assigner: WindowAssigner[Any, TimeWindow]) -> dict[tuple[int, int], int]:
    found: Counter[TimeWindow] = Counter()
    for time in TIMES:
        found.update(assigner.assign_windows(None, time, AssignerSurroundings(now=time)))
    return {(window.start, window.end): count for window, count in sorted(found.items())}


@pytest.mark.parametrize("kind", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
def test_tumbling_windows_side_by_side(kind: Any) -> None:
    assert counts(kind.of(Time.milliseconds(5))) == {(0, 5): 4, (5, 10): 3, (15, 20): 1}


@pytest.mark.parametrize("kind", [SlidingEventTimeWindows, SlidingProcessingTimeWindows])
def test_sliding_windows_overlap_also_with_negative_starts(kind: Any) -> None:
    assert counts(kind.of(Time.milliseconds(5), Time.milliseconds(2))) == {
        (-2, 3): 2,
        (0, 5): 4,
        (2, 7): 4,
        (4, 9): 3,
        (6, 11): 2,
        (8, 13): 2,
        (12, 17): 1,
        (14, 19): 1,
    }


def test_sliding_windows_come_newest_first() -> None:
    windows = windows_of(SlidingEventTimeWindows(6, 2, 0), 5)
    assert windows == [TimeWindow(4, 10), TimeWindow(2, 8), TimeWindow(0, 6)]


def test_a_slide_longer_than_the_size_leaves_gaps() -> None:
    assigner = SlidingEventTimeWindows(2, 5, 0)
    assert windows_of(assigner, 1) == [TimeWindow(0, 2)]
    assert windows_of(assigner, 3) == []


@given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.integers(1, 50), st.data())
def test_sliding_windows_are_exactly_those_that_hold_the_time(
    timestamp: int, size: int, slide: int, data: Any
) -> None:
    offset = data.draw(st.integers(-slide + 1, slide - 1))
    assigner = SlidingEventTimeWindows[Any](size, slide, offset)
    starts = {window.start for window in windows_of(assigner, timestamp)}
    nearby = range(timestamp - size - slide, timestamp + 1)
    wanted = {s for s in nearby if (s - offset) % slide == 0 and s <= timestamp < s + size}
    assert starts == wanted


def test_an_offset_moves_windows() -> None:
    assigner = TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))
    assert windows_of(assigner, 0) == [TimeWindow(-8 * 3_600_000, 16 * 3_600_000)]


def starts_of(assigner: TumblingEventTimeWindows[Any], context: AssignerSurroundings) -> set[int]:
    windows = [window for time in range(-20, 20) for window in windows_of(assigner, time, context)]
    assert {window.end - window.start for window in windows} == {10}
    starts = {(window.start - assigner.offset) % 10 for window in windows}
    context.now += 1
    assert windows_of(assigner, 0, context)[0] in windows, "settled with the first record"
    return starts


def test_windows_may_begin_where_the_clock_stood_with_the_first_record() -> None:
    assigner = TumblingEventTimeWindows.of(
        Time.milliseconds(10), Time.milliseconds(-3), WindowStagger.NATURAL
    )
    assert repr(assigner) == "TumblingEventTimeWindows(10, -3, NATURAL)"
    assert starts_of(assigner, AssignerSurroundings(now=1234)) == {4}


def test_windows_may_begin_at_random_but_always_at_the_same_time_on_one_subtask() -> None:
    shifts: list[int] = []
    for index in [*range(20), *range(20)]:
        assigner = TumblingEventTimeWindows.of(Time.milliseconds(10), None, WindowStagger.RANDOM)
        (shift,) = starts_of(assigner, AssignerSurroundings(subtask_index=index))
        shifts.append(shift)
    assert shifts[:20] == shifts[20:]
    assert len(set(shifts)) > 5


def test_windows_on_the_clock_may_be_staggered_too() -> None:
    context = AssignerSurroundings(now=1234)
    assigner = TumblingProcessingTimeWindows.of(
        Time.milliseconds(10), stagger=WindowStagger.NATURAL
    )
    assert list(assigner.assign_windows(None, 0, context)) == [TimeWindow(1234, 1244)]
    context.now = 1250
    assert list(assigner.assign_windows(None, 0, context)) == [TimeWindow(1244, 1254)]


def test_sizes_may_be_timedeltas() -> None:
    assert (
        repr(TumblingEventTimeWindows.of(timedelta(seconds=5)))
        == "TumblingEventTimeWindows(5000, 0)"
    )


def test_event_time_needs_timestamps() -> None:
    for assigner in (
        TumblingEventTimeWindows(5, 0),
        SlidingEventTimeWindows(5, 5, 0),
        EventTimeSessionWindows(5),
    ):
        with pytest.raises(ValueError, match="without a timestamp"):
            assigner.assign_windows(None, MIN_TIMESTAMP, AssignerSurroundings())


class OwnLength(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return element


@pytest.mark.parametrize(
    ("assigner", "window"),
    [
        (EventTimeSessionWindows.with_gap(Time.milliseconds(5)), TimeWindow(10, 15)),
        (ProcessingTimeSessionWindows.with_gap(Time.milliseconds(5)), TimeWindow(70, 75)),
        (EventTimeSessionWindows.with_dynamic_gap(OwnLength()), TimeWindow(10, 13)),
        (ProcessingTimeSessionWindows.with_dynamic_gap(OwnLength()), TimeWindow(70, 73)),
    ],
)
def test_a_session_lasts_for_its_gap(
    assigner: MergingWindowAssigner[Any, TimeWindow], window: TimeWindow
) -> None:
    assert assigner.assign_windows(3, 10, AssignerSurroundings(now=70)) == [window]
    assert pickle.loads(pickle.dumps(assigner)).assign_windows(
        3, 10, AssignerSurroundings(now=70)
    ) == [window]


def test_a_dynamic_gap_must_be_positive() -> None:
    assigner = DynamicEventTimeSessionWindows.with_dynamic_gap(OwnLength())
    with pytest.raises(ValueError, match="0 < gap"):
        assigner.assign_windows(0, 10, AssignerSurroundings())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TumblingEventTimeWindows(5, 5),
            "TumblingEventTimeWindows parameters must satisfy abs(offset) < size",
        ),
        (
            lambda: SlidingEventTimeWindows(5, 2, -2),
            "SlidingEventTimeWindows parameters must satisfy abs(offset) < slide and size > 0",
        ),
        (
            lambda: EventTimeSessionWindows(0),
            "EventTimeSessionWindows parameters must satisfy 0 < size",
        ),
        (
            lambda: CountTumblingWindowAssigner(0),
            "CountTumblingWindowAssigner parameters must satisfy 0 < size",
        ),
    ],
)
def test_wrong_sizes_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        make()
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("assigner", "text", "trigger", "is_event_time"),
    [
        (
            TumblingEventTimeWindows(5000, 0),
            "TumblingEventTimeWindows(5000, 0)",
            "EventTimeTrigger()",
            True,
        ),
        (
            SlidingEventTimeWindows(5, 2, 1),
            "SlidingEventTimeWindows(5, 2, 1)",
            "EventTimeTrigger()",
            True,
        ),
        (
            TumblingProcessingTimeWindows(5, 0),
            "TumblingProcessingTimeWindows(5, 0)",
            "ProcessingTimeTrigger()",
            False,
        ),
        (EventTimeSessionWindows(5), "EventTimeSessionWindows(5)", "EventTimeTrigger()", True),
        (
            DynamicProcessingTimeSessionWindows(OwnLength()),
            "DynamicProcessingTimeSessionWindows()",
            "ProcessingTimeTrigger()",
            False,
        ),
        (GlobalWindows.create(), "GlobalWindows()", "NeverTrigger()", False),
        (
            GlobalWindows.create_with_end_of_stream_trigger(),
            "GlobalWindows(trigger=EndOfStreamTrigger())",
            "EndOfStreamTrigger()",
            False,
        ),
        (
            CountTumblingWindowAssigner.of(3),
            "CountTumblingWindowAssigner(3)",
            "PurgingTrigger(CountTrigger(3))",
            False,
        ),
        (
            CountSlidingWindowAssigner.of(3, 2),
            "CountSlidingWindowAssigner(3, 2)",
            "PurgingTrigger(CountTrigger(3))",
            False,
        ),
    ],
)
def test_each_assigner_prints_as_in_flink_and_has_its_default_trigger(
    assigner: WindowAssigner[Any, Any], text: str, trigger: str, is_event_time: bool
) -> None:
    assert repr(assigner) == text
    assert repr(assigner.get_default_trigger(None)) == trigger
    assert assigner.is_event_time() is is_event_time


def test_global_windows_are_one_window() -> None:
    windows = GlobalWindows.create().assign_windows(None, 5, AssignerSurroundings())
    assert list(windows) == [GlobalWindow.get()]


def test_count_windows_take_turns() -> None:
    assigner, context = CountTumblingWindowAssigner.of(3), AssignerSurroundings()
    ids = [w.id for _ in range(7) for w in assigner.assign_windows(None, 0, context)]
    assert ids == [0, 0, 0, 1, 1, 1, 2]


@given(st.integers(1, 7), st.integers(1, 7))
def test_sliding_count_windows_hold_size_records_each(size: int, slide: int) -> None:
    assigner, context = CountSlidingWindowAssigner.of(size, slide), AssignerSurroundings()
    contents: dict[CountWindow, list[int]] = {}
    for number in range(40):
        for window in assigner.assign_windows(None, 0, context):
            contents.setdefault(window, []).append(number)
    for window, numbers in contents.items():
        first = window.id * slide
        assert numbers == list(range(first, min(first + size, 40)))
