"""Windows: values, order, merging, storage."""

import itertools
import pickle
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.functions.serialization import TypeSerializer
from headrace.functions.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    MergeCallback,
    TimeWindow,
    TimeWindowSerializer,
    Window,
    window_starts,
)


class Recorder(MergeCallback[TimeWindow]):
    def __init__(self) -> None:
        self.merges: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, to_be_merged: Iterable[TimeWindow], merge_result: TimeWindow) -> None:
        self.merges.append((list(to_be_merged), merge_result))


def test_time_windows_are_values_with_an_order() -> None:
    assert TimeWindow(1, 5) == TimeWindow(1, 5)
    assert len({TimeWindow(1, 5), TimeWindow(1, 5)}) == 1
    assert TimeWindow(1, 5) < TimeWindow(1, 6) < TimeWindow(2, 3)
    assert TimeWindow(1, 5) <= TimeWindow(1, 5)
    with pytest.raises(TypeError):
        _ = TimeWindow(1, 5) < CountWindow(1)  # type: ignore[operator]


def test_windows_print_as_their_constructors() -> None:
    assert repr(TimeWindow(1, 5)) == "TimeWindow(start=1, end=5)"
    assert repr(CountWindow(3)) == "CountWindow(id=3)"
    assert repr(GlobalWindow.get()) == "GlobalWindow"


def test_the_end_does_not_belong_to_a_time_window() -> None:
    assert TimeWindow(1, 5).max_timestamp() == 4
    assert CountWindow(1).max_timestamp() == GlobalWindow.get().max_timestamp() == 2**63 - 1


def test_touching_windows_intersect() -> None:
    assert TimeWindow(0, 5).intersects(TimeWindow(5, 6))
    assert not TimeWindow(0, 5).intersects(TimeWindow(6, 7))
    assert TimeWindow(0, 5).cover(TimeWindow(3, 9)) == TimeWindow(0, 9)


@pytest.mark.parametrize(
    ("timestamp", "offset", "size", "start"),
    [
        (999, 0, 1000, 0),
        (1000, 0, 1000, 1000),
        (-1, 0, 1000, -1000),
        (-1000, 0, 1000, -1000),
        (1500, 300, 1000, 1300),
        (200, 300, 1000, -700),
        (200, -300, 1000, -300),
        (-250, -28_800_000, 86_400_000, -28_800_000),
    ],
)
def test_window_starts(timestamp: int, offset: int, size: int, start: int) -> None:
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, size) == start
    assert window_starts(np.array([timestamp], np.int64), offset, size).tolist() == [start]


@given(st.lists(st.integers(-(2**40), 2**40)), st.integers(1, 2**30), st.data())
def test_a_vector_of_starts_is_each_start(timestamps: list[int], size: int, data: Any) -> None:
    offset = data.draw(st.integers(-size + 1, size - 1))
    each = [TimeWindow.get_window_start_with_offset(t, offset, size) for t in timestamps]
    assert window_starts(np.array(timestamps, np.int64), offset, size).tolist() == each


def test_overlapping_and_touching_windows_merge_and_lonely_ones_are_not_reported() -> None:
    recorder = Recorder()
    windows = [
        TimeWindow(8, 9),
        TimeWindow(0, 3),
        TimeWindow(20, 21),
        TimeWindow(3, 5),
        TimeWindow(4, 8),
    ]
    TimeWindow.merge_windows(windows, recorder)
    assert recorder.merges == [
        ([TimeWindow(0, 3), TimeWindow(3, 5), TimeWindow(4, 8), TimeWindow(8, 9)], TimeWindow(0, 9))
    ]


def test_nothing_merges_among_no_windows() -> None:
    recorder = Recorder()
    TimeWindow.merge_windows([], recorder)
    assert recorder.merges == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)), max_size=10))
def test_merged_windows_do_not_touch_and_cover_all(spans: list[tuple[int, int]]) -> None:
    windows = {TimeWindow(start, start + length) for start, length in spans}
    recorder = Recorder()
    TimeWindow.merge_windows(windows, recorder)
    merged = {window for run, _ in recorder.merges for window in run}
    result = sorted((windows - merged) | {cover for _, cover in recorder.merges})
    assert all(a.end < b.start for a, b in itertools.pairwise(result))
    points = {point for w in windows for point in range(w.start, w.end)}
    assert points <= {point for w in result for point in range(w.start, w.end)}


@pytest.mark.parametrize(
    ("window", "serializer", "stored"),
    [
        (TimeWindow(1, -2), TimeWindowSerializer(), b"\0\0\0\0\0\0\0\x01" + b"\xff" * 7 + b"\xfe"),
        (CountWindow(3), CountWindowSerializer(), b"\0\0\0\0\0\0\0\x03"),
        (GlobalWindow.get(), GlobalWindowSerializer(), b"\0"),
    ],
)
def test_windows_are_stored_big_endian(
    window: Window, serializer: TypeSerializer[Any], stored: bytes
) -> None:
    stream = BytesIO()
    serializer.serialize(window, stream)
    assert stream.getvalue() == stored
    assert serializer.deserialize(BytesIO(stored + b"rest")) == window
    assert pickle.loads(pickle.dumps(window)) == window
    assert serializer == type(serializer)()
